//! Reads the values of flags.

use std::{fmt::Display, str::FromStr, time::Duration};

use tollgate::Quota;

use crate::{
    balancer::Balancing, clients::Arrivals, faults::Span, keys::KeyChoice, random::Millionths,
};

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Reads a time as quotas are written: `100ms` is the period of `1/100ms`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s" | "0ms") {
        return Ok(Duration::ZERO);
    }
    let quota: Result<Quota, _> = format!("1/{text}").parse();
    quota
        .map(|quota| quota.period())
        .map_err(|_| "expected a time, as in 100ms, 2s or 0s".to_owned())
}

pub(crate) fn span(text: &str) -> Result<Span, String> {
    let (from, to) = text
        .split_once("..")
        .ok_or("expected a span of time, as in 2s..5s")?;
    Ok(Span {
        from: time(from)?,
        to: time(to)?,
    })
}

/// Reads the number of a node and a span of time.
pub(crate) fn node_span(text: &str) -> Result<(usize, Span), String> {
    of_node(text, span)
}

/// Reads the number of a node and a time.
pub(crate) fn node_time(text: &str) -> Result<(usize, Duration), String> {
    of_node(text, time)
}

fn of_node<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<(usize, T), String> {
    let (node, rest) = text
        .split_once('@')
        .ok_or("expected the number of a node before an @, as in 1@2s")?;
    Ok((parsed(node)?, read(rest)?))
}

/// Reads a number with up to six digits after the point.
pub(crate) fn millionths(text: &str) -> Result<u64, String> {
    let wrong = || "expected a number with at most 6 digits after the point, as in 1.2".to_owned();
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    if rest.len() > 6 || !rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let rest: u64 = format!("{rest:0<6}").parse().map_err(|_| wrong())?;
    let millionths = whole.checked_mul(1_000_000);
    millionths
        .and_then(|whole| whole.checked_add(rest))
        .filter(|all| *all < 1 << 50)
        .ok_or_else(wrong)
}

pub(crate) fn part(text: &str) -> Result<Millionths, String> {
    let part = millionths(text)?;
    match u32::try_from(part) {
        Ok(part) if part <= 1_000_000 => Ok(part),
        _ => Err("expected a part from 0 to 1, as in 0.05".to_owned()),
    }
}

pub(crate) fn keys(text: &str) -> Result<KeyChoice, String> {
    let words: Vec<_> = text.split(':').collect();
    Ok(match *words {
        ["one"] => KeyChoice::One,
        ["uniform", keys] => KeyChoice::Uniform(parsed(keys)?),
        ["hot", keys, of] => KeyChoice::Hot {
            keys: parsed(keys)?,
            part: part(of)?,
        },
        ["zipf", keys, exponent] => KeyChoice::Zipf {
            keys: parsed(keys)?,
            exponent: u32::try_from(millionths(exponent)?)
                .map_err(|_| "expected an exponent such as 1.1".to_owned())?,
        },
        _ => return Err("expected one, uniform:N, hot:N:PART or zipf:N:EXPONENT".to_owned()),
    })
}

pub(crate) fn arrivals(text: &str) -> Result<Arrivals, String> {
    let words: Vec<_> = text.split(':').collect();
    Ok(match *words {
        ["poisson"] => Arrivals::Poisson,
        ["on-off", on, off] => Arrivals::OnOff {
            on: time(on)?,
            off: time(off)?,
        },
        _ => return Err("expected poisson or on-off:TIME:TIME".to_owned()),
    })
}

pub(crate) fn balancing(text: &str) -> Result<Balancing, String> {
    Ok(match text.split_once(':') {
        None if text == "round-robin" => Balancing::RoundRobin,
        None if text == "random" => Balancing::Random,
        None if text == "by-key" => Balancing::ByKey,
        Some(("hot", of)) => Balancing::Hot(part(of)?),
        _ => return Err("expected round-robin, random, by-key or hot:PART".to_owned()),
    })
}

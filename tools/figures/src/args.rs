//! The command `simulate`: parses its flags by hand.

use std::{ffi::OsString, fmt::Display, str::FromStr, time::Duration};

use tollgate::Quota;

use crate::{
    balancer::Balancing,
    clients::Arrivals,
    csv,
    faults::Span,
    fleet,
    keys::KeyChoice,
    scenario::Scenario,
    standard::{NAMES, scenario},
    text,
};

const HELP: &str = "\
Simulates a fleet of nodes that share a limit by leases, in simulated time.

Usage: figures simulate [--scenario NAME | --all | --list] [FLAG]...

  --scenario NAME   where the settings below begin       [hot-8]
  --all             all scenarios with names, one after the other
  --list            the names of the scenarios
  --seed N          determines each random number        [1]
  --nodes N         nodes of the fleet
  --rule RULE       the limit of a key, as in \"token-bucket 1000/s burst=500\"
  --hold TIME       how long units are held; 0s for no leases; without it, the default of the rule
  --demand X        all calls together, as a multiple of the rate of the rule
  --keys KEYS       one, uniform:N, hot:N:PART or zipf:N:EXPONENT
  --arrivals HOW    poisson, or on-off:TIME:TIME, the mean times of being on and off
  --clients N       how many clients share the demand
  --balance HOW     round-robin, random, by-key, or hot:PART, the part of node 0
  --delay TIME      least time of one way to the store
  --jitter TIME     most that is added to it
  --loss PART       requests that are lost, and answers that are lost
  --duplicate PART  requests that arrive twice
  --deadline TIME   how long a node waits for the store
  --outage SPAN     the store is out
  --lose-data       the store forgets all states at the end of each outage
  --partition N@SPAN  node N, from 0 on, cannot reach the store
  --freeze N@SPAN   node N does nothing
  --kill N@TIME     node N dies
  --offset TIME     most that the clocks of the nodes differ from the store's
  --drift PART      how fast and slow the clocks of the nodes are, in turns
  --time TIME       how long calls come
  --warm-up TIME    calls before are not measured
  --csv             a line for each scenario
  --csv-nodes       a line for each node

TIME is as in 100ms, SPAN as in 2s..5s, PART as in 0.05. Equal arguments print equal bytes.
";

/// How reports are printed.
#[derive(Clone, Copy)]
enum Format {
    Text,
    Csv,
    CsvOfNodes,
}

/// The command to run.
pub(crate) enum Command {
    Print(String),
    Simulate(Vec<Scenario>, PrintAs),
}

/// Hides the format.
pub(crate) struct PrintAs(Format);

impl Command {
    /// Parses the arguments after the command's name, or returns a sentence that says what is wrong with them.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let texts = args.into_iter().map(|arg| {
            arg.into_string()
                .map_err(|arg| format!("the argument {arg:?} is not UTF-8: expected plain text"))
        });
        let mut args = texts.collect::<Result<Vec<_>, _>>()?.into_iter();
        let (mut names, mut format) = (vec!["hot-8".to_owned()], Format::Text);
        let mut settings = Vec::new();
        while let Some(arg) = args.next() {
            let (flag, value) = match arg.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
                _ => (&*arg, None),
            };
            match flag {
                "--help" | "-h" => return Ok(Self::Print(HELP.to_owned())),
                "--list" => return Ok(Self::Print(list())),
                "--all" => names = NAMES.map(|(name, _)| name.to_owned()).to_vec(),
                "--csv" => format = Format::Csv,
                "--csv-nodes" => format = Format::CsvOfNodes,
                "--lose-data" => settings.push((flag.to_owned(), String::new())),
                _ => {
                    let next = || {
                        format!(
                            "{flag} needs a value after it, or is no flag; --help shows all flags"
                        )
                    };
                    let value = match value {
                        Some(value) => value,
                        None => args.next().ok_or_else(next)?,
                    };
                    if flag == "--scenario" {
                        names = vec![value];
                    } else {
                        settings.push((flag.to_owned(), value));
                    }
                }
            }
        }
        let scenarios = names.iter().map(|name| {
            let mut scenario = scenario(name)?;
            for (flag, value) in &settings {
                set(&mut scenario, flag, value).map_err(|error| {
                    format!("{flag} \"{value}\": {error}; --help shows all flags")
                })?;
            }
            Ok(scenario)
        });
        let scenarios = scenarios.collect::<Result<Vec<_>, String>>()?;
        Ok(Self::Simulate(scenarios, PrintAs(format)))
    }

    /// Runs the command. Returns what it prints.
    pub(crate) fn output(self) -> Result<String, String> {
        let (scenarios, PrintAs(format)) = match self {
            Self::Print(text) => return Ok(text),
            Self::Simulate(scenarios, format) => (scenarios, format),
        };
        let mut output = match format {
            Format::Text => String::new(),
            Format::Csv => csv::HEADER.to_owned(),
            Format::CsvOfNodes => csv::NODES_HEADER.to_owned(),
        };
        for (number, scenario) in scenarios.iter().enumerate() {
            let report = fleet::run(scenario)?;
            match format {
                Format::Text if number > 0 => output.push('\n'),
                _ => {}
            }
            output += &match format {
                Format::Text => text::text(&report),
                Format::Csv => csv::line(&report),
                Format::CsvOfNodes => csv::nodes(&report),
            };
        }
        Ok(output)
    }
}

fn list() -> String {
    let line = |(name, meaning): (&str, &str)| format!("{name:<14}{meaning}\n");
    NAMES.into_iter().map(line).collect()
}

fn set(scenario: &mut Scenario, flag: &str, value: &str) -> Result<(), String> {
    let (link, faults) = (&mut scenario.link, &mut scenario.faults);
    match flag {
        "--seed" => scenario.seed = parsed(value)?,
        "--nodes" => scenario.nodes = parsed(value)?,
        "--rule" => scenario.rule = parsed(value)?,
        "--hold" => scenario.hold = Some(time(value)?),
        "--demand" => scenario.demand = millionths(value)?,
        "--keys" => scenario.keys = keys(value)?,
        "--arrivals" => scenario.arrivals = arrivals(value)?,
        "--clients" => scenario.clients = parsed(value)?,
        "--balance" => scenario.balancing = balancing(value)?,
        "--delay" => link.delay = time(value)?,
        "--jitter" => link.jitter = time(value)?,
        "--loss" => {
            link.lost_requests = part(value)?;
            link.lost_answers = link.lost_requests;
        }
        "--duplicate" => link.duplicated = part(value)?,
        "--deadline" => link.deadline = time(value)?,
        "--outage" => faults.outages.push(span(value)?),
        "--lose-data" => faults.loses_data = true,
        "--partition" => faults.partitions.push(of_node(value, span)?),
        "--freeze" => faults.freezes.push(of_node(value, span)?),
        "--kill" => faults.deaths.push(of_node(value, time)?),
        "--offset" => scenario.offset = time(value)?,
        "--drift" => scenario.drift = part(value)?,
        "--time" => scenario.time = time(value)?,
        "--warm-up" => scenario.warm_up = time(value)?,
        _ => return Err("there is no such flag".to_owned()),
    }
    Ok(())
}

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

fn span(text: &str) -> Result<Span, String> {
    let (from, to) = text
        .split_once("..")
        .ok_or("expected a span of time, as in 2s..5s")?;
    Ok(Span {
        from: time(from)?,
        to: time(to)?,
    })
}

fn of_node<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<(usize, T), String> {
    let (node, rest) = text
        .split_once('@')
        .ok_or("expected the number of a node before an @, as in 1@2s")?;
    Ok((parsed(node)?, read(rest)?))
}

/// Reads a number with up to six digits after the point.
fn millionths(text: &str) -> Result<u64, String> {
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

fn part(text: &str) -> Result<u32, String> {
    let part = millionths(text)?;
    match u32::try_from(part) {
        Ok(part) if part <= 1_000_000 => Ok(part),
        _ => Err("expected a part from 0 to 1, as in 0.05".to_owned()),
    }
}

fn keys(text: &str) -> Result<KeyChoice, String> {
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

fn arrivals(text: &str) -> Result<Arrivals, String> {
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

fn balancing(text: &str) -> Result<Balancing, String> {
    Ok(match text.split_once(':') {
        None if text == "round-robin" => Balancing::RoundRobin,
        None if text == "random" => Balancing::Random,
        None if text == "by-key" => Balancing::ByKey,
        Some(("hot", of)) => Balancing::Hot(part(of)?),
        _ => return Err("expected round-robin, random, by-key or hot:PART".to_owned()),
    })
}

//! Adds the fields of a layer to those that a response has already.

use http::{HeaderMap, HeaderValue};

use super::{
    legacy::{self, LegacyNumbers},
    names::{RATELIMIT, RATELIMIT_POLICY},
    structured::{self, Item},
    upstream::{self, Existing, MemberId, Numbers, UpstreamFields},
};
use crate::respond::header_value;

/// Adds `RateLimit` and `RateLimit-Policy` of the current draft.
#[inline]
pub(super) fn add_lists(
    headers: &mut HeaderMap,
    upstream: UpstreamFields,
    ratelimit: HeaderValue,
    policies: HeaderValue,
) {
    if upstream::prepare(headers, upstream) {
        return;
    }
    if headers.contains_key(RATELIMIT) {
        return merge_lists(headers, &ratelimit, &policies);
    }
    // A map that is full (32768 fields) is left as it is.
    let _ = headers.try_append(RATELIMIT, ratelimit);
    if let Ok(true) = headers.try_append(RATELIMIT_POLICY, policies) {
        let named = Existing::of(headers).named_policies;
        upstream::set_lines(headers, &RATELIMIT_POLICY, &named);
    }
}

#[cold]
fn merge_lists(headers: &mut HeaderMap, ratelimit: &HeaderValue, policies: &HeaderValue) {
    let existing = Existing::of(headers);
    let (lists, named) = existing.lists();
    // Ours can be read, as all that this crate writes.
    let [ratelimit, policies] =
        [ratelimit, policies].map(|value| value.to_str().unwrap_or_default().to_owned());
    let inner = lists.iter().filter_map(|line| upstream::available(line));
    let inner: Vec<_> = inner.flatten().collect();
    let (mut replaced, mut dropped) = (Vec::new(), Vec::new());
    for member in upstream::available(&ratelimit).unwrap_or_default() {
        let same = |other: &&Item<'_>| upstream::id(other) == upstream::id(&member);
        let nearest = inner.iter().filter(same).map(upstream::nearness).min();
        match nearest {
            None => {}
            Some(nearest) if nearest <= upstream::nearness(&member) => {
                dropped.push(upstream::id(&member));
            }
            Some(_) => replaced.push(upstream::id(&member)),
        }
    }
    for (name, theirs, ours) in [
        (RATELIMIT, &lists, &ratelimit),
        (RATELIMIT_POLICY, &named, &policies),
    ] {
        let lines = theirs.iter().filter_map(|line| without(line, &replaced));
        let lines: Vec<_> = lines.chain(without(ours, &dropped)).collect();
        upstream::set_lines(headers, &name, &lines);
    }
}

/// Returns a line without the members of these names; `None` if no member remains.
fn without(line: &str, ids: &[MemberId<'_>]) -> Option<String> {
    let all = structured::list(line)?;
    let left = all.iter().filter(|item| !ids.contains(&upstream::id(item)));
    let left: Vec<_> = left.map(|item| item.text).collect();
    match left.len() {
        0 => None,
        _ if left.len() == all.len() => Some(line.to_owned()),
        _ => Some(left.join(", ")),
    }
}

/// Adds `RateLimit` and `RateLimit-Policy` of draft-07.
pub(super) fn add_single(
    headers: &mut HeaderMap,
    upstream: UpstreamFields,
    numbers: LegacyNumbers,
    policies: HeaderValue,
) {
    if upstream::prepare(headers, upstream) {
        return;
    }
    if headers.contains_key(RATELIMIT) {
        return merge_single(headers, numbers, &policies);
    }
    if let Some(value) = numbers.dictionary() {
        let _ = headers.try_insert(RATELIMIT, value);
    }
    if let Ok(true) = headers.try_append(RATELIMIT_POLICY, policies) {
        let numbered = Existing::of(headers).numbered_policies;
        upstream::set_lines(headers, &RATELIMIT_POLICY, &numbered);
    }
}

#[cold]
fn merge_single(headers: &mut HeaderMap, ours: LegacyNumbers, policies: &HeaderValue) {
    let existing = Existing::of(headers);
    let theirs = existing.nearest();
    let theirs = theirs.filter(|theirs| theirs.nearness() <= ours.nearness());
    let nearest = theirs.map_or(ours, |theirs| LegacyNumbers {
        limit: theirs.limit.unwrap_or(ours.limit),
        remaining: theirs.remaining,
        reset: theirs.reset.map_or(ours.reset, upstream::seconds_from_now),
    });
    if let Some(value) = nearest.dictionary() {
        let _ = headers.try_insert(RATELIMIT, value);
    }
    let named = existing.named_policies.iter();
    let named = named.filter_map(|line| upstream::named_policies(line));
    let converted = named.map(|policies| {
        let policies: Vec<_> = policies.iter().filter_map(numbered_policy).collect();
        policies.join(", ")
    });
    let mut lines = existing.numbered_policies.clone();
    lines.extend(converted.filter(|line| !line.is_empty()));
    lines.extend(policies.to_str().map(str::to_owned));
    upstream::set_lines(headers, &RATELIMIT_POLICY, &lines);
}

/// Returns a policy of the current draft as one of draft-07.
fn numbered_policy(policy: &Item<'_>) -> Option<String> {
    let quota = policy.number("q")?;
    Some(match policy.number("w") {
        Some(window) => format!("{quota};w={window}"),
        None => quota.to_string(),
    })
}

/// Adds the three fields of draft-06, or `X-RateLimit-*`.
pub(super) fn add_triple(
    headers: &mut HeaderMap,
    upstream: UpstreamFields,
    numbers: LegacyNumbers,
    format: legacy::Triple,
) {
    if upstream::prepare(headers, upstream) {
        return;
    }
    let names = format.names();
    let Numbers {
        limit,
        remaining,
        reset,
    } = match headers.contains_key(&names[1]) {
        true => stricter_triple(headers, numbers, format),
        false => numbers.into(),
    };
    for (name, number) in names.into_iter().zip([limit, Some(remaining), reset]) {
        if let Some(value) = number.and_then(header_value::number) {
            let _ = headers.try_insert(name, value);
        }
    }
}

#[cold]
fn stricter_triple(headers: &HeaderMap, ours: LegacyNumbers, format: legacy::Triple) -> Numbers {
    let theirs = upstream::triple(headers, &format.names());
    let theirs = theirs.filter(|theirs| theirs.nearness() <= ours.nearness());
    theirs.map_or(ours.into(), |theirs| Numbers {
        reset: theirs.reset.map(|reset| match format {
            legacy::Triple::UnixSeconds => upstream::unix_seconds_as(ours.reset, reset),
            legacy::Triple::Draft06 | legacy::Triple::Delta => upstream::seconds_from_now(reset),
        }),
        ..theirs
    })
}

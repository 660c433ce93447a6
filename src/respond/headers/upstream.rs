//! Reads the rate limit fields that a response already has, in any format, and merges the fields of
//! a layer with them.

use std::{cmp::Reverse, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    DRAFT06, RATELIMIT, RATELIMIT_POLICY, X_RATELIMIT,
    legacy::{LegacyNumbers, Triple},
    structured::{self, BareItem, Member},
    value,
};
use crate::time::{Clock, SystemClock};

/// The treatment of rate limit fields that a response already has, for example from a proxied
/// upstream.
///
/// Clients cannot read two sets of numbers in one field. So the response has one valid set in the
/// format of the layer, with any upstream.
///
/// | | the response has |
/// |---|---|
/// | `Stricter` | the fields that leave fewer units: see below |
/// | `Keep` | the upstream's fields of any format, as they are; this layer's, if none of them can be read |
/// | `Replace` | this layer's fields alone |
///
/// `Stricter` is about the fields of this layer's own [format](crate::respond::Headers); fields
/// with other names stay as they are.
///
/// - In `Draft`, the members of all layers are joined in one List. Of members with one name and
///   partition, that which leaves less is kept. A field of draft-07 becomes a member named
///   `upstream`.
/// - In the other formats, there is room for one limit: the one with fewer remaining units, then
///   with the later reset. It is written in this layer's format, with the reset in Unix seconds or
///   as seconds from now as the format has it.
/// - Fields that cannot be read are removed.
///
/// An inner layer of this crate is an upstream, too. So with several layers, set `Keep` or
/// `Replace` on the innermost one. A response without fields of this layer keeps the upstream's:
/// with [`Headers::None`](crate::respond::Headers::None), and for exempt requests.
///
/// # Examples
///
/// ```
/// use tollgate::respond::{Http, UpstreamFields};
///
/// // A gateway, whose clients must not see the limits of the service behind it.
/// let respond = Http::new().upstream_fields(UpstreamFields::Replace);
/// # let _ = respond;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UpstreamFields {
    /// The stricter of both: the default.
    #[default]
    Stricter,
    /// The upstream's fields, if they can be read.
    Keep,
    /// This layer's fields.
    Replace,
}

/// The least reset that is in Unix seconds (September 2001). Smaller ones are in seconds from now.
const FIRST_UNIX: u64 = 1_000_000_000;

/// The name of the member that a field of draft-07 becomes.
const UPSTREAM: &str = "\"upstream\"";

/// The limit of an upstream in a format with a single limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct UpstreamLimit {
    pub(super) limit: Option<u64>,
    pub(super) remaining: u64,
    /// In Unix seconds from [`FIRST_UNIX`] on, below in seconds from now.
    pub(super) reset: Option<u64>,
}

/// The order of limits by nearness to exhaustion: fewer remaining units first, then a longer wait.
pub(super) type Nearness = (u64, Reverse<u64>);

impl UpstreamLimit {
    pub(super) fn nearness(&self) -> Nearness {
        let wait = self.reset.map_or(u64::MAX, seconds_from_now);
        (self.remaining, Reverse(wait))
    }
}

/// Returns a reset in seconds from now.
pub(super) fn seconds_from_now(reset: u64) -> u64 {
    match reset < FIRST_UNIX {
        true => reset,
        false => reset.saturating_sub(SystemClock::new().now().as_nanos() / 1_000_000_000),
    }
}

/// Returns a reset in Unix seconds, if `ours` is; a store may have another timeline.
pub(super) fn unix_seconds_as(ours: u64, reset: u64) -> u64 {
    match reset < FIRST_UNIX && ours >= FIRST_UNIX {
        true => {
            let now = SystemClock::new().now().as_nanos();
            value::unix_seconds_after(now, Duration::from_secs(reset))
        }
        false => reset,
    }
}

/// The readable parts of `RateLimit` and `RateLimit-Policy`.
#[derive(Debug, Default)]
pub(super) struct Existing {
    /// Lines of `RateLimit` in the current draft.
    pub(super) lists: Vec<String>,
    /// The `RateLimit` of draft-07 that is nearest to exhaustion, and its numbers.
    pub(super) single: Option<(String, UpstreamLimit)>,
    /// Lines of `RateLimit-Policy` in the current draft.
    pub(super) named_policies: Vec<String>,
    /// Lines of `RateLimit-Policy` in older drafts.
    pub(super) numbered_policies: Vec<String>,
}

impl Existing {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let (lines, policies) = (
            lines(headers, &RATELIMIT),
            lines(headers, &RATELIMIT_POLICY),
        );
        let singles = readable(&lines, |line| single(line).is_some());
        let singles = singles
            .into_iter()
            .filter_map(|line| single(&line).map(|numbers| (line, numbers)));
        Self {
            lists: readable(&lines, |line| available(line).is_some()),
            single: singles.min_by_key(|(_, numbers)| numbers.nearness()),
            named_policies: readable(&policies, |line| named_policies(line).is_some()),
            numbered_policies: readable(&policies, |line| numbered_policies(line).is_some()),
        }
    }

    /// Returns the lines of both fields in the current draft. The limit of draft-07 becomes a
    /// member.
    ///
    /// Its reset is the time until all units are there. So the remaining ones within it are no more
    /// than the rate grants.
    pub(super) fn lists(&self) -> (Vec<String>, Vec<String>) {
        let (mut lists, mut policies) = (self.lists.clone(), self.named_policies.clone());
        if let Some((_, numbers)) = &self.single {
            let parameter = |name: &str, number: Option<u64>| {
                number.map_or_else(String::new, |number| format!(";{name}={number}"))
            };
            let reset = parameter("t", numbers.reset.map(seconds_from_now));
            lists.push(format!("{UPSTREAM};r={}{reset}", numbers.remaining));
            policies.extend(numbers.limit.map(|limit| {
                let window = parameter("w", self.window(limit));
                format!("{UPSTREAM};q={limit}{window}")
            }));
        }
        (lists, policies)
    }

    /// Returns the window of the policy with this quota, in seconds.
    fn window(&self, quota: u64) -> Option<u64> {
        let policies = self.numbered_policies.iter();
        let mut policies = policies
            .filter_map(|line| numbered_policies(line))
            .flatten();
        let policy = policies.find(|policy| policy.value == BareItem::Number(quota))?;
        policy.number("w").filter(|window| *window > 0)
    }

    /// Returns the quota of the policy with the name and the partition of a member.
    fn quota(&self, member: &Member<'_>) -> Option<u64> {
        let policies = self.named_policies.iter();
        let mut policies = policies.filter_map(|line| named_policies(line)).flatten();
        policies
            .find(|policy| id(policy) == id(member))?
            .number("q")
    }

    /// Returns the limit that is nearest to exhaustion, of those that have all numbers of draft-07.
    pub(super) fn nearest(&self) -> Option<UpstreamLimit> {
        let members = self
            .lists
            .iter()
            .filter_map(|line| available(line))
            .flatten();
        let members = members.filter_map(|member| {
            Some(UpstreamLimit {
                limit: Some(self.quota(&member)?),
                remaining: member.number("r")?,
                reset: Some(member.number("t")?),
            })
        });
        let all = members.chain(self.single.as_ref().map(|(_, numbers)| *numbers));
        all.min_by_key(UpstreamLimit::nearness)
    }
}

fn lines(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let lines = headers.get_all(name).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.map(|line| line.trim().to_owned()).collect()
}

/// Returns the lines that can be read. If none can be read by itself, the value may be spread over
/// all of them.
fn readable(lines: &[String], can_be_read: impl Fn(&str) -> bool) -> Vec<String> {
    let readable: Vec<_> = lines
        .iter()
        .filter(|line| can_be_read(line))
        .cloned()
        .collect();
    if !readable.is_empty() || lines.len() < 2 {
        return readable;
    }
    let joined = lines.join(", ");
    Vec::from_iter(can_be_read(&joined).then_some(joined))
}

/// The name of a member and its partition key.
pub(super) type MemberId<'a> = (BareItem<'a>, Option<BareItem<'a>>);

pub(super) fn id<'a>(member: &Member<'a>) -> MemberId<'a> {
    (member.value, member.parameter("pk"))
}

/// Returns the nearness to exhaustion of a member of `RateLimit`.
pub(super) fn nearness(member: &Member<'_>) -> Nearness {
    let number = |name| member.number(name).unwrap_or(u64::MAX);
    (number("r"), Reverse(number("t")))
}

/// Returns the members of a List of Strings that all have a number as this parameter.
fn strings_with<'a>(line: &'a str, parameter: &str) -> Option<Vec<Member<'a>>> {
    let items = structured::list(line)?;
    let is_member = |item: &Member<'_>| {
        matches!(item.value, BareItem::String(_)) && item.number(parameter).is_some()
    };
    items.iter().all(is_member).then_some(items)
}

/// Returns the members of a `RateLimit` of the current draft: `"burst";r=50;t=30`.
pub(super) fn available(line: &str) -> Option<Vec<Member<'_>>> {
    let is_number = |item: &Member<'_>| {
        let window = item.parameter("t");
        window.is_none_or(|window| window.number().is_some())
    };
    strings_with(line, "r").filter(|items| items.iter().all(is_number))
}

/// Returns the members of a `RateLimit-Policy` of the current draft: `"burst";q=100;w=60`.
pub(super) fn named_policies(line: &str) -> Option<Vec<Member<'_>>> {
    strings_with(line, "q")
}

/// Returns the members of a `RateLimit-Policy` of older drafts: `100;w=60`.
pub(super) fn numbered_policies(line: &str) -> Option<Vec<Member<'_>>> {
    let items = structured::list(line)?;
    let is_number = |item: &Member<'_>| item.value.number().is_some();
    items.iter().all(is_number).then_some(items)
}

/// Reads a `RateLimit` of draft-07: `limit=100, remaining=50, reset=5`.
fn single(line: &str) -> Option<UpstreamLimit> {
    let members = structured::dictionary(line)?;
    let number = |name: &str| {
        let (_, item) = members.iter().rev().find(|(key, _)| *key == name)?;
        item.value.number()
    };
    Some(UpstreamLimit {
        limit: Some(number("limit")?),
        remaining: number("remaining")?,
        reset: Some(number("reset")?),
    })
}

/// Reads the fields of draft-06 or `X-RateLimit-*`; `None` without remaining units, and if one of
/// them cannot be read.
///
/// The limit may be followed by policies, as in `100, 100;w=60` of early drafts, and the reset may
/// have a fraction.
pub(super) fn triple(headers: &HeaderMap, names: &[HeaderName; 3]) -> Option<UpstreamLimit> {
    let [limit, remaining, reset] = names;
    Some(UpstreamLimit {
        limit: number_in(headers, limit, |items| items.first()?.value.number())?,
        remaining: number_in(headers, remaining, |items| match items {
            [item] => item.value.number(),
            _ => None,
        })??,
        reset: number_in(headers, reset, |items| match items {
            [item] => item.value.rounded_up(),
            _ => None,
        })?,
    })
}

/// Reads a number in a field of one line; `Some(None)` without the field, and `None` if it cannot
/// be read.
fn number_in(
    headers: &HeaderMap,
    name: &HeaderName,
    read: impl Fn(&[Member<'_>]) -> Option<u64>,
) -> Option<Option<u64>> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Some(None),
        (Some(line), None) => {
            let items = structured::list(line.to_str().ok()?)?;
            read(&items).map(Some)
        }
        (Some(_), Some(_)) => None,
    }
}

/// Prepares the fields of a response for those of a layer; returns `true` if the layer must not add
/// its own.
#[inline]
pub(super) fn prepare(headers: &mut HeaderMap, upstream: UpstreamFields) -> bool {
    match upstream {
        UpstreamFields::Stricter => false,
        UpstreamFields::Replace => {
            remove_all(headers);
            false
        }
        UpstreamFields::Keep => keep_readable(headers),
    }
}

#[cold]
fn remove_all(headers: &mut HeaderMap) {
    let lists = [RATELIMIT, RATELIMIT_POLICY].into_iter();
    for name in lists.chain(DRAFT06).chain(X_RATELIMIT) {
        headers.remove(name);
    }
}

/// Removes the fields that cannot be read; returns `true` if any remain.
#[cold]
fn keep_readable(headers: &mut HeaderMap) -> bool {
    let existing = Existing::of(headers);
    let has_triple = [DRAFT06, X_RATELIMIT].map(|names| {
        let is_readable = triple(headers, &names).is_some();
        if !is_readable {
            for name in names {
                headers.remove(name);
            }
        }
        is_readable
    });
    let (ratelimit, named) = match (existing.lists.as_slice(), &existing.single) {
        ([], Some((line, _))) => (vec![line.clone()], existing.named_policies),
        _ => existing.lists(),
    };
    set_lines(headers, &RATELIMIT, &ratelimit);
    let policies = match named.is_empty() {
        true => existing.numbered_policies,
        false => named,
    };
    // Draft-06 has policies, too. Without remaining units, those of this layer are sent.
    let has_policies = !ratelimit.is_empty() || has_triple[0];
    let policies = if has_policies { policies } else { Vec::new() };
    set_lines(headers, &RATELIMIT_POLICY, &policies);
    !ratelimit.is_empty() || has_triple.contains(&true)
}

/// Replaces the lines of a field.
pub(super) fn set_lines(headers: &mut HeaderMap, name: &HeaderName, lines: &[String]) {
    headers.remove(name);
    // Never an error: they are parts of valid values.
    for value in lines.iter().filter_map(|line| line.parse().ok()) {
        let _ = headers.try_append(name, value);
    }
}

/// Adds `RateLimit` and `RateLimit-Policy` of the current draft.
#[inline]
pub(super) fn add_lists(
    headers: &mut HeaderMap,
    upstream: UpstreamFields,
    ratelimit: HeaderValue,
    policies: HeaderValue,
) {
    if prepare(headers, upstream) {
        return;
    }
    if headers.contains_key(RATELIMIT) {
        return merge_lists(headers, &ratelimit, &policies);
    }
    // A map that is full (32768 fields) is left as it is.
    let _ = headers.try_append(RATELIMIT, ratelimit);
    if let Ok(true) = headers.try_append(RATELIMIT_POLICY, policies) {
        let named = Existing::of(headers).named_policies;
        set_lines(headers, &RATELIMIT_POLICY, &named);
    }
}

#[cold]
fn merge_lists(headers: &mut HeaderMap, ratelimit: &HeaderValue, policies: &HeaderValue) {
    let existing = Existing::of(headers);
    let (lists, named) = existing.lists();
    // Ours can be read, as all that this crate writes.
    let [ratelimit, policies] =
        [ratelimit, policies].map(|value| value.to_str().unwrap_or_default().to_owned());
    let inner = lists.iter().filter_map(|line| available(line));
    let inner: Vec<_> = inner.flatten().collect();
    let (mut replaced, mut dropped) = (Vec::new(), Vec::new());
    for member in available(&ratelimit).unwrap_or_default() {
        let same = |other: &&Member<'_>| id(other) == id(&member);
        let nearest = inner.iter().filter(same).map(nearness).min();
        match nearest {
            None => {}
            Some(nearest) if nearest <= nearness(&member) => {
                dropped.push(id(&member));
            }
            Some(_) => replaced.push(id(&member)),
        }
    }
    for (name, theirs, ours) in [
        (RATELIMIT, &lists, &ratelimit),
        (RATELIMIT_POLICY, &named, &policies),
    ] {
        let lines = theirs.iter().filter_map(|line| without(line, &replaced));
        let lines: Vec<_> = lines.chain(without(ours, &dropped)).collect();
        set_lines(headers, &name, &lines);
    }
}

/// Returns a line without the members of these names; `None` if no member remains.
fn without(line: &str, ids: &[MemberId<'_>]) -> Option<String> {
    let all = structured::list(line)?;
    let left = all.iter().filter(|item| !ids.contains(&id(item)));
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
    if prepare(headers, upstream) {
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
        set_lines(headers, &RATELIMIT_POLICY, &numbered);
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
        reset: theirs.reset.map_or(ours.reset, seconds_from_now),
    });
    if let Some(value) = nearest.dictionary() {
        let _ = headers.try_insert(RATELIMIT, value);
    }
    let named = existing.named_policies.iter();
    let named = named.filter_map(|line| named_policies(line));
    let converted = named.map(|policies| {
        let policies: Vec<_> = policies.iter().filter_map(numbered_policy).collect();
        policies.join(", ")
    });
    let mut lines = existing.numbered_policies.clone();
    lines.extend(converted.filter(|line| !line.is_empty()));
    lines.extend(policies.to_str().map(str::to_owned));
    set_lines(headers, &RATELIMIT_POLICY, &lines);
}

/// Returns a policy of the current draft as one of draft-07.
fn numbered_policy(policy: &Member<'_>) -> Option<String> {
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
    format: Triple,
) {
    if prepare(headers, upstream) {
        return;
    }
    let names = format.names();
    let UpstreamLimit {
        limit,
        remaining,
        reset,
    } = match headers.contains_key(&names[1]) {
        true => stricter_triple(headers, numbers, format),
        false => numbers.into(),
    };
    for (name, number) in names.into_iter().zip([limit, Some(remaining), reset]) {
        if let Some(value) = number.and_then(value::number) {
            let _ = headers.try_insert(name, value);
        }
    }
}

#[cold]
fn stricter_triple(headers: &HeaderMap, ours: LegacyNumbers, format: Triple) -> UpstreamLimit {
    let theirs = triple(headers, &format.names());
    let theirs = theirs.filter(|theirs| theirs.nearness() <= ours.nearness());
    theirs.map_or(ours.into(), |theirs| UpstreamLimit {
        reset: theirs.reset.map(|reset| match format {
            Triple::UnixSeconds => unix_seconds_as(ours.reset, reset),
            Triple::Draft06 | Triple::Delta => seconds_from_now(reset),
        }),
        ..theirs
    })
}

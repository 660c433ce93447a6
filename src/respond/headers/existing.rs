//! Reads the rate limit fields that a response already has, in any format.

use std::{borrow::Cow, cmp::Reverse, collections::HashMap, fmt::Write as _, time::Duration};

use http::{HeaderMap, HeaderName};

use super::{
    legacy::LegacyNumbers,
    structured::{self, BareItem, Member},
    value,
};
use crate::time::{Clock, SystemClock};

/// The least reset that is in Unix seconds (September 2001). Smaller ones are in seconds from now.
const FIRST_UNIX: u64 = 1_000_000_000;

/// The name of the member that a field of draft-07 becomes.
const UPSTREAM: MemberId<'static> = (BareItem::String("\"upstream\""), None);

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

/// A wait that is not known may be any.
pub(super) fn nearness(units: u64, wait: Option<u64>) -> Nearness {
    (units, Reverse(wait.unwrap_or(u64::MAX)))
}

impl UpstreamLimit {
    pub(super) fn nearness(&self) -> Nearness {
        nearness(self.remaining, self.reset.map(seconds_from_now))
    }

    /// Returns its numbers for clients of a layer. It takes those from the layer's that it lacks.
    pub(super) fn completed_by(
        self,
        ours: LegacyNumbers,
        reset: impl Fn(u64) -> u64,
    ) -> LegacyNumbers {
        LegacyNumbers {
            limit: self.limit.unwrap_or(ours.limit),
            remaining: self.remaining,
            reset: self.reset.map_or(ours.reset, reset),
        }
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

/// The lines of a field, and all of them as one value (RFC 9110 §5.3).
pub(super) struct Lines {
    pub(super) each: Vec<String>,
    joined: String,
}

impl Lines {
    fn new(each: Vec<String>) -> Self {
        let joined = each.join(", ");
        Self { each, joined }
    }

    pub(super) fn of(headers: &HeaderMap, name: &HeaderName) -> Self {
        let lines = headers.get_all(name).iter();
        let lines = lines.filter_map(|line| line.to_str().ok());
        Self::new(lines.map(|line| line.trim().to_owned()).collect())
    }

    /// Returns the lines of an upstream, and the last one, which this layer has appended.
    pub(super) fn with_ours(headers: &HeaderMap, name: &HeaderName) -> [Self; 2] {
        let mut theirs = Self::of(headers, name).each;
        let ours = theirs.pop();
        [theirs, Vec::from_iter(ours)].map(Self::new)
    }

    /// Returns the lines that can be read. If none can be read by itself, the value may be spread
    /// over all of them.
    fn readable<'a, T>(&'a self, read: impl Fn(&'a str) -> Option<T>) -> Vec<(&'a str, T)> {
        let read = |line: &'a str| read(line).map(|content| (line, content));
        let readable: Vec<_> = self.each.iter().filter_map(|line| read(line)).collect();
        match readable.is_empty() {
            true => Vec::from_iter(read(&self.joined)),
            false => readable,
        }
    }
}

/// A line that can be read, with its members.
pub(super) type Line<'a> = (&'a str, Vec<Member<'a>>);

pub(super) fn texts(lines: &[Line<'_>]) -> Vec<String> {
    lines.iter().map(|(text, _)| (*text).to_owned()).collect()
}

fn members<'s, 'a>(lines: &'s [Line<'a>]) -> impl Iterator<Item = &'s Member<'a>> {
    lines.iter().flat_map(|(_, members)| members)
}

/// The readable parts of `RateLimit` and `RateLimit-Policy`.
///
/// Each line is read once, and each member is looked at a fixed number of times: an upstream may
/// send thousands of them.
pub(super) struct Existing<'a> {
    /// Lines of `RateLimit` in the current draft.
    pub(super) lists: Vec<Line<'a>>,
    /// The `RateLimit` of draft-07 that is nearest to exhaustion, and its numbers.
    pub(super) single: Option<(&'a str, UpstreamLimit)>,
    /// Lines of `RateLimit-Policy` in the current draft.
    pub(super) named_policies: Vec<Line<'a>>,
    /// Lines of `RateLimit-Policy` in older drafts.
    pub(super) numbered_policies: Vec<Line<'a>>,
}

impl<'a> Existing<'a> {
    pub(super) fn of(ratelimit: &'a Lines, policies: &'a Lines) -> Self {
        let singles = ratelimit.readable(single).into_iter();
        Self {
            lists: ratelimit.readable(available),
            single: singles.min_by_key(|(_, numbers)| numbers.nearness()),
            named_policies: policies.readable(named_policies),
            numbered_policies: policies.readable(numbered_policies),
        }
    }

    /// Returns the limits as those of the current draft. The limit of older drafts is one of them.
    ///
    /// The reset of draft-07 is the time until all units are there. So the remaining ones within it
    /// are no more than the rate grants.
    pub(super) fn limits(&self) -> Limits<'a> {
        let mut limits = Limits::default();
        for member in members(&self.lists) {
            limits.add(id(member), [Part::of(member, AVAILABLE), None]);
        }
        for member in members(&self.named_policies) {
            limits.add(id(member), [None, Part::of(member, POLICY)]);
        }
        let available = self.single.as_ref().map(|(_, numbers)| {
            let wait = numbers.reset.map(seconds_from_now);
            Part::written(UPSTREAM, AVAILABLE, numbers.remaining, wait)
        });
        let policy = self.numbered_policy();
        let policy = policy.map(|(quota, window)| Part::written(UPSTREAM, POLICY, quota, window));
        if available.is_some() || policy.is_some() {
            limits.add(UPSTREAM, [available, policy]);
        }
        limits
    }

    /// Returns the quota and the window of the limit of draft-07; without that limit, those of the
    /// strictest policy of older drafts.
    fn numbered_policy(&self) -> Option<(u64, Option<u64>)> {
        let policies = members(&self.numbered_policies).filter_map(|policy| {
            let window = policy.number("w").filter(|window| *window > 0);
            Some((policy.value.number()?, window))
        });
        let strictness = |(quota, window): &(u64, Option<u64>)| nearness(*quota, *window);
        match &self.single {
            None => policies.min_by_key(strictness),
            Some((_, numbers)) => {
                let quota = numbers.limit?;
                let same = policies.filter(|(other, _)| *other == quota);
                same.min_by_key(strictness).or(Some((quota, None)))
            }
        }
    }

    /// Returns the limit that is nearest to exhaustion.
    pub(super) fn nearest(&self) -> Option<UpstreamLimit> {
        let limits = self.limits().all.into_iter();
        let numbers = limits.filter_map(|limit| limit.numbers());
        numbers.min_by_key(UpstreamLimit::nearness)
    }

    /// Returns the lines of `RateLimit-Policy` as draft-07 has them: `100;w=60`.
    pub(super) fn as_numbered_policies(&self) -> Vec<String> {
        let converted = self.named_policies.iter().map(|(_, policies)| {
            let policies = policies
                .iter()
                .filter_map(|policy| Part::of(policy, POLICY));
            let policies = policies.map(|policy| match policy.seconds {
                Some(window) => format!("{};w={window}", policy.units),
                None => policy.units.to_string(),
            });
            policies.collect::<Vec<_>>().join(", ")
        });
        let numbered = texts(&self.numbered_policies).into_iter();
        numbered.chain(converted).collect()
    }
}

/// The parameters of `RateLimit`: units and the seconds that they are for.
const AVAILABLE: [&str; 2] = ["r", "t"];
/// The parameters of `RateLimit-Policy`.
const POLICY: [&str; 2] = ["q", "w"];

/// A member of `RateLimit` or of `RateLimit-Policy`.
#[derive(Debug)]
struct Part<'a> {
    text: Cow<'a, str>,
    units: u64,
    seconds: Option<u64>,
}

impl<'a> Part<'a> {
    fn of(member: &Member<'a>, [units, seconds]: [&str; 2]) -> Option<Self> {
        Some(Self {
            text: Cow::Borrowed(member.text),
            units: member.number(units)?,
            seconds: member.number(seconds),
        })
    }

    fn written(
        (name, partition): MemberId<'_>,
        keys: [&str; 2],
        units: u64,
        seconds: Option<u64>,
    ) -> Self {
        let mut text = format!("{name};{}={units}", keys[0]);
        if let Some(seconds) = seconds {
            let _ = write!(text, ";{}={seconds}", keys[1]);
        }
        if let Some(partition) = partition {
            let _ = write!(text, ";pk={partition}");
        }
        Self {
            text: Cow::Owned(text),
            units,
            seconds,
        }
    }

    fn nearness(&self) -> Nearness {
        nearness(self.units, self.seconds)
    }
}

/// A limit of the current draft. It may lack one of its parts.
#[derive(Debug)]
pub(super) struct Limit<'a> {
    pub(super) id: MemberId<'a>,
    /// The members of `RateLimit` and of `RateLimit-Policy`.
    parts: [Option<Part<'a>>; 2],
}

impl<'a> Limit<'a> {
    /// Returns its numbers: it leaves no more than its quota.
    fn numbers(&self) -> Option<UpstreamLimit> {
        let [_, policy] = &self.parts;
        let mut parts = self.parts.iter().flatten();
        Some(UpstreamLimit {
            limit: policy.as_ref().map(|policy| policy.units),
            remaining: parts.clone().map(|part| part.units).min()?,
            // It is a wait, however long it is.
            reset: parts
                .find_map(|part| part.seconds)
                .map(|wait| wait.min(FIRST_UNIX - 1)),
        })
    }

    fn nearness(&self) -> Option<Nearness> {
        self.numbers().map(|numbers| numbers.nearness())
    }

    /// Keeps the stricter one of two limits with one name, ours and that of an upstream.
    ///
    /// If the upstream sent only one part, it is compared with ours, which has both.
    pub(super) fn merge(&mut self, theirs: &mut Self) {
        if theirs.parts.iter().all(Option::is_some) {
            let looser = match theirs.nearness() <= self.nearness() {
                true => self,
                false => theirs,
            };
            looser.parts = [None, None];
            return;
        }
        for (theirs, ours) in theirs.parts.iter_mut().zip(&mut self.parts) {
            keep_stricter(theirs, ours);
        }
        if let ([_, Some(quota)], [Some(ours), _]) = (&theirs.parts, &mut self.parts)
            && quota.units < ours.units
        {
            *ours = Part::written(self.id, AVAILABLE, quota.units, ours.seconds);
        }
    }
}

/// Removes one of two parts, if both are there.
fn keep_stricter(first: &mut Option<Part<'_>>, second: &mut Option<Part<'_>>) {
    if let (Some(one), Some(other)) = (&first, &second) {
        match one.nearness() <= other.nearness() {
            true => *second = None,
            false => *first = None,
        }
    }
}

/// Limits of the current draft with different names, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Limits<'a> {
    pub(super) all: Vec<Limit<'a>>,
    indices: HashMap<MemberId<'a>, usize>,
}

impl<'a> Limits<'a> {
    pub(super) fn get_mut(&mut self, id: MemberId<'a>) -> Option<&mut Limit<'a>> {
        self.all.get_mut(*self.indices.get(&id)?)
    }

    /// Adds parts of a limit. Of parts with one name, the strictest one is kept.
    fn add(&mut self, id: MemberId<'a>, parts: [Option<Part<'a>>; 2]) {
        let Some(limit) = self.get_mut(id) else {
            self.indices.insert(id, self.all.len());
            return self.all.push(Limit { id, parts });
        };
        for (known, mut part) in limit.parts.iter_mut().zip(parts) {
            keep_stricter(known, &mut part);
            *known = known.take().or(part);
        }
    }

    /// Returns `RateLimit` and `RateLimit-Policy`, each as one line, which may be empty.
    pub(super) fn lines(&self) -> [String; 2] {
        [0, 1].map(|n| {
            let parts = self.all.iter().filter_map(|limit| limit.parts[n].as_ref());
            parts.map(|part| &*part.text).collect::<Vec<_>>().join(", ")
        })
    }
}

/// The name of a member and its partition key.
type MemberId<'a> = (BareItem<'a>, Option<BareItem<'a>>);

fn id<'a>(member: &Member<'a>) -> MemberId<'a> {
    (member.value, member.parameter("pk"))
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
fn available(line: &str) -> Option<Vec<Member<'_>>> {
    let is_number = |item: &Member<'_>| {
        let window = item.parameter("t");
        window.is_none_or(|window| window.number().is_some())
    };
    strings_with(line, "r").filter(|items| items.iter().all(is_number))
}

/// Returns the members of a `RateLimit-Policy` of the current draft: `"burst";q=100;w=60`.
fn named_policies(line: &str) -> Option<Vec<Member<'_>>> {
    strings_with(line, "q")
}

/// Returns the members of a `RateLimit-Policy` of older drafts: `100;w=60`.
fn numbered_policies(line: &str) -> Option<Vec<Member<'_>>> {
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

//! The values of `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-08 to
//! -11).
//!
//! Both are Lists (RFC 9651 §3.1) of Strings with parameters. Only this file writes them, and only
//! `existing` reads them.

use http::HeaderValue;

use super::{
    PolicyEntry,
    value::{self, MAX_INTEGER, ValueBuffer, push_number},
};
use crate::{
    decision::{Decision, Verdict},
    policy::{Policy, Unit},
    quota::Quota,
    respond::interner::{FirstInterned, Interner},
};

/// Returns the `RateLimit` of several policies: `"burst";r=50;t=30, …`.
pub(super) fn ratelimit_list(entries: &[PolicyEntry<'_>]) -> Option<HeaderValue> {
    value::list(entries, |buffer, entry| {
        push_name(buffer, entry.policy);
        AvailableQuota::new(entry.decision, entry.quota).push(buffer);
        push_partition(buffer, entry.policy);
    })
}

/// Returns the `RateLimit-Policy` of several policies: `"burst";q=100;w=60, …`.
pub(super) fn policy_list(entries: &[PolicyEntry<'_>]) -> Option<HeaderValue> {
    value::list(entries, |buffer, entry| {
        push_name(buffer, entry.policy);
        buffer.extend_from_slice(b";q=");
        push_number(buffer, entry.limit.min(MAX_INTEGER));
        let window = |quota| value::window(entry.limit, &quota);
        if let Some(seconds) = entry.quota.and_then(window) {
            buffer.extend_from_slice(b";w=");
            push_number(buffer, seconds);
        }
        buffer.extend_from_slice(match (entry.quota, entry.policy.unit()) {
            (None, _) => b";qu=\"concurrent-requests\"",
            (Some(_), Unit::Requests) => b"",
            (Some(_), Unit::ContentBytes) => b";qu=\"content-bytes\"",
        });
        push_partition(buffer, entry.policy);
    })
}

/// Returns the beginning of a member of `RateLimit`: `"burst";r=`.
fn beginning(policy: &Policy) -> Vec<u8> {
    let mut buffer = ValueBuffer::new();
    push_name(&mut buffer, policy);
    buffer.extend_from_slice(b";r=");
    buffer.into()
}

/// Appends a name as a String (RFC 9651 §4.1.6); names are printable ASCII.
fn push_name(buffer: &mut ValueBuffer, policy: &Policy) {
    buffer.extend_from_slice(b"\"");
    for &byte in policy.name().as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            buffer.extend_from_slice(b"\\");
        }
        buffer.extend_from_slice(&[byte]);
    }
    buffer.extend_from_slice(b"\"");
}

/// Appends the partition key of a policy that has one, as a Byte Sequence (RFC 9651 §4.1.8).
fn push_partition(buffer: &mut ValueBuffer, policy: &Policy) {
    if let Some(partition) = policy.partition_key() {
        let digits = value::base64(partition);
        buffer.extend_from_slice(b";pk=:");
        buffer.extend_from_slice(&digits);
        buffer.extend_from_slice(&b"=="[..digits.len().wrapping_neg() % 4]);
        buffer.extend_from_slice(b":");
    }
}

/// The parameters `r` and `t`: the units that may be used within an effective window.
// Two words, which are returned in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AvailableQuota {
    units: u64,
    /// The window in seconds; 0 if no wait is known, and of calls in flight, which end at no known
    /// time.
    window: u64,
}

impl AvailableQuota {
    pub(super) fn new(decision: &Decision, quota: Option<Quota>) -> Self {
        let all_remaining = decision.remaining().unwrap_or(0);
        let remaining = all_remaining.min(MAX_INTEGER);
        let Some(quota) = &quota else {
            return Self {
                units: remaining,
                window: 0,
            };
        };
        let is_refused = matches!(
            decision.verdict(),
            Verdict::Refuse | Verdict::DryRun { admitted: false }
        );
        let window = if is_refused {
            let Some(wait) = decision.retry_after() else {
                return Self {
                    units: remaining,
                    window: 0,
                };
            };
            value::seconds(wait)
        } else {
            // Neither the time until `remaining` grows nor until it is full: a client that
            // uses `r` in every `t` must stay within the rate.
            let more_after = decision.more_after_units(all_remaining);
            value::seconds(more_after).max(value::seconds_for(remaining, quota))
        };
        let window = window.max(1);
        // An admission's `t` is long enough for its `r`, unless it was clamped.
        let units = if is_refused || window == MAX_INTEGER {
            remaining.min(value::units_within(window, quota))
        } else {
            remaining
        };
        Self { units, window }
    }

    /// Appends the parameters: `;r=50;t=30`.
    fn push(&self, buffer: &mut ValueBuffer) {
        buffer.extend_from_slice(b";r=");
        self.push_numbers(buffer);
    }

    /// Appends the values after the [`beginning`]: `50;t=30`.
    #[inline]
    fn push_numbers(&self, buffer: &mut ValueBuffer) {
        push_number(buffer, self.units);
        if self.window > 0 {
            buffer.extend_from_slice(b";t=");
            push_number(buffer, self.window);
        }
    }
}

/// The parts of `RateLimit` and `RateLimit-Policy` that are equal for all requests of a policy.
#[derive(Debug)]
pub(super) struct PolicyHeader {
    policy: Policy,
    limit: u64,
    quota: Option<Quota>,
    /// The beginning of `RateLimit`, up to the available units.
    beginning: Vec<u8>,
    /// The value of `RateLimit-Policy`.
    value: HeaderValue,
}

static HEADERS: Interner<PolicyHeader> = Interner::new();

impl PolicyHeader {
    #[cold]
    fn new(entry: &PolicyEntry<'_>) -> Option<Self> {
        let value = policy_list(std::slice::from_ref(entry))?;
        let text: &'static str = Box::leak(value.to_str().ok()?.into());
        Some(Self {
            policy: entry.policy.clone(),
            limit: entry.limit,
            quota: entry.quota,
            beginning: beginning(entry.policy),
            value: HeaderValue::from_static(text),
        })
    }

    #[inline]
    fn matches(&self, entry: &PolicyEntry<'_>) -> bool {
        self.policy.same_entry(entry.policy)
            && (self.limit, self.quota) == (entry.limit, entry.quota)
    }

    /// Returns the value of `RateLimit`.
    #[inline]
    pub(super) fn ratelimit(&self, available: AvailableQuota) -> Option<HeaderValue> {
        value::written(|buffer| {
            buffer.extend_from_slice(&self.beginning);
            available.push_numbers(buffer);
        })
    }

    /// Returns the value of `RateLimit-Policy`.
    #[inline]
    pub(super) fn ratelimit_policy(&self) -> HeaderValue {
        self.value.clone()
    }
}

/// The constant parts for a layer's only limit, set by its first decision.
#[derive(Debug, Default)]
pub(in crate::respond) struct CachedPolicyHeader(FirstInterned<PolicyHeader>);

impl CachedPolicyHeader {
    /// Returns the header of this entry; `None` for an entry that differs from the first, and when
    /// the cache is full.
    #[inline]
    pub(super) fn get(&self, entry: &PolicyEntry<'_>) -> Option<&'static PolicyHeader> {
        let matches = |header: &PolicyHeader| header.matches(entry);
        self.0.get(&HEADERS, matches, || PolicyHeader::new(entry))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::Timestamp;

    fn available(decision: Decision, quota: Quota) -> (u64, u64) {
        let available = AvailableQuota::new(&decision, Some(quota));
        (available.units, available.window)
    }

    #[test]
    fn a_clamped_wait_lowers_what_is_promised() {
        let slow = Quota::new(1, Quota::MAX_PERIOD);
        let decision = Decision::new(Verdict::Allow, Timestamp::default(), 1)
            .with_limit(std::num::NonZeroU64::MAX, slow)
            .with_remaining(1 << 40);
        assert_eq!(available(decision, slow), (108_420, MAX_INTEGER));
    }

    #[test]
    fn an_empty_bucket_waits_a_second_at_least() {
        let fast = Quota::per_second(1000);
        let decision = Decision::new(Verdict::Allow, Timestamp::default(), 1)
            .with_limit(std::num::NonZeroU64::MIN, fast)
            .with_more_after(Duration::from_millis(1));
        assert_eq!(available(decision, fast), (0, 1));
    }

    #[test]
    fn equal_policies_share_a_header_and_others_are_not_cached() {
        let decision = Decision::new(Verdict::Allow, Timestamp::default(), 1);
        let (api, other) = (Policy::new("api"), Policy::new("other"));
        let entry = |policy| PolicyEntry {
            policy,
            decision: &decision,
            limit: 100,
            quota: Some(Quota::per_minute(100)),
        };
        let (first, second) = (CachedPolicyHeader::default(), CachedPolicyHeader::default());
        let header = first.get(&entry(&api)).unwrap();
        assert_eq!(header.value, "\"api\";q=100;w=60");
        assert!(std::ptr::eq(header, second.get(&entry(&api)).unwrap()));
        assert!(first.get(&entry(&other)).is_none());
    }
}

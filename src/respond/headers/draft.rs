//! `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-08 to -11.
//!
//! Both are Lists (RFC 9651 §3.1) of Strings with parameters. Only this file writes them, and
//! only `stacked` reads them.

use http::HeaderValue;

use super::{fields::Entry, policy_header::PolicyHeader};
use crate::respond::{
    number,
    status_details::base64,
    text::{self, Buffer},
};
use crate::{
    decision::{Decision, Verdict},
    policy::{Policy, Unit},
    quota::Quota,
};

/// The fields of one policy with a kept header.
#[derive(Debug)]
pub(super) struct One {
    header: &'static PolicyHeader,
    standing: Standing,
}

impl One {
    #[inline]
    pub(super) fn new(header: &'static PolicyHeader, entry: &Entry<'_>) -> Self {
        let standing = Standing::of(entry.decision, &entry.quota);
        Self { header, standing }
    }

    /// Returns the value of `RateLimit`.
    #[inline]
    pub(super) fn standing(&self) -> Option<HeaderValue> {
        text::value(|buffer| {
            buffer.extend_from_slice(&self.header.name);
            self.standing.push(buffer);
        })
    }

    /// Returns the value of `RateLimit-Policy`.
    #[inline]
    pub(super) fn policy(&self) -> HeaderValue {
        self.header.value.clone()
    }
}

/// Returns the `RateLimit` of several policies: `"burst";r=50;t=30, …`.
pub(super) fn standings(entries: &[Entry<'_>]) -> Option<HeaderValue> {
    text::list(entries, |buffer, entry| {
        push_name(buffer, entry.policy);
        Standing::of(entry.decision, &entry.quota).push(buffer);
        push_partition(buffer, entry.policy);
    })
}

/// Returns the `RateLimit-Policy` of several policies: `"burst";q=100;w=60, …`.
pub(super) fn policies(entries: &[Entry<'_>]) -> Option<HeaderValue> {
    text::list(entries, |buffer, entry| {
        push_name(buffer, entry.policy);
        buffer.extend_from_slice(b";q=");
        number::push(buffer, entry.limit.min(number::MAX));
        if let Some(seconds) = number::window(entry.limit, &entry.quota) {
            buffer.extend_from_slice(b";w=");
            number::push(buffer, seconds);
        }
        buffer.extend_from_slice(match entry.policy.unit() {
            Unit::Requests => b"",
            Unit::ContentBytes => b";qu=\"content-bytes\"",
            Unit::ConcurrentRequests => b";qu=\"concurrent-requests\"",
        });
        push_partition(buffer, entry.policy);
    })
}

/// Returns the name of a policy as a String.
pub(super) fn name(policy: &Policy) -> Vec<u8> {
    let mut buffer = Buffer::new();
    push_name(&mut buffer, policy);
    buffer.into()
}

/// Appends a name as a String (RFC 9651 §4.1.6); names are printable ASCII.
fn push_name(buffer: &mut Buffer, policy: &Policy) {
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
fn push_partition(buffer: &mut Buffer, policy: &Policy) {
    if let Some(partition) = policy.partition_key() {
        let digits = base64(partition);
        buffer.extend_from_slice(b";pk=:");
        buffer.extend_from_slice(&digits);
        buffer.extend_from_slice(&b"=="[..digits.len().wrapping_neg() % 4]);
        buffer.extend_from_slice(b":");
    }
}

/// The units that may be used within a number of seconds.
// Two words, which are returned in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    available: u64,
    /// 0 if nothing is promised.
    within: u64,
}

impl Standing {
    fn of(decision: &Decision, quota: &Quota) -> Self {
        let numbers = decision.numbers();
        let remaining = numbers.remaining.min(number::MAX);
        let is_refused = decision.verdict() == Verdict::Refuse;
        let within = if is_refused {
            let Some(wait) = decision.retry_after() else {
                return Self {
                    available: remaining,
                    within: 0,
                };
            };
            number::seconds(wait)
        } else {
            // Neither the time until `remaining` grows nor until it is full: a client that
            // uses `r` in every `t` must stay within the rate.
            number::seconds(numbers.more_after).max(number::seconds_for(remaining, quota))
        };
        let within = within.max(1);
        // An admission's `t` is long enough for its `r`, unless it was clamped.
        let available = if is_refused || within == number::MAX {
            remaining.min(number::units_within(within, quota))
        } else {
            remaining
        };
        Self { available, within }
    }

    /// Appends the parameters: `;r=50;t=30`.
    #[inline]
    fn push(&self, buffer: &mut Buffer) {
        buffer.extend_from_slice(b";r=");
        number::push(buffer, self.available);
        if self.within > 0 {
            buffer.extend_from_slice(b";t=");
            number::push(buffer, self.within);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::Timestamp;

    fn standing(decision: Decision, quota: Quota) -> (u64, u64) {
        let standing = Standing::of(&decision, &quota);
        (standing.available, standing.within)
    }

    #[test]
    fn a_clamped_wait_lowers_what_is_promised() {
        let slow = Quota::new(1, Quota::MAX_PERIOD);
        let decision = Decision::new(Verdict::Allow, Timestamp::default(), 1)
            .with_limit(std::num::NonZeroU64::MAX, slow)
            .with_remaining(1 << 40);
        assert_eq!(standing(decision, slow), (108_420, number::MAX));
    }

    #[test]
    fn an_empty_bucket_waits_a_second_at_least() {
        let fast = Quota::per_second(1000);
        let decision = Decision::new(Verdict::Allow, Timestamp::default(), 1)
            .with_limit(std::num::NonZeroU64::MIN, fast)
            .with_more_after(Duration::from_millis(1));
        assert_eq!(standing(decision, fast), (0, 1));
    }
}

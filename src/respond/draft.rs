//! `RateLimit` and `RateLimit-Policy` as draft-ietf-httpapi-ratelimit-headers-08 to -11 have them.
//!
//! Lists (RFC 9651 §3.1) of Strings with parameters. Nothing outside of this file knows them: a
//! change of the draft is a change here.

use super::number::{self, Buffer};
use crate::{
    decision::{Decision, Verdict},
    outcome::{Policy, Unit},
    quota::Quota,
};

/// Writes the item of `RateLimit`: `"burst";r=50;t=30`.
pub(super) fn push_standing(
    buffer: &mut Buffer,
    policy: &Policy,
    decision: &Decision,
    quota: &Quota,
) {
    let Standing { available, within } = Standing::of(decision, quota);
    push_string(buffer, policy.name());
    buffer.extend_from_slice(b";r=");
    number::push(buffer, available);
    if let Some(seconds) = within {
        buffer.extend_from_slice(b";t=");
        number::push(buffer, seconds);
    }
}

/// Writes the item of `RateLimit-Policy`: `"burst";q=100;w=60`.
pub(super) fn push_policy(buffer: &mut Buffer, policy: &Policy, limit: u64, quota: &Quota) {
    push_string(buffer, policy.name());
    buffer.extend_from_slice(b";q=");
    number::push(buffer, limit.min(number::MAX));
    if let Some(seconds) = number::window(limit, quota) {
        buffer.extend_from_slice(b";w=");
        number::push(buffer, seconds);
    }
    buffer.extend_from_slice(match policy.unit() {
        Unit::Requests => b"",
        Unit::ContentBytes => b";qu=\"content-bytes\"",
        Unit::ConcurrentRequests => b";qu=\"concurrent-requests\"",
    });
}

/// Writes a String (RFC 9651 §4.1.6). A policy's name is printable ASCII.
fn push_string(buffer: &mut Buffer, text: &str) {
    buffer.push(b'"');
    for &byte in text.as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            buffer.push(b'\\');
        }
        buffer.push(byte);
    }
    buffer.push(b'"');
}

/// What may be used, and the seconds within which that is all. Without them nothing is promised.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    available: u64,
    within: Option<u64>,
}

impl Standing {
    fn of(decision: &Decision, quota: &Quota) -> Self {
        let remaining = decision.remaining().unwrap_or(0).min(number::MAX);
        let within = if decision.verdict() == Verdict::Refuse {
            decision.retry_after().map(number::seconds)
        } else {
            // Not the time until there is more, nor until all is back: whoever uses `r` in
            // every `t` must stay within the rate.
            let spread = number::seconds_for(remaining, quota);
            Some(number::seconds(decision.more_after()).max(spread))
        };
        let within = within.map(|seconds| seconds.max(1));
        let available = match within {
            // An admission's `t` is long enough for its `r`, unless it was clamped.
            Some(seconds) if decision.verdict() == Verdict::Refuse || seconds == number::MAX => {
                remaining.min(number::units_within(seconds, quota))
            }
            _ => remaining,
        };
        Self { available, within }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Timestamp;

    fn standing(decision: Decision, quota: Quota) -> (u64, Option<u64>) {
        let standing = Standing::of(&decision, &quota);
        (standing.available, standing.within)
    }

    #[test]
    fn a_clamped_wait_lowers_what_is_promised() {
        let slow = Quota::new(1, Quota::MAX_PERIOD);
        let decision = Decision::new(Verdict::Allow, Timestamp::default(), 1)
            .with_limit(std::num::NonZeroU64::MAX, slow)
            .with_remaining(1 << 40);
        assert_eq!(standing(decision, slow), (108_420, Some(number::MAX)));
    }

    #[test]
    fn an_empty_bucket_waits_a_second_at_least() {
        let fast = Quota::per_second(1000);
        let decision = Decision::new(Verdict::Allow, Timestamp::default(), 1)
            .with_limit(std::num::NonZeroU64::MIN, fast)
            .with_more_after(Duration::from_millis(1));
        assert_eq!(standing(decision, fast), (0, Some(1)));
    }
}

//! The older formats, which deployed clients read: draft-07, draft-06 and `X-RateLimit-*`.
//!
//! In these, `reset` counts down to a full quota.

use http::HeaderValue;

use super::{
    Headers, PolicyEntry,
    existing::{Nearness, nearness, seconds_from_now},
    value::{self, MAX_INTEGER, push_number},
};
use crate::decision::Decision;

/// The limit, the remaining units and the reset of one policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct LegacyNumbers {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) reset: u64,
}

impl LegacyNumbers {
    pub(super) fn new(decision: &Decision, headers: Headers) -> Self {
        let wait = decision.full_after();
        let reset = match headers {
            Headers::Legacy => value::unix_seconds_after(decision.at().as_nanos(), wait),
            _ => value::seconds(wait),
        };
        Self {
            limit: decision.announced_limit().unwrap_or(0).min(MAX_INTEGER),
            remaining: decision.remaining().unwrap_or(0).min(MAX_INTEGER),
            reset,
        }
    }

    pub(super) fn nearness(self) -> Nearness {
        nearness(self.remaining, Some(seconds_from_now(self.reset)))
    }

    /// Returns the Dictionary of draft-07: `limit=100, remaining=50, reset=5`.
    pub(super) fn dictionary(self) -> Option<HeaderValue> {
        value::written(|buffer| {
            for (key, number) in [
                (&b"limit="[..], self.limit),
                (b", remaining=", self.remaining),
                (b", reset=", self.reset),
            ] {
                buffer.extend_from_slice(key);
                push_number(buffer, number);
            }
        })
    }
}

/// Returns the `RateLimit-Policy` of draft-07: `100;w=60, …`.
pub(super) fn policy_list(entries: &[PolicyEntry<'_>]) -> Option<HeaderValue> {
    value::list(entries, |buffer, entry| {
        push_number(buffer, entry.limit.min(MAX_INTEGER));
        let window = |quota| value::window(entry.limit, &quota);
        if let Some(seconds) = entry.quota.and_then(window) {
            buffer.extend_from_slice(b";w=");
            push_number(buffer, seconds);
        }
    })
}

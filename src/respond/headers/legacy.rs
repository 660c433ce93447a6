//! The formats that deployed clients read: draft-07, draft-06 and `X-RateLimit-*`.
//!
//! In these, `reset` counts down to a full quota.

use http::{HeaderMap, HeaderValue};

use super::{
    entry::PolicyEntry,
    format::Headers,
    names::{
        RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET, X_RATELIMIT_LIMIT,
        X_RATELIMIT_REMAINING, X_RATELIMIT_RESET,
    },
};
use crate::{
    decision::Decision,
    quota::parse_number,
    respond::{
        header_value::{self, push_number},
        rounding::{self, MAX_INTEGER},
    },
};

/// The limit, the remaining units and the reset of one policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct LegacyNumbers {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) reset: u64,
}

impl LegacyNumbers {
    pub(super) fn new(decision: &Decision, headers: Headers) -> Self {
        let reset = match headers {
            Headers::Legacy => {
                rounding::unix_seconds_after(decision.at().as_nanos(), decision.reset_after())
            }
            _ => rounding::seconds(decision.reset_after()),
        };
        Self {
            limit: decision.announced_limit().unwrap_or(0).min(MAX_INTEGER),
            remaining: decision.remaining().unwrap_or(0).min(MAX_INTEGER),
            reset,
        }
    }

    /// Writes three fields, unless those of an inner layer leave less.
    pub(super) fn write(self, headers: &mut HeaderMap, prefixed: bool) {
        let [limit, remaining, reset] = if prefixed {
            [X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET]
        } else {
            [RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET]
        };
        let inner = headers
            .get(&remaining)
            .and_then(|value| parse_number(value.to_str().ok()?.trim()));
        if inner.is_some_and(|inner| inner <= self.remaining) {
            return;
        }
        let fields = [
            (limit, self.limit),
            (remaining, self.remaining),
            (reset, self.reset),
        ];
        for (name, number) in fields {
            if let Some(value) = header_value::number(number) {
                let _ = headers.try_insert(name, value);
            }
        }
    }

    /// Returns the Dictionary of draft-07: `limit=100, remaining=50, reset=5`.
    pub(super) fn dictionary(self) -> Option<HeaderValue> {
        header_value::written(|buffer| {
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
    header_value::list(entries, |buffer, entry| {
        push_number(buffer, entry.limit.min(MAX_INTEGER));
        if let Some(seconds) = rounding::window(entry.limit, &entry.quota) {
            buffer.extend_from_slice(b";w=");
            push_number(buffer, seconds);
        }
    })
}

/// Returns `remaining` of a Dictionary of draft-07.
pub(super) fn remaining_in(dictionary: &HeaderValue) -> Option<u64> {
    dictionary
        .to_str()
        .ok()?
        .split(',')
        .find_map(|member| member.trim().strip_prefix("remaining="))
        .and_then(parse_number)
}

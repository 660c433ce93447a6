//! The shapes that deployed clients read: draft-07, draft-06 and `X-RateLimit-*`.
//!
//! Here `reset` counts down to full.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{fields::Entry, format::Headers};
use crate::decision::Decision;
use crate::respond::{number, text};

pub(super) const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
pub(super) const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
pub(super) const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
pub(super) const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// One policy's numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) reset: u64,
}

impl Numbers {
    pub(super) fn of(decision: &Decision, headers: Headers) -> Self {
        let reset = match headers {
            Headers::Legacy => {
                number::second_after(decision.at().as_nanos(), decision.reset_after())
            }
            _ => number::seconds(decision.reset_after()),
        };
        Self {
            limit: decision.limit().unwrap_or(0).min(number::MAX),
            remaining: decision.remaining().unwrap_or(0).min(number::MAX),
            reset,
        }
    }

    /// Writes three fields, unless an inner layer's leave less.
    pub(super) fn write(self, headers: &mut HeaderMap, prefixed: bool) {
        let [limit, remaining, reset] = if prefixed {
            [X_LIMIT, X_REMAINING, X_RESET]
        } else {
            [LIMIT, REMAINING, RESET]
        };
        let others = headers
            .get(&remaining)
            .and_then(|value| crate::quota::parse_number(value.to_str().ok()?.trim()));
        if others.is_some_and(|others| others <= self.remaining) {
            return;
        }
        let fields = [
            (limit, self.limit),
            (remaining, self.remaining),
            (reset, self.reset),
        ];
        for (name, number) in fields {
            if let Some(value) = number::value(number) {
                let _ = headers.try_insert(name, value);
            }
        }
    }

    /// The Dictionary of draft-07: `limit=100, remaining=50, reset=5`.
    pub(super) fn dictionary(self) -> Option<HeaderValue> {
        text::value(|buffer| {
            for (key, number) in [
                (&b"limit="[..], self.limit),
                (b", remaining=", self.remaining),
                (b", reset=", self.reset),
            ] {
                buffer.extend_from_slice(key);
                number::push(buffer, number);
            }
        })
    }
}

/// The `RateLimit-Policy` of draft-07: `100;w=60, …`.
pub(super) fn policies(entries: &[Entry<'_>]) -> Option<HeaderValue> {
    text::list(entries, |buffer, entry| {
        number::push(buffer, entry.limit.min(number::MAX));
        if let Some(seconds) = number::window(entry.limit, &entry.quota) {
            buffer.extend_from_slice(b";w=");
            number::push(buffer, seconds);
        }
    })
}

/// `remaining` of a dictionary of draft-07.
pub(super) fn remaining_in(dictionary: &HeaderValue) -> Option<u64> {
    dictionary
        .to_str()
        .ok()?
        .split(',')
        .find_map(|member| member.trim().strip_prefix("remaining="))
        .and_then(crate::quota::parse_number)
}

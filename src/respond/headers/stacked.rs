//! Merges `RateLimit` and `RateLimit-Policy` with those of an inner layer.
//!
//! Clients distinguish limits by name, so each name has one member in each list.

use std::cmp::Reverse;

use http::{HeaderMap, HeaderValue};

use super::names::{RATELIMIT, RATELIMIT_POLICY};
use crate::quota::parse_number;

/// Adds a layer's `RateLimit` and `RateLimit-Policy` to those of inner layers.
///
/// Of members with one name and partition, both fields keep the one that leaves less, and the inner one if they leave the
/// same. Values that cannot be parsed are left as they are.
#[inline]
pub(super) fn add(headers: &mut HeaderMap, ratelimit: HeaderValue, policies: HeaderValue) {
    if headers.contains_key(RATELIMIT) {
        return merge(headers, ratelimit, policies);
    }
    // A map that is full (32768 fields) is left as it is.
    let _ = headers.try_append(RATELIMIT, ratelimit);
    let _ = headers.try_append(RATELIMIT_POLICY, policies);
}

#[cold]
fn merge(headers: &mut HeaderMap, ratelimit: HeaderValue, policies: HeaderValue) {
    let inner: Vec<HeaderValue> = headers.get_all(RATELIMIT).iter().cloned().collect();
    let inner: Vec<Member<'_>> = inner.iter().flat_map(members).collect();
    let added = ratelimit.clone();
    let (mut replaced, mut dropped) = (Vec::new(), Vec::new());
    for member in members(&added) {
        let mut same = inner
            .iter()
            .filter(|other| other.id() == member.id())
            .peekable();
        if same.peek().is_none() {
            continue;
        }
        if same.any(|other| other.nearness() <= member.nearness()) {
            dropped.push(member.id());
        } else {
            replaced.push(member.id());
        }
    }
    for (name, value) in [(RATELIMIT, ratelimit), (RATELIMIT_POLICY, policies)] {
        let values = headers.get_all(&name).iter();
        let values = values.filter_map(|value| without(value, &replaced));
        let values: Vec<_> = values.chain(without(&value, &dropped)).collect();
        headers.remove(&name);
        for value in values {
            let _ = headers.try_append(&name, value);
        }
    }
}

/// Returns a value without the members of these names; `None` if no member remains.
fn without(value: &HeaderValue, ids: &[MemberId<'_>]) -> Option<HeaderValue> {
    let all: Vec<_> = members(value).collect();
    let left: Vec<_> = all
        .iter()
        .filter(|member| !ids.contains(&member.id()))
        .collect();
    if left.len() == all.len() {
        return Some(value.clone());
    }
    let left: Vec<_> = left.iter().map(|member| member.text).collect();
    // Never an error: all of it is part of a valid value.
    HeaderValue::from_str(&left.join(", "))
        .ok()
        .filter(|_| !left.is_empty())
}

/// The name of a member and its partition key.
type MemberId<'a> = (&'a str, Option<&'a str>);

/// A member of a List: a String with parameters (RFC 9651 §3.1), as in `"burst";r=50;t=30`.
struct Member<'a> {
    text: &'a str,
}

impl<'a> Member<'a> {
    fn id(&self) -> MemberId<'a> {
        let name = split(self.text, b';').next().unwrap_or_default();
        (name.trim(), self.parameter("pk"))
    }

    /// Orders members by how near to exhaustion they are: fewer units first, then the longer window.
    fn nearness(&self) -> (u64, Reverse<u64>) {
        let number = |name| self.parameter(name).and_then(parse_number);
        let (available, window) = (number("r"), number("t"));
        (
            available.unwrap_or(u64::MAX),
            Reverse(window.unwrap_or(u64::MAX)),
        )
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        let parameters = split(self.text, b';').skip(1);
        let mut named = parameters.filter_map(|parameter| parameter.trim().split_once('='));
        named.find(|(is, _)| *is == name).map(|(_, value)| value)
    }
}

fn members(value: &HeaderValue) -> impl Iterator<Item = Member<'_>> {
    let members = split(value.to_str().unwrap_or_default(), b',');
    let members = members.map(|text| Member { text: text.trim() });
    members.filter(|member| !member.text.is_empty())
}

/// Splits a text at separators outside of Strings.
fn split(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut is_string, mut is_escaped) = (false, false);
        let end = text.bytes().position(|byte| {
            if byte == b'"' && !is_escaped {
                is_string = !is_string;
            }
            is_escaped = is_string && byte == b'\\' && !is_escaped;
            byte == separator && !is_string
        });
        rest = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

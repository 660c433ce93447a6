//! The fields of layers that are stacked: one entry for each name, as clients tell limits apart by it.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::quota::parse_number;

/// A field that is a list of Strings with parameters, and what this layer adds to it.
pub(super) type Field = (HeaderName, HeaderValue);

/// Adds a layer's `RateLimit` and `RateLimit-Policy` to those of inner layers.
///
/// Of entries of one name and partition, the nearest to exhaustion is kept, in both fields: the one that leaves less, and
/// the inner one where they leave the same. What cannot be read is left as it is.
#[inline]
pub(super) fn add(headers: &mut HeaderMap, standing: Field, policy: Field) {
    if headers.contains_key(&standing.0) {
        return merge(headers, standing, policy);
    }
    // A map too full to take a field (32768 of them) is left as it is.
    for (name, value) in [standing, policy] {
        let _ = headers.try_append(name, value);
    }
}

#[cold]
fn merge(headers: &mut HeaderMap, standing: Field, policy: Field) {
    let inner: Vec<HeaderValue> = headers.get_all(&standing.0).iter().cloned().collect();
    let inner: Vec<Entry<'_>> = inner.iter().flat_map(entries).collect();
    let added = standing.1.clone();
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for entry in entries(&added) {
        let mut same = inner
            .iter()
            .filter(|other| other.id() == entry.id())
            .peekable();
        if same.peek().is_none() {
            continue;
        }
        if same.any(|other| other.nearness() <= entry.nearness()) {
            dropped.push(entry.id());
        } else {
            kept.push(entry.id());
        }
    }
    for (name, value) in [standing, policy] {
        let values = headers.get_all(&name).iter();
        let values = values.filter_map(|value| without(value, &kept));
        let values: Vec<_> = values.chain(without(&value, &dropped)).collect();
        headers.remove(&name);
        for value in values {
            let _ = headers.try_append(&name, value);
        }
    }
}

/// A value without the entries of these names; nothing where no other is left.
fn without(value: &HeaderValue, ids: &[Id<'_>]) -> Option<HeaderValue> {
    let all: Vec<_> = entries(value).collect();
    let left: Vec<_> = all
        .iter()
        .filter(|entry| !ids.contains(&entry.id()))
        .collect();
    if left.len() == all.len() {
        return Some(value.clone());
    }
    let left: Vec<_> = left.iter().map(|entry| entry.text).collect();
    // What was a value is one without some of its entries.
    HeaderValue::from_str(&left.join(", "))
        .ok()
        .filter(|_| !left.is_empty())
}

/// What tells the entries of a list apart: their name, and whose share of it they tell.
type Id<'a> = (&'a str, Option<&'a str>);

/// A String with parameters (RFC 9651 §3.1): `"burst";r=50;t=30`.
struct Entry<'a> {
    text: &'a str,
}

impl<'a> Entry<'a> {
    fn id(&self) -> Id<'a> {
        let name = split(self.text, b';').next().unwrap_or_default();
        (name.trim(), self.parameter("pk"))
    }

    /// What it leaves, the less the nearer; and within how long, the longer the nearer.
    fn nearness(&self) -> (u64, std::cmp::Reverse<u64>) {
        let number = |name| self.parameter(name).and_then(parse_number);
        let (available, within) = (number("r"), number("t"));
        (
            available.unwrap_or(u64::MAX),
            std::cmp::Reverse(within.unwrap_or(u64::MAX)),
        )
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        let parameters = split(self.text, b';').skip(1);
        let mut named = parameters.filter_map(|parameter| parameter.trim().split_once('='));
        named.find(|(is, _)| *is == name).map(|(_, value)| value)
    }
}

fn entries(value: &HeaderValue) -> impl Iterator<Item = Entry<'_>> {
    let members = split(value.to_str().unwrap_or_default(), b',');
    let members = members.map(|text| Entry { text: text.trim() });
    members.filter(|entry| !entry.text.is_empty())
}

/// Splits at a separator that stands in no String.
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

//! The log of failed look-ups, without tokens.

use std::{error::Error, sync::Mutex};

use crate::{locks::lock, log::OnceAMinute, time::Timestamp};

/// Logs failed look-ups, at most one in a minute.
#[derive(Default)]
pub(super) struct LookUpLog(Mutex<OnceAMinute>);

impl LookUpLog {
    /// Logs a failure, unless another one was logged within the last minute.
    pub(super) fn write(
        &self,
        error: &(dyn Error + 'static),
        token: &str,
        failures: u64,
        passes: bool,
        now: Timestamp,
    ) {
        let mut line = lock(&self.0);
        let unlogged = line.record(now);
        // A subscriber may be slow.
        drop(line);
        let Some(unlogged) = unlogged else {
            return;
        };
        let consequence = match passes {
            true => "pass without a subject, as `fail_open` asks",
            false => "are refused with 503",
        };
        tracing::error!(
            cause = cause(error, token),
            failures,
            unlogged,
            "a token could not be looked up; such requests {consequence} (logged once a minute; `failures` counts all)"
        );
    }
}

/// Returns the text of an error and of its sources, without the token.
fn cause(error: &(dyn Error + 'static), token: &str) -> String {
    /// The maximum length of the text that is searched for the token, and of the text that is
    /// logged, in characters.
    const MAX_TEXT: usize = 16_384;
    const MAX_CAUSE: usize = 1024;
    let mut cause = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !cause.contains(&text) {
            cause = format!("{cause}: {text}");
        }
        source = error.source();
    }
    let cause: String = cause.chars().take(MAX_TEXT).collect();
    without(&cause, token).chars().take(MAX_CAUSE).collect()
}

/// Replaces a token in a text by `<token>`.
///
/// Also if some of its characters are percent-encoded, because HTTP clients quote URLs in errors,
/// or if its end is cut off.
fn without(text: &str, token: &str) -> String {
    /// The minimum number of characters that are replaced. Fewer reveal nothing.
    const LEAST: usize = 8;
    if token.is_empty() {
        return text.to_owned();
    }
    let text = text.replace(token, "<token>");
    let (mut cleared, mut rest) = (String::with_capacity(text.len()), &*text);
    while let Some(first) = rest.chars().next() {
        let (length, matched) = matching(rest.as_bytes(), token.as_bytes());
        if matched >= LEAST.min(token.len()) {
            cleared.push_str("<token>");
            rest = &rest[length..];
        } else {
            cleared.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    cleared
}

/// Returns the lengths of the common prefix of a text and of a token of ASCII characters, in bytes:
/// in the text, and in the token.
fn matching(text: &[u8], token: &[u8]) -> (usize, usize) {
    let mut at = 0;
    for (n, byte) in token.iter().enumerate() {
        let length = match text[at..] {
            [b'%', ref digits @ ..] => encoded(digits, *byte).or((*byte == b'%').then_some(1)),
            [first, ..] => (first == *byte).then_some(1),
            [] => None,
        };
        let Some(length) = length else {
            return (at, n);
        };
        at += length;
    }
    (at, token.len())
}

/// Returns the length of a percent-encoding of `byte`, in bytes; `None` if it encodes another byte.
///
/// `digits` is the text after the first `%`. A `%` may itself be encoded, as `%25`.
fn encoded(digits: &[u8], byte: u8) -> Option<usize> {
    let value = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
    let mut at = 0;
    while let Some(two) = digits.get(at..at + 2) {
        match value(two) {
            Some(found) if found == byte => return Some(1 + at + 2),
            Some(b'%') => at += 2,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn a_token_is_taken_out_in_each_form() {
        const TOKEN: &str = "a+b/c==~tok3n";
        for form in [
            TOKEN,
            "a%2Bb%2Fc%3D%3D~tok3n",
            "a%2bb%2fc%3d%3d%7etok3n",
            "%61%2B%62%2F%63%3D%3D%7E%74%6F%6B%33%6E",
            "a%252Bb%252Fc%253D%253D~tok3n",
            "a%25252Bb%2Fc==~tok3n",
        ] {
            let cleared = without(&format!("GET /?token={form}&x=1: timed out é"), TOKEN);
            assert_eq!(cleared, "GET /?token=<token>&x=1: timed out é", "{form}");
        }
        assert_eq!(without("token=a%2Bb%2Fc%3D", TOKEN), "token=a%2Bb%2Fc%3D");
        assert_eq!(without("token=a%2Bb%2Fc%3D%3D~to", TOKEN), "token=<token>");
        assert_eq!(
            without("aaaa a", "a"),
            "<token><token><token><token> <token>"
        );
        assert_eq!(without("% %2 %zz é%", TOKEN), "% %2 %zz é%");
        assert_eq!(without("nothing", ""), "nothing");
    }
}

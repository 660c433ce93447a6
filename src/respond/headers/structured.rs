//! A parser of structured fields (RFC 9651), as far as rate limit fields have them.
//!
//! It is strict: it accepts only valid fields. It rejects Inner Lists, Dates and Display Strings,
//! because no rate limit field has them.

use std::fmt;

/// A member of a List, with its parameters.
#[derive(Clone, Debug)]
pub(super) struct Member<'a> {
    /// The member with its parameters, as it was sent.
    pub(super) text: &'a str,
    pub(super) value: BareItem<'a>,
    parameters: Vec<(&'a str, BareItem<'a>)>,
}

impl<'a> Member<'a> {
    /// Returns the value of a parameter; the last one, if there are several of its name.
    pub(super) fn parameter(&self, name: &str) -> Option<BareItem<'a>> {
        let named = self.parameters.iter().rev().find(|(key, _)| *key == name);
        named.map(|(_, value)| *value)
    }

    /// Returns the value of a parameter that is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.parameter(name)?.number()
    }
}

/// A value without parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BareItem<'a> {
    /// An Integer of at least 0.
    Number(u64),
    /// A Decimal of at least 0, rounded up.
    Decimal(u64),
    /// A String, as it was sent, with its quotes.
    String(&'a str),
    /// Any other value, as it was sent.
    Other(&'a str),
}

impl fmt::Display for BareItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) | Self::Decimal(number) => number.fmt(f),
            Self::String(text) | Self::Other(text) => f.write_str(text),
        }
    }
}

impl<'a> BareItem<'a> {
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the number, also of a Decimal.
    pub(super) fn rounded_up(self) -> Option<u64> {
        match self {
            Self::Number(number) | Self::Decimal(number) => Some(number),
            Self::String(_) | Self::Other(_) => None,
        }
    }
}

/// Returns the members of a List (RFC 9651 §4.2.1); `None` if it is invalid or empty.
pub(super) fn list(text: &str) -> Option<Vec<Member<'_>>> {
    members(text, |cursor| {
        let start = cursor.at;
        let value = cursor.bare_item()?;
        cursor.with_parameters(start, value)
    })
}

/// Returns the members of a Dictionary (RFC 9651 §4.2.2); `None` if it is invalid or empty.
pub(super) fn dictionary(text: &str) -> Option<Vec<(&str, Member<'_>)>> {
    members(text, |cursor| {
        let (key, start) = (cursor.key()?, cursor.at);
        let value = cursor.value_of_key()?;
        Some((key, cursor.with_parameters(start, value)?))
    })
}

fn members<'a, T>(text: &'a str, read: impl Fn(&mut Cursor<'a>) -> Option<T>) -> Option<Vec<T>> {
    let text = text.trim_matches(' ');
    let (mut cursor, mut members) = (Cursor { text, at: 0 }, Vec::new());
    loop {
        members.push(read(&mut cursor)?);
        if !cursor.next_member()? {
            return Some(members);
        }
    }
}

/// A text with the position up to which it is parsed.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Reads bytes for which `is_part` is true.
    fn take(&mut self, is_part: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(&is_part) {
            self.at += 1;
        }
        self.since(start)
    }

    /// Returns what was read since `start`. All bytes that are read are ASCII.
    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Reads the comma before another member; returns `false` at the end of the text.
    fn next_member(&mut self) -> Option<bool> {
        let is_space = |byte| matches!(byte, b' ' | b'\t');
        self.take(is_space);
        if self.peek().is_none() {
            return Some(false);
        }
        let is_comma = self.eat(b',');
        self.take(is_space);
        // A comma at the end is invalid, and so is another byte between two members.
        (is_comma && self.peek().is_some()).then_some(true)
    }

    fn key(&mut self) -> Option<&'a str> {
        let starts = self.peek()?;
        if !matches!(starts, b'a'..=b'z' | b'*') {
            return None;
        }
        Some(
            self.take(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*')),
        )
    }

    /// Reads the parameters of a member that began at `start`.
    fn with_parameters(&mut self, start: usize, value: BareItem<'a>) -> Option<Member<'a>> {
        let mut parameters = Vec::new();
        while self.eat(b';') {
            self.take(|byte| byte == b' ');
            parameters.push((self.key()?, self.value_of_key()?));
        }
        Some(Member {
            text: self.since(start),
            value,
            parameters,
        })
    }

    fn value_of_key(&mut self) -> Option<BareItem<'a>> {
        match self.eat(b'=') {
            true => self.bare_item(),
            false => Some(BareItem::Other("")),
        }
    }

    fn bare_item(&mut self) -> Option<BareItem<'a>> {
        let start = self.at;
        match self.peek()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => {
                self.string()?;
                Some(BareItem::String(self.since(start)))
            }
            b':' => {
                self.at += 1;
                let digits = self.take(is_base64);
                (self.eat(b':') && is_whole_base64(digits))
                    .then(|| BareItem::Other(self.since(start)))
            }
            b'?' => {
                self.at += 1;
                (self.eat(b'0') || self.eat(b'1')).then(|| BareItem::Other(self.since(start)))
            }
            b'A'..=b'Z' | b'a'..=b'z' | b'*' => {
                self.take(is_token);
                Some(BareItem::Other(self.since(start)))
            }
            _ => None,
        }
    }

    /// Reads an Integer of up to 15 digits, or a Decimal of up to 12 digits and 3 after the point.
    fn number(&mut self) -> Option<BareItem<'a>> {
        let start = self.at;
        let is_negative = self.eat(b'-');
        let is_digit = |byte: u8| byte.is_ascii_digit();
        let whole = self.take(is_digit);
        let fraction = self.eat(b'.').then(|| self.take(is_digit));
        let is_valid = match fraction {
            None => matches!(whole.len(), 1..=15),
            Some(fraction) => matches!((whole.len(), fraction.len()), (1..=12, 1..=3)),
        };
        let number: u64 = whole.parse().ok().filter(|_| is_valid)?;
        Some(match fraction {
            _ if is_negative => BareItem::Other(self.since(start)),
            None => BareItem::Number(number),
            Some(fraction) => {
                let is_above = fraction.bytes().any(|digit| digit != b'0');
                BareItem::Decimal(number + u64::from(is_above))
            }
        })
    }

    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            self.take(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'));
            if self.eat(b'"') {
                return Some(());
            }
            if !self.eat(b'\\') || !(self.eat(b'"') || self.eat(b'\\')) {
                return None;
            }
        }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

/// Returns `true` for digits of whole bytes, with their padding or without any.
fn is_whole_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    !digits.contains('=')
        && digits.len() % 4 != 1
        && (padding == 0 || text.len().is_multiple_of(4) && padding < 3)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Texts of the bytes that matter, so that many of them are valid.
    fn texts() -> impl Strategy<Value = String> {
        let pieces = [
            "\"",
            "\\",
            "a",
            "b*",
            "-",
            ".",
            "1",
            "007",
            "999999999999999",
            "?1",
            ":",
            "AA==",
            "=",
            ";",
            "; ",
            ",",
            " , ",
            "\t",
            "(",
            ")",
            "@1",
            "%\"x\"",
            "\"x\"",
            "\"y\";r=1",
            ":aGk=:",
            "r=5",
            "q=0.5",
            "é",
        ];
        prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..9)
            .prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// Lists that are read are valid, and valid ones are read unless they have a type that is
        /// left out.
        #[test]
        fn it_agrees_with_the_sfv_crate(text in texts()) {
            let left_out = text.contains(['(', '@', '%']);
            let theirs = sfv::Parser::new(&text).parse::<sfv::List>();
            match list(&text) {
                Some(ours) => prop_assert_eq!(theirs.unwrap().len(), ours.len()),
                None => prop_assert!(left_out || theirs.is_err() || theirs.unwrap().is_empty()),
            }
            let theirs = sfv::Parser::new(&text).parse::<sfv::Dictionary>();
            match dictionary(&text) {
                // It keeps one member of each key.
                Some(ours) => prop_assert!(theirs.unwrap().len() <= ours.len()),
                None => prop_assert!(left_out || theirs.is_err() || theirs.unwrap().is_empty()),
            }
        }
    }

    #[test]
    fn members_have_their_values_and_texts() {
        let items = list(r#""a\"b;, ";r=5;t=007;x, 12;w=60 , 1.25;pk=:aGk=:"#).unwrap();
        let values: Vec<_> = items.iter().map(|item| item.value).collect();
        assert_eq!(
            values,
            [
                BareItem::String(r#""a\"b;, ""#),
                BareItem::Number(12),
                BareItem::Decimal(2)
            ]
        );
        assert_eq!(items[0].text, r#""a\"b;, ";r=5;t=007;x"#);
        assert_eq!(
            (items[0].number("r"), items[0].number("t")),
            (Some(5), Some(7))
        );
        assert_eq!(items[2].parameter("pk"), Some(BareItem::Other(":aGk=:")));
        // The last one counts.
        assert_eq!(list("1;w=5;w=6").unwrap()[0].number("w"), Some(6));
        assert_eq!(list("1;w=-5").unwrap()[0].number("w"), None);
    }
}

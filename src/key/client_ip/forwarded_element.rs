//! Parses the elements of `Forwarded`, from the right.

use std::net::IpAddr;

use super::node;

/// Returns the address in the `for` parameter of an element, which must have exactly one.
pub(super) fn client(element: &[u8]) -> Option<IpAddr> {
    let mut client = None;
    for pair in Parts::new(element, b';') {
        let pair = node::trim(pair?);
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
        let mut node = Node::default();
        unquote(&value[1..], |byte| node.push(byte))?;
        if name.eq_ignore_ascii_case(b"for") {
            let address = node::address(node.text()?)?;
            if client.replace(address).is_some() {
                return None;
            }
        } else if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
            return None;
        }
    }
    client
}

/// Iterates over the text between separators outside of quotes, from the right.
///
/// From the right, a client's text on the left cannot change how the elements of the proxies are split: no open quote
/// reaches into them. `None` is a part with an unmatched quote; it is the last one.
pub(super) struct Parts<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Parts<'a> {
    pub(super) fn new(text: &'a [u8], separator: u8) -> Self {
        Self {
            rest: Some(text),
            separator,
        }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest.take()?;
        let mut at = text.len();
        while let Some((byte, before)) = text[..at].split_last() {
            at = before.len();
            if *byte == self.separator {
                self.rest = Some(before);
                return Some(Some(&text[at + 1..]));
            }
            if *byte == b'"' {
                match opening_quote(before) {
                    Some(opening) => at = opening,
                    None => return Some(None),
                }
            }
        }
        Some(Some(text))
    }
}

/// Returns the index of the quote that opens the string at the end of `text`: the last one that is not escaped.
fn opening_quote(text: &[u8]) -> Option<usize> {
    let mut end = text.len();
    loop {
        end = text[..end].iter().rposition(|byte| *byte == b'"')?;
        let escapes = text[..end].iter().rev().take_while(|byte| **byte == b'\\');
        if escapes.count() % 2 == 0 {
            return Some(end);
        }
    }
}

/// Passes the bytes of a token or a quoted string (RFC 9110 §5.6.4) to `each`; `None` if the value is neither.
fn unquote(value: &[u8], mut each: impl FnMut(u8)) -> Option<()> {
    let Some(quoted) = value.strip_prefix(b"\"") else {
        let good = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\".contains(byte);
        if value.is_empty() || !value.iter().all(good) {
            return None;
        }
        value.iter().copied().for_each(each);
        return Some(());
    };
    let mut bytes = quoted.strip_suffix(b"\"")?.iter().copied();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'"' => return None,
            b'\\' => bytes.next()?,
            byte => byte,
        };
        if !(byte.is_ascii_graphic() || byte == b' ' || byte == b'\t') {
            return None;
        }
        each(byte);
    }
    Some(())
}

/// The text of a node without its escapes.
struct Node {
    bytes: [u8; node::MAX_LENGTH],
    len: usize,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            bytes: [0; node::MAX_LENGTH],
            len: 0,
        }
    }
}

impl Node {
    fn push(&mut self, byte: u8) {
        if let Some(free) = self.bytes.get_mut(self.len) {
            *free = byte;
        }
        self.len += 1;
    }

    /// Returns `None` if the text is too long for an address.
    fn text(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
    }
}

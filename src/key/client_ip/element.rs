//! The elements of `Forwarded`, read from the right.

use std::net::IpAddr;

use super::node;

/// The address in the one `for` parameter of an element.
pub(super) fn client(element: &[u8]) -> Option<IpAddr> {
    let mut client = None;
    for pair in Parts::of(element, b';') {
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

/// Text between separators outside of quotes, from the right.
///
/// Read from the right, what a client wrote cannot change how the elements behind it, which the
/// proxies wrote, are cut: no quote of the client's stays open across them. `None` is
/// a part whose quote was never opened; it is the last one.
pub(super) struct Parts<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Parts<'a> {
    pub(super) fn of(text: &'a [u8], separator: u8) -> Self {
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

/// The quote that opens the string which ends behind `text`: the last one that is not escaped.
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

/// Hands on the bytes of a value, a token or a quoted string (RFC 9110 §5.6.4); `None` if it
/// is neither.
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

/// The text of a node, without its escapes.
struct Node {
    bytes: [u8; node::LONGEST],
    len: usize,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            bytes: [0; node::LONGEST],
            len: 0,
        }
    }
}

impl Node {
    fn push(&mut self, byte: u8) {
        if let Some(room) = self.bytes.get_mut(self.len) {
            *room = byte;
        }
        self.len += 1;
    }

    /// `None` if it is too long for an address.
    fn text(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
    }
}

//! Parses the elements of `X-Forwarded-For` and of `Forwarded`, from the right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, HeaderName, header::FORWARDED};

/// Returns the addresses in a header like `X-Forwarded-For`, from the right, over all of its lines.
/// `None` is an element that is not an address.
pub(super) fn forwarded_for<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Option<IpAddr>> + use<'a> {
    let lines = headers.get_all(name).into_iter().rev();
    lines
        .flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','))
        .map(|element| address(trim(element)))
}

/// Returns the addresses in `Forwarded` (RFC 7239 §4), from the right, over all of its lines.
/// `None` is an element without one address.
pub(super) fn forwarded(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> + use<'_> {
    let lines = headers.get_all(FORWARDED).into_iter().rev();
    lines
        .flat_map(|line| SplitFromRight::new(line.as_bytes(), b','))
        .map(|element| client_of(element?))
}

/// Returns the address in the `for` parameter of an element, which must have exactly one.
fn client_of(element: &[u8]) -> Option<IpAddr> {
    let mut client = None;
    for pair in SplitFromRight::new(element, b';') {
        let pair = trim(pair?);
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
        let mut node = NodeText::default();
        unquote(&value[1..], |byte| node.push(byte))?;
        if name.eq_ignore_ascii_case(b"for") {
            let address = address(node.text()?)?;
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
/// From the right, because a quote that a client leaves open on the left must not change how the
/// elements of the proxies are split. `None` is text with an unmatched quote, and the last item.
struct SplitFromRight<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> SplitFromRight<'a> {
    fn new(text: &'a [u8], separator: u8) -> Self {
        Self {
            rest: Some(text),
            separator,
        }
    }
}

impl<'a> Iterator for SplitFromRight<'a> {
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

/// Returns the index of the quote that opens the string at the end of `text`: the last one that is
/// not escaped.
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

/// Passes the bytes of a token or a quoted string (RFC 9110 §5.6.4) to `each`; `None` if the value
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

/// The text of a node (RFC 7239 §6) without its escapes.
struct NodeText {
    bytes: [u8; MAX_LENGTH],
    len: usize,
}

impl Default for NodeText {
    fn default() -> Self {
        Self {
            bytes: [0; MAX_LENGTH],
            len: 0,
        }
    }
}

impl NodeText {
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

/// The maximum length of an address with brackets and a port, with some reserve.
const MAX_LENGTH: usize = 64;

/// Returns the address in `1.2.3.4`, `1.2.3.4:5678`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:443`.
///
/// Returns `None` for anything else: `unknown`, `_obfuscated`, host names, zones, bytes that are
/// not text. The port may be obfuscated (RFC 7239 §6).
fn address(text: &[u8]) -> Option<IpAddr> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        if !rest.is_empty() {
            check_port(rest.strip_prefix(':')?)?;
        }
        return address.parse().ok().map(Ipv6Addr::into);
    }
    match text.split_once(':') {
        None => text.parse().ok().map(Ipv4Addr::into),
        // Two colons: an IPv6 address without brackets, which has no port.
        Some((_, rest)) if rest.contains(':') => text.parse().ok().map(Ipv6Addr::into),
        Some((address, port)) => {
            check_port(port)?;
            address.parse().ok().map(Ipv4Addr::into)
        }
    }
}

fn check_port(port: &str) -> Option<()> {
    let good = match port.strip_prefix('_') {
        Some(name) => {
            let obfuscated = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !name.is_empty() && name.bytes().all(obfuscated)
        }
        None => (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit()),
    };
    good.then_some(())
}

/// Removes the blanks that HTTP lists allow around a member (RFC 9110 §5.6.3).
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

//! Parses an address as proxies write it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The maximum length of an address with brackets and a port, with some reserve.
pub(super) const MAX_LENGTH: usize = 64;

/// Returns the address in `1.2.3.4`, `1.2.3.4:5678`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:443`.
///
/// Returns `None` for anything else: `unknown`, `_obfuscated`, host names, zones, bytes that are
/// not text. The port may be obfuscated (RFC 7239 §6).
pub(super) fn address(text: &[u8]) -> Option<IpAddr> {
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
pub(super) fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

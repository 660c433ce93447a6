//! Keys in the form that memcached accepts.

use std::borrow::Cow;

/// Limit of a key in bytes (memcached `protocol.txt`, "Keys").
const MAX_LENGTH: usize = 250;

/// First byte of digested keys; a key that starts with it is digested too.
const DIGEST_MARK: u8 = b'~';

/// Returns the key, or `~` and its BLAKE3 digest of 128 bits in hexadecimal digits if it is longer than 250 bytes, or contains
/// spaces, control characters or bytes beyond ASCII.
pub(super) fn wire_key(key: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = !key.is_empty()
        && key.len() <= MAX_LENGTH
        && key[0] != DIGEST_MARK
        // Without an early exit, so that it is vectorized.
        && key.iter().fold(true, |all, byte| all & byte.is_ascii_graphic());
    if is_plain {
        return Cow::Borrowed(key);
    }
    let digest = blake3::hash(key).to_hex();
    let mut name = Vec::with_capacity(33);
    name.push(DIGEST_MARK);
    name.extend_from_slice(&digest.as_bytes()[..32]);
    Cow::Owned(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_digested(key: &[u8]) -> bool {
        let name = wire_key(key);
        assert!(name.len() <= MAX_LENGTH && name.iter().all(u8::is_ascii_graphic));
        name != key
    }

    #[test]
    fn valid_keys_are_unchanged() {
        assert!(!is_digested(b"tollgate:2:{a=b}:api"));
        assert!(!is_digested(&[b'k'; 250]));
        for key in [
            &[b'k'; 251][..],
            b"",
            b"a b",
            b"a\r\nflush_all",
            b"a\0b",
            b"\x7f",
            b"M\xc3\xbcller",
        ] {
            assert!(is_digested(key), "{key:?}");
        }
    }

    /// No key can be chosen so that it equals the digest of another one.
    #[test]
    fn keys_do_not_collide_with_digests() {
        let long = [b'k'; 300];
        let name = wire_key(&long).into_owned();
        assert_eq!(name.len(), 33);
        assert_ne!(wire_key(&name), name);
        assert_ne!(wire_key(&[b'k'; 301]), name);
    }
}

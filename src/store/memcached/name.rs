//! Under which name a key lies in the server.

use std::borrow::Cow;

/// The longest name, in bytes (memcached `protocol.txt`, "Keys").
const LONGEST: usize = 250;

/// What the names of digests begin with; a key of its own that begins so becomes a digest too.
const DIGESTED: u8 = b'~';

/// The key itself, or `~` and its BLAKE3 digest of 128 bits in hexadecimal digits: where it is longer than 250 bytes, or
/// holds spaces, control characters, or anything beyond ASCII.
pub(super) fn of(key: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = !key.is_empty()
        && key.len() <= LONGEST
        && key[0] != DIGESTED
        // All are looked at, many at once.
        && key.iter().fold(true, |all, byte| all & byte.is_ascii_graphic());
    if is_plain {
        return Cow::Borrowed(key);
    }
    let digest = blake3::hash(key).to_hex();
    let mut name = Vec::with_capacity(33);
    name.push(DIGESTED);
    name.extend_from_slice(&digest.as_bytes()[..32]);
    Cow::Owned(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_digested(key: &[u8]) -> bool {
        let name = of(key);
        assert!(name.len() <= LONGEST && name.iter().all(u8::is_ascii_graphic));
        name != key
    }

    #[test]
    fn a_name_is_the_key_where_it_can_be() {
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

    /// Nobody can choose a key that lies where the digest of another one does.
    #[test]
    fn no_two_keys_have_one_name() {
        let long = [b'k'; 300];
        let name = of(&long).into_owned();
        assert_eq!(name.len(), 33);
        assert_ne!(of(&name), name);
        assert_ne!(of(&[b'k'; 301]), name);
    }
}

//! States as bytes, for stores that keep bytes.
//!
//! The bytes name their form: one byte for algorithm and version, then LEB128 numbers. So a store
//! can tell a state of another release from its own.

use crate::{error::Error, time::Timestamp};

/// A state that can be encoded as bytes. The states of all rules of this crate, and of pairs of
/// such rules, have it.
///
/// The first byte contains the algorithm and the version of the encoding. Bytes of an unknown
/// version decode to an error, never to a wrong state; for a newer version
/// [`Error::is_newer_state`] returns `true`. Numbers are LEB128 (as in DWARF 5, §7.6), so small
/// numbers are short.
///
/// ```
/// use tollgate::{Cost, Timestamp, TokenBucket};
/// use tollgate::algorithm::{Algorithm, Codec};
///
/// type State = <TokenBucket as Algorithm>::State;
///
/// let (rule, mut state) = (TokenBucket::per_second(10), None);
/// rule.step(&mut state, Timestamp::from_nanos(1_000_000_000), Cost::ONE);
/// let bytes = state.as_ref().unwrap().to_bytes();
/// assert_eq!(State::from_bytes(&bytes)?, state.unwrap());
/// assert!(State::from_bytes(&bytes[1..]).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "the state `{Self}` cannot be kept as bytes",
    note = "the states of the rules in `tollgate::algorithm` can; for a rule of your own implement `Codec` for its state, \
            or keep it in memory with `Local`"
)]
pub trait Codec: Sized {
    /// Appends the state.
    fn encode(&self, bytes: &mut Vec<u8>);

    /// Takes a state from the front of the bytes.
    ///
    /// # Errors
    ///
    /// When they begin with no state of this type in a version that this program knows.
    fn decode(bytes: &mut &[u8]) -> Result<Self, Error>;

    /// Returns the state as bytes.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }

    /// Decodes a state from all of the bytes.
    ///
    /// # Errors
    ///
    /// When they are no state of this type in a version that this program knows, or go on behind
    /// it.
    fn from_bytes(mut bytes: &[u8]) -> Result<Self, Error> {
        let state = Self::decode(&mut bytes)?;
        if bytes.is_empty() {
            Ok(state)
        } else {
            Err(damaged())
        }
    }
}

/// The first bytes that are not of a single algorithm's state; those are in the
/// [registry](super::registry).
///
/// The upper five bits are the kind of value and the lower three its version.
pub(super) mod tag {
    /// A value that contains states of several kinds.
    #[cfg(feature = "tokio")]
    pub(crate) const FRAME: u8 = 0xf1;
    pub(super) const PAIR: u8 = 0x01;

    /// Returns a tag without its version.
    pub(crate) fn family(tag: u8) -> u8 {
        tag & !0b111
    }
}

#[cold]
pub(super) fn damaged() -> Error {
    Error::new(
        "the bytes are no state of this rule's algorithm in a version that this program knows: \
         expected what `Codec::encode` wrote; remove the key to begin afresh",
    )
}

pub(super) fn take_byte(bytes: &mut &[u8]) -> Result<u8, Error> {
    let (first, rest) = bytes.split_first().ok_or_else(damaged)?;
    *bytes = rest;
    Ok(*first)
}

/// Takes the first byte, which must be `tag`.
pub(crate) fn take_tag(bytes: &mut &[u8], tag: u8) -> Result<(), Error> {
    match take_byte(bytes)? {
        byte if byte == tag => Ok(()),
        byte if byte > tag && tag::family(byte) == tag::family(tag) => Err(Error::newer_state()),
        _ => Err(damaged()),
    }
}

pub(crate) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

pub(crate) fn take_number(bytes: &mut &[u8]) -> Result<u64, Error> {
    let mut number = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = take_byte(bytes)?;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return Err(damaged());
        }
        number |= part << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(damaged())
}

pub(super) fn put_instant(bytes: &mut Vec<u8>, instant: Timestamp) {
    put_number(bytes, instant.as_nanos());
}

pub(super) fn take_instant(bytes: &mut &[u8]) -> Result<Timestamp, Error> {
    take_number(bytes).map(Timestamp::from_nanos)
}

/// A state or none.
impl<S: Codec> Codec for Option<S> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            None => bytes.push(0),
            Some(state) => state.encode(bytes),
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        // No state begins with 0.
        match bytes.split_first() {
            Some((0, rest)) => {
                *bytes = rest;
                Ok(None)
            }
            _ => S::decode(bytes).map(Some),
        }
    }
}

/// The state of a pair of rules.
impl<A: Codec, B: Codec> Codec for (A, B) {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(tag::PAIR);
        self.0.encode(bytes);
        self.1.encode(bytes);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, tag::PAIR)?;
        Ok((A::decode(bytes)?, B::decode(bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{FixedWindow, TokenBucket};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(number: u64, rest: Vec<u8>) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            bytes.extend_from_slice(&rest);
            let mut read = &bytes[..];
            prop_assert_eq!(take_number(&mut read).unwrap(), number);
            prop_assert_eq!(read, &rest[..]);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let mut read = &bytes[..];
            if let Ok(number) = take_number(&mut read) {
                prop_assert!(number < 1 << 7 || bytes.len() - read.len() > 1);
            }
        }
    }

    #[test]
    fn a_newer_version_of_the_same_algorithm_is_told_from_damage() {
        for (tag, byte, newer) in [
            (TokenBucket::TAG, 0x10, Some(false)),
            (TokenBucket::TAG, 0x11, None),
            (TokenBucket::TAG, 0x12, Some(true)),
            (TokenBucket::TAG, 0x17, Some(true)),
            (TokenBucket::TAG, 0x18, Some(false)),
            (TokenBucket::TAG, 0x1a, Some(false)),
            (FixedWindow::TAG, 0x20, Some(false)),
            (FixedWindow::TAG, 0x21, Some(false)),
            (FixedWindow::TAG, 0x22, None),
            (FixedWindow::TAG, 0x23, Some(true)),
            (FixedWindow::TAG, 0x2a, Some(false)),
        ] {
            let taken = take_tag(&mut &[byte][..], tag);
            assert_eq!(taken.err().map(|error| error.is_newer_state()), newer);
        }
    }

    #[test]
    fn a_number_beyond_a_word_is_refused() {
        let longest = [0xff; 9];
        for (last, fits) in [(1, true), (2, false)] {
            let bytes = [&longest[..], &[last]].concat();
            assert_eq!(take_number(&mut &bytes[..]).is_ok(), fits);
        }
    }
}

//! The kind of state that a rule keeps.

/// The kind of state that a rule keeps, as [`Algorithm::state_kind`](super::Algorithm::state_kind) returns it.
///
/// Rules of one kind read each other's states. States of different kinds are stored side by side under a key. A kind is a
/// digest of its name, so it is the same in every release and on every machine.
///
/// ```
/// use tollgate::{AnyRule, FixedWindow, TokenBucket};
/// use tollgate::algorithm::{Algorithm, StateKind};
///
/// let bucket = TokenBucket::per_second(10);
/// assert_eq!(bucket.state_kind(), TokenBucket::per_hour(7).state_kind());
/// assert_eq!(bucket.state_kind(), AnyRule::from(bucket).state_kind());
/// assert_ne!(bucket.state_kind(), FixedWindow::per_second(10).state_kind());
///
/// // For a rule of your own:
/// const LIFETIME: StateKind = StateKind::named("example.com/lifetime");
/// assert_ne!(LIFETIME, StateKind::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKind(u64);

/// The offset basis and the prime of FNV-1a in 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

impl StateKind {
    /// Returns the kind of this name, which is the 64-bit FNV-1a hash of the name in UTF-8.
    ///
    /// Stores write it beside states: a kind whose name changes loses the states that it has.
    pub const fn named(name: &str) -> Self {
        let bytes = name.as_bytes();
        let (mut hash, mut n) = (BASIS, 0);
        while n < bytes.len() {
            hash = (hash ^ bytes[n] as u64).wrapping_mul(PRIME);
            n += 1;
        }
        Self(hash)
    }

    /// Returns the kind of a composition of this kind and one more member.
    ///
    /// Begin with the name of the composition: then the order of the members counts. It is one more round of FNV-1a, with the
    /// other kind as one word of 64 bits in the place of a byte.
    #[must_use]
    pub const fn with(self, member: Self) -> Self {
        Self((self.0 ^ member.0).wrapping_mul(PRIME))
    }

    /// Returns the kind as a number, for a store to write.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Returns the kind that a store has written as a number.
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They are written into stores that several releases share.
    #[test]
    fn kinds_stay_as_they_are() {
        // The test vectors of the authors of FNV.
        assert_eq!(StateKind::named("").as_u64(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(StateKind::named("a").as_u64(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(StateKind::named("foobar").as_u64(), 0x8594_4171_f739_67e8);
        let [a, b] = ["a", "b"].map(StateKind::named);
        assert_eq!(
            a.with(b).as_u64(),
            (a.0 ^ b.0).wrapping_mul(0x0100_0000_01b3)
        );
        let all = StateKind::named("all");
        assert_ne!(all.with(a).with(b), all.with(b).with(a));
    }
}

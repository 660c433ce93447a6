//! The number of sets in use, and the set of a hash.

/// The number of sets in use. It grows by one at a time, as in linear hashing (Litwin 1980).
///
/// Each new set takes about half of the hashes of one other set, its parent. The set of a hash is chosen by multiplication among the
/// first sets, of which there can be any number, and by the low bits of the hash among those added since. So whenever the first number
/// has doubled, all sets have equally many hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    pub(crate) sets: u32,
    /// The low bits of a hash that matter.
    mask: u32,
}

impl Size {
    /// Returns the first size.
    pub(crate) fn first(sets: u32) -> Self {
        Self { sets, mask: 0 }
    }

    /// Returns the size after a number of doublings.
    pub(crate) fn doubled(first: u32, doublings: u32) -> Self {
        Self {
            sets: first << doublings,
            mask: (1 << doublings) - 1,
        }
    }

    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self {
            sets: bits as u32,
            mask: (bits >> 32) as u32,
        }
    }

    pub(crate) fn bits(self) -> u64 {
        u64::from(self.mask) << 32 | u64::from(self.sets)
    }

    /// Returns `true` if all sets have equally many hashes. `first` is the first number of sets.
    #[inline]
    pub(crate) fn is_even(self, first: u32) -> bool {
        self.sets == first * (self.mask + 1)
    }

    /// Returns the size with one more set, and the parent of that set. `first` is the first number of sets.
    pub(crate) fn next(self, first: u32) -> (Self, u32) {
        let mask = if self.is_even(first) {
            self.mask * 2 + 1
        } else {
            self.mask
        };
        let sets = self.sets + 1;
        let parent = self.sets - first * (mask / 2 + 1);
        (Self { sets, mask }, parent)
    }

    /// Returns the set of a hash. `first` is the first number of sets.
    #[inline]
    pub(crate) fn set_of(self, hash: u32, first: u32) -> u32 {
        let among_first = ((u64::from(hash) * u64::from(first)) >> 32) as u32;
        let set = among_first + (hash & self.mask) * first;
        // Not in use yet: its parent. Without a branch, which nothing could predict.
        let doubled = first * (self.mask / 2 + 1);
        set - (doubled & u32::from(set >= self.sets).wrapping_neg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the set of a hash by the definition: all sets split in turn, from the first size on.
    fn split_in_turn(first: u32, sets: u32, hash: u32) -> u32 {
        let mut set = ((u64::from(hash) * u64::from(first)) >> 32) as u32;
        let (mut bit, mut size) = (0, first);
        while size < sets {
            // Each set of this size has another one above it, if there are as many.
            if hash >> bit & 1 == 1 && set + size < sets {
                set += size;
            }
            (bit, size) = (bit + 1, size * 2);
        }
        set
    }

    #[test]
    fn a_set_takes_hashes_of_its_parent_only() {
        for first in [1, 2, 3, 7, 64, 127] {
            let mut size = Size::first(first);
            for new in first..first * 16 {
                let (next, parent) = size.next(first);
                assert_eq!(Size::from_bits(next.bits()), next);
                for hash in (0..1_000_u32).map(|n| n.wrapping_mul(0x9E37_79B9)) {
                    let [before, after] = [size, next].map(|size| size.set_of(hash, first));
                    assert!(after == before || (before, after) == (parent, new));
                    assert_eq!(after, split_in_turn(first, next.sets, hash));
                }
                size = next;
            }
        }
    }

    #[test]
    fn at_a_doubling_all_sets_have_equally_many_hashes() {
        let first = 77;
        let mut size = Size::first(first);
        while size.sets < first * 8 {
            size = size.next(first).0;
        }
        assert_eq!(size, Size::doubled(first, 3));
        let mut hashes = vec![0_i32; size.sets as usize];
        for n in 0..1_u32 << 20 {
            hashes[size.set_of(n.wrapping_mul(0x9E37_79B9), first) as usize] += 1;
        }
        let even = (1 << 20) / hashes.len() as i32;
        assert!(hashes.iter().all(|count| (count - even).abs() < even / 10));
    }
}

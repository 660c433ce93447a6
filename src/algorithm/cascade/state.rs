//! What a cascade remembers of a key.

use smallvec::SmallVec;

use super::MOST;
use crate::{algorithm::token_bucket::BucketLevel, clock::Timestamp};

/// What a [`Cascade`](super::Cascade) remembers of a key: the state of each bucket, by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CascadeState(Buckets);

/// Up to two lie within the state: no allocation, and no second place to read from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Buckets {
    One(BucketLevel),
    Two([BucketLevel; 2]),
    More(Box<[BucketLevel]>),
}

/// As many as a cascade has buckets.
pub(super) type Few<T> = SmallVec<[T; MOST]>;

impl CascadeState {
    /// The state of these buckets, at least one.
    pub(super) fn of(buckets: &[BucketLevel]) -> Self {
        Self(match *buckets {
            [one] => Buckets::One(one),
            [one, two] => Buckets::Two([one, two]),
            _ => Buckets::More(buckets.into()),
        })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[BucketLevel] {
        match &self.0 {
            Buckets::One(one) => std::slice::from_ref(one),
            Buckets::Two(two) => two,
            Buckets::More(more) => more,
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [BucketLevel] {
        match &mut self.0 {
            Buckets::One(one) => std::slice::from_mut(one),
            Buckets::Two(two) => two,
            Buckets::More(more) => more,
        }
    }

    /// The state as a rule of `count` buckets sees it.
    #[inline]
    pub(super) fn first(&self, count: usize) -> First<'_> {
        let buckets = self.as_slice();
        let buckets = &buckets[..count.min(buckets.len())];
        let written_at = |bucket: &BucketLevel| bucket.written_at;
        let last = buckets.iter().map(written_at).max().unwrap_or_default();
        First {
            buckets,
            added: BucketLevel::of_thirds(0, last),
        }
    }
}

/// The first buckets of a state.
#[derive(Clone, Copy)]
pub(super) struct First<'a> {
    buckets: &'a [BucketLevel],
    /// What stands for those that were added to the rule since: empty at the last write.
    added: BucketLevel,
}

impl First<'_> {
    /// The last write to any of them.
    #[inline]
    pub(super) fn written_at(&self) -> Timestamp {
        self.added.written_at
    }

    #[inline]
    pub(super) fn bucket(&self, n: usize) -> &BucketLevel {
        self.buckets.get(n).unwrap_or(&self.added)
    }
}

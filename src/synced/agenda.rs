//! Which keys are due, and when.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::time::Timestamp;

/// The keys of one part of the store that have something to tell or to ask, by the instants at which they are due.
///
/// An entry is not removed when its key becomes due at another instant: whoever takes it asks the key.
#[derive(Debug)]
pub(crate) struct Agenda<Id> {
    /// What is told before anything is read.
    writes: BinaryHeap<Reverse<(Timestamp, Id)>>,
    reads: BinaryHeap<Reverse<(Timestamp, Id)>>,
}

impl<Id: Ord + Copy> Default for Agenda<Id> {
    fn default() -> Self {
        Self {
            writes: BinaryHeap::new(),
            reads: BinaryHeap::new(),
        }
    }
}

impl<Id: Ord + Copy> Agenda<Id> {
    /// Notes that a key is due, to tell something or to read.
    pub(crate) fn note(&mut self, id: Id, due: Timestamp, is_write: bool) {
        let entries = if is_write {
            &mut self.writes
        } else {
            &mut self.reads
        };
        entries.push(Reverse((due, id)));
    }

    /// Takes out a key that is due, the one that has waited longest; keys that have something to tell come first.
    pub(crate) fn take(&mut self, now: Timestamp) -> Option<(Timestamp, Id)> {
        [&mut self.writes, &mut self.reads]
            .into_iter()
            .find(|entries| entries.peek().is_some_and(|Reverse((due, _))| *due <= now))
            .and_then(BinaryHeap::pop)
            .map(|Reverse(entry)| entry)
    }

    /// Returns the next instant at which a key is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let firsts = [self.writes.peek(), self.reads.peek()];
        firsts
            .into_iter()
            .flatten()
            .map(|Reverse((due, _))| *due)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_comes_before_what_is_read() {
        let at = Timestamp::from_nanos;
        let mut agenda = Agenda::default();
        for (id, due, is_write) in [(1, 5, false), (2, 7, true), (3, 6, true), (4, 9, true)] {
            agenda.note(id, at(due), is_write);
        }
        assert_eq!(agenda.next(), Some(at(5)));
        assert_eq!(agenda.take(at(4)), None);
        let taken: Vec<_> = std::iter::from_fn(|| agenda.take(at(8))).collect();
        assert_eq!(taken, [(at(6), 3), (at(7), 2), (at(5), 1)]);
        assert_eq!(agenda.next(), Some(at(9)));
    }
}

//! The numbers of the deltas that a key already has.

use std::time::Duration;

use crate::{
    algorithm::{StateKind, put_number, take_number},
    error::Error,
    store::Batch,
};

/// The most nodes whose numbers a key keeps. Beyond that the one goes that was heard of longest ago: if it repeats a delta afterwards, its
/// units count twice.
const MOST: usize = 128;

/// For how long the numbers are kept at least. A delta that is repeated later counts twice, if the states have passed, too.
pub(super) const KEEP: Duration = Duration::from_secs(60);

/// The version of the bytes.
const VERSION: u64 = 1;

/// The last number of each node that added a delta to a key. They lie beside the states of the key, as a state of their own kind.
///
/// | bytes | |
/// |---|---|
/// | 1 | the version |
/// | for each node up to 10 and up to 10 | the node and its number, as LEB128; the node that was heard of last comes last |
#[derive(Debug, Default)]
pub(super) struct Marks {
    nodes: Vec<Batch>,
    /// `true` if a number was noted since they were read.
    pub(super) is_new: bool,
}

impl Marks {
    pub(super) const KIND: StateKind = StateKind::named("marks of deltas");

    /// # Errors
    ///
    /// When the bytes are no marks of a version that this program knows.
    pub(super) fn read(mut bytes: &[u8]) -> Result<Self, Error> {
        let bytes = &mut bytes;
        match take_number(bytes)? {
            VERSION => {}
            version if version > VERSION => return Err(Error::newer_state()),
            _ => {
                return Err(Error::new(
                    "the numbers of deltas cannot be read: expected what this program writes; remove the key to begin afresh",
                ));
            }
        }
        let mut marks = Self::default();
        while !bytes.is_empty() {
            let (node, number) = (take_number(bytes)?, take_number(bytes)?);
            marks.nodes.push(Batch { node, number });
        }
        Ok(marks)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + 16 * self.nodes.len());
        put_number(&mut bytes, VERSION);
        for Batch { node, number } in &self.nodes {
            put_number(&mut bytes, *node);
            put_number(&mut bytes, *number);
        }
        bytes
    }

    /// Notes the number of a delta. Returns `false` if the key has it already.
    pub(super) fn note(&mut self, batch: Batch) -> bool {
        if let Some(at) = self.nodes.iter().position(|mark| mark.node == batch.node) {
            if self.nodes[at].number >= batch.number {
                return false;
            }
            self.nodes.remove(at);
        }
        if self.nodes.len() >= MOST {
            self.nodes.remove(0);
        }
        self.nodes.push(batch);
        self.is_new = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(node: u64, number: u64) -> Batch {
        Batch { node, number }
    }

    #[test]
    fn a_number_is_noted_once() {
        let mut marks = Marks::default();
        assert!(marks.note(batch(1, 5)));
        assert!(marks.note(batch(2, 3)));
        for (node, number, is_new) in [(1, 5, false), (1, 4, false), (2, 4, true), (1, 9, true)] {
            assert_eq!(marks.note(batch(node, number)), is_new);
            marks = Marks::read(&marks.to_bytes()).unwrap();
        }
    }

    #[test]
    fn the_node_goes_that_was_heard_of_longest_ago() {
        let mut marks = Marks::default();
        for node in 0..MOST as u64 {
            marks.note(batch(node, 1));
        }
        marks.note(batch(0, 2));
        marks.note(batch(1000, 1));
        assert_eq!(marks.nodes.len(), MOST);
        assert!(!marks.note(batch(0, 2)));
        assert!(marks.note(batch(1, 1)), "it was forgotten");
    }

    #[test]
    fn bytes_of_others_are_errors() {
        for (bytes, is_newer) in [
            (&[][..], false),
            (&[0], false),
            (&[2, 7], true),
            (&[1, 7], false),
        ] {
            let error = Marks::read(bytes).unwrap_err();
            assert_eq!(error.is_newer_state(), is_newer, "{bytes:?}");
        }
    }
}

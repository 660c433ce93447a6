//! Deltas of nodes that decide by themselves, and the number of nodes that use a policy.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{
    CompareAndSwap, Loaded, Swap, Swapped,
    worker::{SwapQueue, Work, receive},
};
use crate::{
    algorithm::{Algorithm, Codec, StateKind, put_number, take_number},
    error,
    store::{
        Batch, Delta, NodeCounts, Pulled, StoreError, SyncFuture, delta::ResolvedDelta,
        engine::each_delta, names::key_name, node_counts::CountedNodes,
    },
};

/// Adds deltas, all those of a key with one swap.
///
/// Each kind is a job of its own, because a newer program may have written the state of one of
/// them.
pub(super) fn sync<C, Rule>(
    queue: &Arc<SwapQueue<C, Rule>>,
    prefix: &str,
    deltas: &[Delta<'_, Rule>],
) -> SyncFuture<Rule, StoreError>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec>,
{
    let mut by_kind = HashMap::<_, Vec<_>>::new();
    for (index, delta) in deltas.iter().enumerate() {
        let key = key_name(prefix, delta.policy(), delta.key());
        let resolved = ResolvedDelta::new(delta, index);
        let kind = resolved.rule.state_kind();
        by_kind.entry((key, kind)).or_default().push(resolved);
    }
    let has_others = by_kind.len() > 1;
    let mut each: Vec<Option<Result<_, StoreError>>> = deltas.iter().map(|_| None).collect();
    let queue = Arc::clone(queue);
    // Nothing begins before the future is polled: an open circuit drops it.
    Box::pin(async move {
        // All keys are worked on at once, whichever is awaited first.
        let pending = by_kind.into_iter().map(|((key, _), deltas)| {
            let indices: Vec<_> = deltas.iter().map(|delta| delta.at).collect();
            (indices, queue.ask(key, Work::Sync { deltas, has_others }))
        });
        for (indices, answer) in pending.collect::<Vec<_>>() {
            match receive(answer).await {
                Ok(answers) => {
                    let (at, states) = answers.pulled;
                    for (index, bytes) in indices.into_iter().zip(states) {
                        let state = bytes.map(|bytes| Rule::State::from_bytes(&bytes));
                        let state = state.transpose().map_err(StoreError::other);
                        each[index] = Some(state.map(|state| Pulled { at, state }));
                    }
                }
                Err(error) => {
                    for index in indices {
                        each[index] = Some(Err(error.duplicate()));
                    }
                }
            }
        }
        each_delta(each.into_iter().flatten().collect())
    })
}

/// The most nodes whose sequence numbers a key keeps. Beyond that, the least recent node is
/// dropped: if it repeats a delta afterwards, its units count twice.
const MOST_NODES: usize = 128;

/// The least time for which the sequence numbers are kept. A delta that is repeated later, when the
/// states have expired, too, counts twice.
pub(super) const KEEP_NUMBERS: Duration = Duration::from_secs(60);

/// Version of the encoding of sequence numbers.
const VERSION: u64 = 1;

/// Last sequence number of each node that added a delta to a key. They are stored beside the states
/// of the key, as a state of their own kind.
///
/// | bytes | |
/// |---|---|
/// | 1 | the version |
/// | for each node up to 10 and up to 10 | the node and its sequence number, as LEB128; the most recent node comes last |
#[derive(Debug, Default)]
pub(super) struct SequenceNumbers {
    nodes: Vec<Batch>,
    /// `true` if a number was recorded since they were read.
    pub(super) is_new: bool,
}

impl SequenceNumbers {
    pub(super) const KIND: StateKind = StateKind::named("marks of deltas");

    /// Decodes sequence numbers.
    ///
    /// # Errors
    ///
    /// Fails if this program does not know the version of the bytes, or cannot read them.
    pub(super) fn read(mut bytes: &[u8]) -> Result<Self, error::Error> {
        let bytes = &mut bytes;
        match take_number(bytes)? {
            VERSION => {}
            version if version > VERSION => return Err(error::Error::newer_state()),
            _ => {
                return Err(error::Error::new(
                    "the numbers of deltas cannot be read: expected what this program writes; remove the key to begin afresh",
                ));
            }
        }
        let mut numbers = Self::default();
        while !bytes.is_empty() {
            let (node, number) = (take_number(bytes)?, take_number(bytes)?);
            numbers.nodes.push(Batch { node, number });
        }
        Ok(numbers)
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

    /// Records the number of a delta. Returns `false` if the key has it already.
    pub(super) fn record(&mut self, batch: Batch) -> bool {
        if let Some(at) = self.nodes.iter().position(|known| known.node == batch.node) {
            if self.nodes[at].number >= batch.number {
                return false;
            }
            self.nodes.remove(at);
        }
        if self.nodes.len() >= MOST_NODES {
            self.nodes.remove(0);
        }
        self.nodes.push(batch);
        self.is_new = true;
        true
    }
}

/// The most swaps of one count. All nodes count themselves at about the same time, when a period
/// begins.
const ATTEMPTS: usize = 16;

/// Counts this node in a period, and returns the counts.
pub(super) async fn count_node<C: CompareAndSwap, Rule>(
    queue: &SwapQueue<C, Rule>,
    key: &[u8],
    period: u64,
) -> Result<NodeCounts, StoreError> {
    let mut found = None;
    let mut delays = queue.delays().into_iter().flatten();
    for _ in 0..ATTEMPTS {
        let Loaded { value, .. } = match found.take() {
            Some(found) => found,
            None => queue.data.load(key).await?,
        };
        let (version, value) = value.unzip();
        let counted = CountedNodes::after(value.as_deref(), period);
        let swap = Swap {
            expected: version.as_ref(),
            value: Some(&counted.to_value()),
            keep: CountedNodes::KEEP,
        };
        match queue.data.swap(key, swap).await? {
            Swapped::Done(_) => return Ok(counted.counts()),
            Swapped::Lost(known) => found = known,
        }
        if let Some(delay) = delays.next() {
            sleep(delay).await;
            // The value may have changed meanwhile.
            found = None;
        }
    }
    Err(StoreError::contended())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(node: u64, number: u64) -> Batch {
        Batch { node, number }
    }

    #[test]
    fn a_number_is_recorded_once() {
        let mut numbers = SequenceNumbers::default();
        assert!(numbers.record(batch(1, 5)));
        assert!(numbers.record(batch(2, 3)));
        for (node, number, is_new) in [(1, 5, false), (1, 4, false), (2, 4, true), (1, 9, true)] {
            assert_eq!(numbers.record(batch(node, number)), is_new);
            numbers = SequenceNumbers::read(&numbers.to_bytes()).unwrap();
        }
    }

    #[test]
    fn the_least_recent_node_is_dropped() {
        let mut numbers = SequenceNumbers::default();
        for node in 0..MOST_NODES as u64 {
            numbers.record(batch(node, 1));
        }
        numbers.record(batch(0, 2));
        numbers.record(batch(1000, 1));
        assert_eq!(numbers.nodes.len(), MOST_NODES);
        assert!(!numbers.record(batch(0, 2)));
        assert!(numbers.record(batch(1, 1)), "it was forgotten");
    }

    #[test]
    fn bytes_of_others_are_errors() {
        for (bytes, is_newer) in [
            (&[][..], false),
            (&[0], false),
            (&[2, 7], true),
            (&[1, 7], false),
        ] {
            let error = SequenceNumbers::read(bytes).unwrap_err();
            assert_eq!(error.is_newer_state(), is_newer, "{bytes:?}");
        }
    }
}

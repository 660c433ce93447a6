//! Counting the nodes that use a policy.

use tokio::time::sleep;

use super::{CompareAndSwap, Loaded, Swap, Swapped, queue::Queue};
use crate::store::{Error, NodeCounts, node_counts::CountedNodes};

/// Nodes count themselves at about the same time, when a period begins.
const ATTEMPTS: usize = 16;

/// Counts this node in a period.
pub(super) async fn count_node<C: CompareAndSwap, Rule, K>(
    queue: &Queue<C, Rule, K>,
    key: &[u8],
    period: u64,
) -> Result<NodeCounts, Error> {
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
            // The value that was found has changed meanwhile.
            found = None;
        }
    }
    Err(Error::contended())
}

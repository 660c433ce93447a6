//! Counting the nodes that use a policy.

use super::{
    Evaluate, Program,
    pack::{put_array, put_number, take_array, take_number},
};
use crate::store::{Error, NodeCounts, node_counts::CountedNodes};

/// Counts this node in a period.
pub(super) async fn count_node<E: Evaluate>(
    data: &E,
    key: Box<[u8]>,
    period: u64,
) -> Result<NodeCounts, Error> {
    let mut argument = Vec::with_capacity(16);
    let seconds = NodeCounts::PERIOD.as_secs();
    put_array(&mut argument, 3);
    for number in [
        u128::from(period),
        CountedNodes::KEEP.as_millis(),
        u128::from(seconds),
    ] {
        put_number(&mut argument, i64::try_from(number).unwrap_or(i64::MAX));
    }
    let answer = data
        .evaluate(Program::COUNT_NODE, vec![key], argument)
        .await?;
    counts(&answer).ok_or_else(|| {
        Error::other(
            "the counts of nodes cannot be read: expected what this version of the program writes; \
            give other versions another prefix",
        )
    })
}

fn counts(mut answer: &[u8]) -> Option<NodeCounts> {
    let answer = &mut answer;
    if take_array(answer)? != 2 {
        return None;
    }
    let mut next = || u64::try_from(take_number(answer)?).ok();
    Some(NodeCounts {
        current: next()?,
        previous: next()?,
    })
}

//! Deltas of nodes that decide by themselves, and the number of nodes that use a policy.

use std::{collections::HashMap, sync::Arc};

use super::{
    Evaluate, Program, ScriptStore,
    answer::{ScriptAnswer, state_of, take_array, take_number},
    queue::CallQueue,
    request::{ScriptCall, ScriptRequest, put_array, put_number, rule_in_script},
    settle::Correction,
};
use crate::{
    algorithm::Scripted,
    store::{
        Delta, NodeCounts, Pulled, StoreError, SyncFuture,
        engine::{concurrently, each_delta},
        node_counts::CountedNodes,
    },
};

/// The most requests of a call that are in flight together.
const GROUPS_AT_ONCE: usize = 256;

/// Deltas of one group of keys, for one request.
struct DeltaGroup<Rule> {
    corrections: Vec<Correction>,
    rules: Vec<Rule>,
    /// Their indices among all deltas.
    indices: Vec<usize>,
}

impl<E, Rule> ScriptStore<E, Rule>
where
    E: Evaluate,
    Rule: Scripted,
{
    /// Adds deltas, with one request for each group of keys.
    pub(super) fn send_deltas(&self, deltas: &[Delta<'_, Rule>]) -> SyncFuture<Rule, StoreError> {
        let mut groups: HashMap<u32, DeltaGroup<Rule>> = HashMap::new();
        // Result of each delta: an error if it cannot be sent, and later its answer.
        let mut each: Vec<Option<Result<_, StoreError>>> = deltas.iter().map(|_| None).collect();
        for (index, delta) in deltas.iter().enumerate() {
            let correction = match Correction::of_delta(&self.prefix, &self.rules, delta) {
                Ok(correction) => correction,
                Err(error) => {
                    each[index] = Some(Err(StoreError::unsupported(error)));
                    continue;
                }
            };
            let group = groups.entry(self.data.group(&correction.key));
            let group = group.or_insert_with(|| DeltaGroup {
                corrections: Vec::new(),
                rules: Vec::new(),
                indices: Vec::new(),
            });
            group.corrections.push(correction);
            let rule = rule_in_script(delta.rule(), || delta.key().digest());
            group.rules.push(rule);
            group.indices.push(index);
        }
        let (data, queue) = (Arc::clone(&self.data), Arc::clone(&self.queue));
        Box::pin(async move {
            let sending = groups.into_values().map(|group| {
                let (data, queue) = (&*data, &*queue);
                async move {
                    let indices = group.indices.clone();
                    (indices, send(data, queue, group).await)
                }
            });
            for (indices, answer) in concurrently(GROUPS_AT_ONCE, sending.collect()).await {
                match answer {
                    Ok(pulled) => {
                        for (index, pulled) in indices.into_iter().zip(pulled) {
                            each[index] = Some(Ok(pulled));
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
}

/// Adds the deltas of a group, with one request.
async fn send<E, Rule>(
    data: &E,
    queue: &CallQueue<E, Rule>,
    group: DeltaGroup<Rule>,
) -> Result<Vec<Pulled<Rule::State>>, StoreError>
where
    E: Evaluate,
    Rule: Scripted,
{
    let ScriptRequest {
        program,
        keys,
        states,
        argument,
        corrected,
    } = ScriptRequest::of::<ScriptCall<Rule>, Rule>(None, group.corrections, &mut []);
    queue.counters.requests.add(1);
    let bytes = data.evaluate(program, keys, argument).await?;
    let answer = ScriptAnswer::read(program, &bytes, states)?;
    queue.counters.healed.add(answer.healed);
    if let Some(why) = &answer.unwritten {
        return Err(data.unwritten(why));
    }
    let pulled = |(rule, key): (&Rule, usize)| {
        let bytes = answer.states.get(key).and_then(Option::as_deref);
        Pulled {
            at: answer.now,
            state: bytes.and_then(|bytes| state_of(rule, bytes)),
        }
    };
    Ok(group.rules.iter().zip(corrected).map(pulled).collect())
}

/// Counts this node in a period, and returns the counts.
pub(super) async fn count_node<E: Evaluate>(
    data: &E,
    key: Box<[u8]>,
    period: u64,
) -> Result<NodeCounts, StoreError> {
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
        StoreError::other(
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

//! Settlements in the form that programs read, and the count of those that fail. Deltas of nodes
//! that decide by themselves, which are settlements, too; the number of nodes that use a policy.
//!
//! A script makes settlements, too. To read a state, correct it here and swap it in loses every
//! race on a busy key: at 2 ms and 1,000 admissions a second, more than half of the settlements
//! were lost. So each algorithm settles in its `script.lua`, and a settlement goes out with the
//! next batch.

use std::{collections::HashMap, sync::Arc};

use tokio::sync::oneshot;

use super::{
    Evaluate, Program, ScriptStore,
    answer::{ScriptAnswer, state_of, take_array, take_number},
    queue::CallQueue,
    request::{
        EncodedRule, RuleEncoder, ScriptRequest, put_array, put_number, put_part, rule_in_script,
    },
};
use crate::{
    algorithm::Scripted,
    decision::{Charge, Cost},
    error,
    store::{
        Ask, Batch, Delta, NodeCounts, Pulled, Settlement, StoreError, SyncFuture,
        engine::{SettlementGuard, Unsettled, concurrently, each_delta},
        names::key_name,
        node_counts::CountedNodes,
    },
    time::Timestamp,
};

/// A settlement in the form that the program reads.
pub(super) struct Correction {
    pub(super) key: Box<[u8]>,
    pub(super) encoded: Arc<EncodedRule>,
    /// Charge of each part of the rule, in consecutive lists in MessagePack.
    charges: Vec<u8>,
    /// Number of those lists.
    parts: usize,
    /// Node and sequence number of a delta, which is added once; 0 and 0 to read the state alone.
    sequence: Option<[i64; 2]>,
    /// `true` if it may take units, and so have a call refused.
    pub(super) may_take: bool,
}

impl Correction {
    /// Converts a settlement.
    ///
    /// # Errors
    ///
    /// Fails when the rule does not fit into a script's numbers.
    pub(super) fn of<Rule: Scripted>(
        prefix: &str,
        rules: &RuleEncoder<Rule>,
        settlement: &Settlement<'_, Rule>,
    ) -> Result<Self, error::Error> {
        let (key, charge) = (&settlement.key, &settlement.charge);
        let own = rule_in_script(settlement.rule, || key.digest());
        let mut parts = Vec::new();
        own.charge_parts(charge, settlement.actual, &mut parts);
        let mut charges = Vec::with_capacity(64 * parts.len());
        parts.iter().for_each(|part| put_part(&mut charges, part));
        Ok(Self {
            key: key_name(prefix, settlement.policy, key),
            encoded: rules.encode(prefix, &own)?,
            charges,
            parts: parts.len(),
            sequence: None,
            // A renewal takes units that were over.
            may_take: settlement.actual > charge.cost || charge.departs() > charge.at,
        })
    }

    /// Converts a delta: a correction of a charge of no units.
    ///
    /// # Errors
    ///
    /// Fails when the rule does not fit into a script's numbers.
    pub(super) fn of_delta<Rule: Scripted>(
        prefix: &str,
        rules: &RuleEncoder<Rule>,
        delta: &Delta<'_, Rule>,
    ) -> Result<Self, error::Error> {
        // The program computes the instant when the delta arrives; this is its age.
        let charge = Charge::new(Timestamp::default().saturating_add(delta.age()), 0);
        let ask = Ask::new(delta.policy(), delta.rule(), *delta.key(), Cost::ONE);
        let mut correction = Self::of(prefix, rules, &ask.settlement(charge, delta.units()))?;
        let Batch { node, number } = delta.batch();
        if delta.units() == 0 {
            // The state alone is asked for.
            (correction.charges, correction.parts) = (Vec::new(), 0);
            correction.sequence = Some([0, 0]);
        } else {
            correction.sequence = Some([node as i64, number as i64]);
        }
        Ok(correction)
    }

    /// Returns `true` if this is a delta.
    pub(super) fn is_delta(&self) -> bool {
        self.sequence.is_some()
    }

    /// Appends the correction to the argument of a request. `indices` are those of its rule and its
    /// key.
    pub(super) fn put(&self, bytes: &mut Vec<u8>, indices: [usize; 2]) {
        let sequence = self.sequence.as_ref().map_or(&[][..], |pair| pair);
        put_array(bytes, indices.len() + self.parts + sequence.len());
        for index in indices {
            put_number(bytes, index as i64 + 1);
        }
        bytes.extend_from_slice(&self.charges);
        for number in sequence {
            put_number(bytes, *number);
        }
    }
}

/// Reports the result of one settlement to its caller, and counts a failure.
///
/// If it is dropped unused, for example with the runtime, that counts as a failure.
pub(super) struct Settler {
    settling: SettlementGuard,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

impl Settler {
    pub(super) fn new(unsettled: &Unsettled) -> (Self, oneshot::Receiver<Result<(), StoreError>>) {
        let (reply, answer) = oneshot::channel();
        let settling = unsettled.settling(1);
        (Self { settling, reply }, answer)
    }

    /// Reports the result. A failed settlement may have been made, so it is not repeated.
    pub(super) fn end(self, result: Result<(), StoreError>) {
        let Self { settling, reply } = self;
        if result.is_ok() {
            settling.all_made();
        } else {
            // Counted first: a caller that reads the counter after the error must find it.
            drop(settling);
        }
        let _ = reply.send(result);
    }
}

/// The most requests of a call that are in flight together.
const GROUPS_AT_ONCE: usize = 256;

impl<E, Rule> ScriptStore<E, Rule>
where
    E: Evaluate,
    Rule: Scripted,
{
    /// Adds deltas, with one request for each group of keys.
    pub(super) fn send_deltas(&self, deltas: &[Delta<'_, Rule>]) -> SyncFuture<Rule, StoreError> {
        // For each group of keys: the index, the rule and the correction of each of its deltas.
        let mut groups = HashMap::<u32, Vec<_>>::new();
        // Result of each delta: an error if it cannot be sent, and later its answer.
        let mut each: Vec<Option<Result<_, StoreError>>> = deltas.iter().map(|_| None).collect();
        for (index, delta) in deltas.iter().enumerate() {
            match Correction::of_delta(&self.prefix, &self.rules, delta) {
                Ok(correction) => {
                    let rule = rule_in_script(delta.rule(), || delta.key().digest());
                    let group = groups.entry(self.queue.data.group(&correction.key));
                    group.or_default().push(((index, rule), correction));
                }
                Err(error) => each[index] = Some(Err(StoreError::unsupported(error))),
            }
        }
        let queue = Arc::clone(&self.queue);
        Box::pin(async move {
            let sending = groups.into_values().map(|group| {
                let queue = &*queue;
                let (deltas, corrections): (Vec<_>, Vec<_>) = group.into_iter().unzip();
                async move {
                    let answer = send(queue, &deltas, corrections).await;
                    (deltas, answer)
                }
            });
            for (deltas, answer) in concurrently(GROUPS_AT_ONCE, sending.collect()).await {
                match answer {
                    Ok(pulled) => {
                        for ((index, _), pulled) in deltas.into_iter().zip(pulled) {
                            each[index] = Some(Ok(pulled));
                        }
                    }
                    Err(error) => {
                        for (index, _) in deltas {
                            each[index] = Some(Err(error.duplicate()));
                        }
                    }
                }
            }
            each_delta(each.into_iter().flatten().collect())
        })
    }
}

/// Adds the deltas of a group of keys, with one request.
async fn send<E, Rule>(
    queue: &CallQueue<E, Rule>,
    deltas: &[(usize, Rule)],
    corrections: Vec<Correction>,
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
        ..
    } = ScriptRequest::of::<Rule>(None, corrections, &mut [], false);
    queue.counters.requests.add(1);
    let bytes = queue.data.evaluate(program, keys, argument).await?;
    let answer = ScriptAnswer::read(program, &bytes, states)?;
    queue.counters.healed.add(answer.healed);
    if let Some(why) = &answer.unwritten {
        return Err(queue.data.unwritten(why));
    }
    let pulled = |((_, rule), key): (&(usize, Rule), usize)| {
        let bytes = answer.states.get(key).and_then(Option::as_deref);
        Pulled {
            at: answer.now,
            state: bytes.and_then(|bytes| state_of(rule, bytes)),
        }
    };
    Ok(deltas.iter().zip(corrected).map(pulled).collect())
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

//! Settlements in the form that programs read, and the count of those that fail.
//!
//! A script makes settlements, too. To read a state, correct it here and swap it in loses every
//! race on a busy key: at 2 ms and 1,000 admissions a second, more than half of the settlements
//! were lost. So each algorithm settles in its `script.lua`, and a settlement goes out with the
//! next batch.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::request::{EncodedRule, RuleEncoder, put_array, put_number, put_part, rule_in_script};
use crate::{
    algorithm::Scripted,
    decision::Charge,
    error,
    key::Key,
    policy::Policy,
    store::{
        Batch, Delta, Settlement, StoreError,
        ask::key_name,
        engine::{SettlementGuard, Unsettled},
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
        let target = (settlement.policy, &settlement.key);
        let (charge, actual) = (&settlement.charge, settlement.actual);
        Self::new(prefix, rules, target, settlement.rule, (charge, actual))
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
        let target = (delta.policy(), delta.key());
        let Batch { node, number } = delta.batch();
        let sequence = match delta.units() {
            0 => [0, 0],
            _ => [node as i64, number as i64],
        };
        let delta = Self::new(
            prefix,
            rules,
            target,
            delta.rule(),
            (&charge, delta.units()),
        )?;
        Ok(Self {
            sequence: Some(sequence),
            ..delta
        })
    }

    fn new<Rule: Scripted>(
        prefix: &str,
        rules: &RuleEncoder<Rule>,
        (policy, key): (&Policy, &Key),
        rule: &Rule,
        (charge, actual): (&Charge, u64),
    ) -> Result<Self, error::Error> {
        let own = rule_in_script(rule, || key.digest());
        let mut parts = Vec::new();
        own.charge_parts(charge, actual, &mut parts);
        let mut charges = Vec::with_capacity(64 * parts.len());
        parts.iter().for_each(|part| put_part(&mut charges, part));
        Ok(Self {
            key: key_name(prefix, policy, key),
            encoded: rules.encode(prefix, &own)?,
            charges,
            parts: parts.len(),
            sequence: None,
        })
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

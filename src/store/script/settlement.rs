//! Corrections of earlier charges, which the program makes.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    pack::{put_array, put_number},
    queue::Counters,
    request::{Numbers, Rules, put_part},
};
use crate::{
    algorithm::Scripted,
    error,
    store::{Error, Settlement, name::key_name},
};

/// A settlement as the program makes it.
pub(super) struct Correction {
    pub(super) key: Box<[u8]>,
    pub(super) rule: Arc<Numbers>,
    /// What each part of the rule was charged, in MessagePack one behind the other.
    charges: Vec<u8>,
    /// How many parts that are.
    parts: usize,
}

impl Correction {
    /// # Errors
    ///
    /// When the rule does not fit into numbers.
    pub(super) fn of<Rule: Scripted>(
        prefix: &str,
        rules: &Rules<Rule>,
        settlement: &Settlement<'_, Rule>,
    ) -> Result<Self, error::Error> {
        let (rule, key) = (settlement.rule, &settlement.key);
        let own = rule.for_key(&|| key.digest());
        let own = own.unwrap_or_else(|| rule.clone());
        let own = own.in_script().unwrap_or(own);
        let mut parts = Vec::new();
        own.charge_parts(&settlement.charge, settlement.actual, &mut parts);
        let mut charges = Vec::with_capacity(64 * parts.len());
        parts.iter().for_each(|part| put_part(&mut charges, part));
        Ok(Self {
            key: key_name(prefix, settlement.policy, key),
            rule: rules.in_numbers(&own)?,
            charges,
            parts: parts.len(),
        })
    }

    /// Writes it into the argument of a request, with the places of its rule and key, which begin with 0.
    pub(super) fn put(&self, bytes: &mut Vec<u8>, places: [usize; 2]) {
        put_array(bytes, places.len() + self.parts);
        for place in places {
            put_number(bytes, place as i64 + 1);
        }
        bytes.extend_from_slice(&self.charges);
    }
}

/// Who waits for a settlement, if anybody does. One that ends in any other way than [well](Self::end) is counted, also where it is
/// only dropped.
pub(super) struct Settler {
    counters: Arc<Counters>,
    reply: Option<oneshot::Sender<Result<(), Error>>>,
}

impl Settler {
    pub(super) fn new(counters: &Arc<Counters>) -> (Self, oneshot::Receiver<Result<(), Error>>) {
        let (reply, answer) = oneshot::channel();
        let settler = Self {
            counters: Arc::clone(counters),
            reply: Some(reply),
        };
        (settler, answer)
    }

    /// It was made, or it is not known whether it was: none is repeated.
    pub(super) fn end(mut self, result: Result<(), Error>) {
        if let Some(reply) = self.reply.take() {
            Counters::add(&self.counters.unsettled, u64::from(result.is_err()));
            let _ = reply.send(result);
        }
    }
}

impl Drop for Settler {
    fn drop(&mut self) {
        if self.reply.is_some() {
            Counters::add(&self.counters.unsettled, 1);
        }
    }
}

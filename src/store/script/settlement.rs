//! Corrections of earlier charges, which the program makes.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    pack::{put_array, put_number},
    request::{Numbers, Rules, put_part},
};
use crate::{
    algorithm::Scripted,
    error,
    store::{
        Error, Settlement,
        name::key_name,
        unsettled::{Settling, Unsettled},
    },
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

/// Who waits for a settlement, if anybody does. Dropped without an end, it is counted as one that failed.
pub(super) struct Settler {
    settling: Settling,
    reply: oneshot::Sender<Result<(), Error>>,
}

impl Settler {
    pub(super) fn new(unsettled: &Unsettled) -> (Self, oneshot::Receiver<Result<(), Error>>) {
        let (reply, answer) = oneshot::channel();
        let settling = unsettled.settling(1);
        (Self { settling, reply }, answer)
    }

    /// It was made; or it may have been, and is not repeated.
    pub(super) fn end(self, result: Result<(), Error>) {
        let Self { settling, reply } = self;
        if result.is_ok() {
            settling.all_made();
        } else {
            // Counted before it is told.
            drop(settling);
        }
        let _ = reply.send(result);
    }
}

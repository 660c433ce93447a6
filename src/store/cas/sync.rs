//! Deltas of nodes that decide by themselves.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{CompareAndSwap, queue::Queue, store::told, work::Work};
use crate::{
    algorithm::{Algorithm, Codec},
    store::{Batch, Delta, Error, Pulled, SyncFuture, name::key_name},
    time::{Clock, Timestamp},
};

/// A delta as the key meets it.
pub(super) struct OwnedDelta<Rule> {
    pub(super) rule: Rule,
    pub(super) batch: Batch,
    pub(super) age: Duration,
    pub(super) units: u64,
}

/// The bytes of the state of each delta's key after the last attempt, and its instant.
#[derive(Clone, Default)]
pub(super) struct PulledBytes(Arc<Mutex<(Timestamp, Vec<Option<Vec<u8>>>)>>);

impl PulledBytes {
    pub(super) fn set(&self, at: Timestamp, states: Vec<Option<Vec<u8>>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (at, states);
    }

    fn take(&self) -> (Timestamp, Vec<Option<Vec<u8>>>) {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The deltas of one key, and where each of them stands among all.
struct OfKey<Rule> {
    places: Vec<usize>,
    deltas: Vec<OwnedDelta<Rule>>,
}

/// Adds deltas, all of a key by one swap.
pub(super) fn sync<C, Rule, K>(
    queue: &Arc<Queue<C, Rule, K>>,
    prefix: &str,
    deltas: &[Delta<'_, Rule>],
) -> SyncFuture<Rule, Error>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec + Send + 'static> + Send + Sync + 'static,
    K: Clock + Send + Sync + 'static,
{
    let mut of_keys: HashMap<Box<[u8]>, OfKey<Rule>> = HashMap::new();
    for (place, delta) in deltas.iter().enumerate() {
        let key = key_name(prefix, delta.policy(), delta.key());
        let of_key = of_keys.entry(key).or_insert_with(|| OfKey {
            places: Vec::new(),
            deltas: Vec::new(),
        });
        of_key.places.push(place);
        of_key.deltas.push(OwnedDelta {
            rule: delta.rule_for_key().unwrap_or_else(|| delta.rule().clone()),
            batch: delta.batch(),
            age: delta.age(),
            units: delta.units(),
        });
    }
    let asked: Vec<_> = of_keys
        .into_iter()
        .map(|(key, OfKey { places, deltas })| {
            let pulled = PulledBytes::default();
            let answer = queue.ask(key, Work::Sync(deltas, pulled.clone()));
            (places, pulled, answer)
        })
        .collect();
    let mut all: Vec<Option<Pulled<Rule::State>>> = deltas.iter().map(|_| None).collect();
    Box::pin(async move {
        for (places, bytes, answer) in asked {
            told(answer?).await?;
            let (at, states) = bytes.take();
            for (place, bytes) in places.into_iter().zip(states) {
                let state = bytes.map(|bytes| Rule::State::from_bytes(&bytes));
                let state = state.transpose().map_err(Error::other)?;
                all[place] = Some(Pulled { at, state });
            }
        }
        Ok(all.into_iter().flatten().collect())
    })
}

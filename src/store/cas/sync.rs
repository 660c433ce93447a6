//! Deltas of nodes that decide by themselves.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{CompareAndSwap, queue::Queue, store::told, work::Work};
use crate::{
    algorithm::{Algorithm, Codec, StateKind},
    store::{Batch, Delta, Error, Pulled, SyncFuture, ask::key_name, engine::each_delta},
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

/// The deltas of one key under rules of one kind, and where each of them stands among all.
struct OfKind<Rule> {
    places: Vec<usize>,
    deltas: Vec<OwnedDelta<Rule>>,
}

/// Adds deltas, all of a key by one swap.
///
/// Kinds are jobs of their own, because a newer program may have written the state of one of them.
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
    let mut of_kinds: HashMap<(Box<[u8]>, StateKind), OfKind<Rule>> = HashMap::new();
    for (place, delta) in deltas.iter().enumerate() {
        let key = key_name(prefix, delta.policy(), delta.key());
        let rule = delta.rule_for_key().unwrap_or_else(|| delta.rule().clone());
        let of_kind = of_kinds.entry((key, rule.state_kind()));
        let of_kind = of_kind.or_insert_with(|| OfKind {
            places: Vec::new(),
            deltas: Vec::new(),
        });
        of_kind.places.push(place);
        of_kind.deltas.push(OwnedDelta {
            rule,
            batch: delta.batch(),
            age: delta.age(),
            units: delta.units(),
        });
    }
    let has_others = of_kinds.len() > 1;
    let asked: Vec<_> = of_kinds
        .into_iter()
        .map(|((key, _), OfKind { places, deltas })| {
            let pulled = PulledBytes::default();
            let answer = queue.ask(
                key,
                Work::Sync {
                    deltas,
                    pulled: pulled.clone(),
                    has_others,
                },
            );
            (places, pulled, answer)
        })
        .collect();
    let mut each: Vec<Option<Result<_, Error>>> = deltas.iter().map(|_| None).collect();
    Box::pin(async move {
        // All keys are worked on at once, whichever is awaited first.
        for (places, pulled, answer) in asked {
            let answer = match answer {
                Ok(answer) => told(answer).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(_) => {
                    let (at, states) = pulled.take();
                    for (place, bytes) in places.into_iter().zip(states) {
                        let state = bytes.map(|bytes| Rule::State::from_bytes(&bytes));
                        let state = state.transpose().map_err(Error::other);
                        each[place] = Some(state.map(|state| Pulled { at, state }));
                    }
                }
                Err(error) => {
                    for place in places {
                        each[place] = Some(Err(error.duplicate()));
                    }
                }
            }
        }
        each_delta(each.into_iter().flatten().collect())
    })
}

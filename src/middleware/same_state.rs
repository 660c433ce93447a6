//! Limits that charge one state by mistake: a layer that is applied twice, and limits without names on one store.

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicBool, Ordering},
};

use super::config::Counts;
use crate::{
    decision::Decisions,
    key::Key,
    outcome::{Outcome, StateHash},
    policy::Policy,
    quota::Quota,
    store::{Backend, StoreId},
};

/// What a layer knows of the store of its states.
pub(super) struct SameState {
    store: Option<StoreId>,
    /// The limit without a name was compared with those of other layers, or there is none.
    is_compared: AtomicBool,
}

/// A limit without a name that has decided requests.
struct Unnamed {
    store: StoreId,
    /// Those of its layer: while they live, so does the store.
    counts: Weak<Counts>,
    rule: (u64, Quota),
}

static UNNAMED: Mutex<Vec<Unnamed>> = Mutex::new(Vec::new());

/// The most limits without names that are compared: more than a program has.
const MOST: usize = 256;

impl SameState {
    pub(super) fn new(store: &impl Backend) -> Self {
        let store = store.id();
        Self {
            store,
            is_compared: AtomicBool::new(store.is_none()),
        }
    }

    pub(super) fn store(&self) -> Option<StoreId> {
        self.store
    }

    /// Notices that an outer layer has charged the state of one of these limits for this request.
    #[cold]
    pub(super) fn note_outer<'a>(
        &self,
        outer: &Outcome,
        mut asked: impl Iterator<Item = (&'a Policy, &'a Key)>,
        counts: &Counts,
    ) {
        let twice = asked.find(|(policy, key)| outer.has(StateHash::new(self.store, policy, key)));
        if let Some((policy, _)) = twice {
            counts.count_misconfigured();
            #[cfg(feature = "tracing")]
            crate::log::charged_twice(policy);
            #[cfg(not(feature = "tracing"))]
            let _ = policy;
        }
    }

    /// Compares the limit without a name with those of other layers, when it decides its first request.
    // Not when the layer is built: many are that never decide.
    #[inline]
    pub(super) fn compare<'a, 'p>(
        &self,
        unnamed: impl FnOnce() -> Option<&'p Policy>,
        asked: impl Iterator<Item = (&'a Policy, &'a Key)>,
        decisions: &Decisions,
        counts: &Arc<Counts>,
    ) {
        if !self.is_compared.load(Ordering::Relaxed) {
            self.compare_first(unnamed(), asked, decisions, counts);
        }
    }

    #[cold]
    fn compare_first<'a>(
        &self,
        unnamed: Option<&Policy>,
        mut asked: impl Iterator<Item = (&'a Policy, &'a Key)>,
        decisions: &Decisions,
        counts: &Arc<Counts>,
    ) {
        let (Some(unnamed), Some(store)) = (unnamed, self.store) else {
            return self.is_compared.store(true, Ordering::Relaxed);
        };
        let decision = asked
            .position(|(policy, _)| policy.digest() == unnamed.digest())
            .and_then(|index| decisions.as_slice().get(index));
        let rule = decision.and_then(|decision| Some((decision.limit()?, decision.quota()?)));
        // The store could not decide, or the request is exempt from this limit.
        let Some(rule) = rule else { return };
        self.is_compared.store(true, Ordering::Relaxed);
        let mut known = UNNAMED.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| other.counts.strong_count() > 0);
        let others = known
            .iter()
            .filter(|other| other.store == store && other.rule != rule);
        let other = others
            .filter_map(|other| Some((other.counts.upgrade()?, other.rule)))
            .find(|(other, _)| !Arc::ptr_eq(other, counts));
        if known.len() < MOST {
            known.push(Unnamed {
                store,
                counts: Arc::downgrade(counts),
                rule,
            });
        }
        drop(known);
        if let Some((other, other_rule)) = other {
            other.count_collision();
            counts.count_collision();
            #[cfg(feature = "tracing")]
            crate::log::unnamed_limits(unnamed, other_rule, rule);
            #[cfg(not(feature = "tracing"))]
            let _ = other_rule;
        }
    }
}

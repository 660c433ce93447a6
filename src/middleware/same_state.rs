//! Limits that charge one state by mistake: a layer that is applied twice, and limits without names
//! on one store.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use super::limits::Limits;
use crate::{
    algorithm::Algorithm,
    key::Key,
    locks::lock,
    outcome::{Outcome, StateHash},
    policy::Policy,
    store::{Ask, Backend, StoreId},
};

/// The identity of a service's store, and the registration of its layer.
pub(super) struct SameState {
    registration: Arc<Registration>,
    store: Option<StoreId>,
    /// Set if nothing is left to register.
    is_registered: AtomicBool,
}

impl SameState {
    pub(super) fn new(store: &impl Backend, registration: Arc<Registration>) -> Self {
        let store = store.id();
        let is_registered = store.is_none() || registration.0.get().is_some();
        Self {
            registration,
            store,
            is_registered: AtomicBool::new(is_registered),
        }
    }

    /// Returns the hash of the state that an ask charges.
    #[inline]
    pub(super) fn hash<Rule: Algorithm>(
        &self,
        policy: &Policy,
        key: &Key,
        rule: &Rule,
    ) -> StateHash {
        StateHash::new(self.store, policy, key, rule.state_kind())
    }

    /// Returns `true` if an outer layer has decided by one of these limits, and logs it.
    #[cold]
    pub(super) fn is_decided_by<Rule: Algorithm>(
        &self,
        outer: &Outcome,
        asks: &[Ask<'_, Rule>],
    ) -> bool {
        let state = |ask: &Ask<'_, _>| self.hash(ask.policy(), ask.key(), ask.rule());
        let twice = asks.iter().find(|ask| outer.has(state(ask)));
        #[cfg(feature = "tracing")]
        if let Some(ask) = twice {
            crate::log::charged_twice(ask.policy());
        }
        twice.is_some()
    }

    /// Registers the limit without a name when it decides its first request.
    // Not when the layer is built: many are that never decide.
    #[inline]
    pub(super) fn register<L>(&self, limits: &L, asks: &[Ask<'_, L::Rule>])
    where
        L: Limits<Rule: Algorithm>,
    {
        if !self.is_registered.load(Ordering::Relaxed) {
            self.register_first(limits, asks);
        }
    }

    #[cold]
    fn register_first<L: Limits<Rule: Algorithm>>(&self, limits: &L, asks: &[Ask<'_, L::Rule>]) {
        let registered = &self.registration.0;
        let unnamed = limits.find(&Policy::default());
        let unnamed = unnamed.filter(|limit| limit.is_fixed);
        let unnamed = unnamed.and_then(|limit| Some((&limit.policy, limit.rule.fixed()?)));
        if let (Some((policy, rule)), Some(store)) = (unnamed, self.store) {
            let is_of_it = |ask: &Ask<'_, _>| ask.policy().digest() == policy.digest();
            if !asks.iter().any(is_of_it) {
                // The request is exempt from this limit.
                return;
            }
            let mut other = None;
            let limit = registered.get_or_init(|| {
                let limit = UnnamedLimit::register(store, rule);
                other = limit.others().pop();
                Some(limit)
            });
            #[cfg(feature = "tracing")]
            if let (Some(limit), Some(other)) = (limit, other) {
                crate::log::unnamed_limits(policy, &other, &limit.0.rule);
            }
            #[cfg(not(feature = "tracing"))]
            let _ = (limit, other);
        } else {
            registered.get_or_init(|| None);
        }
        self.is_registered.store(true, Ordering::Relaxed);
    }
}

/// The limit of a layer that was given no name, from its first request on; `None` inside if all
/// have names.
///
/// Clones of the layer and their services share it. Each drops it before its store: the identity of
/// a store is used again once the store is gone.
#[derive(Default)]
pub(super) struct Registration(OnceLock<Option<UnnamedLimit>>);

impl Registration {
    /// Returns the number of limits with another rule on the same states.
    pub(super) fn collisions(&self) -> u64 {
        let limit = self.0.get().and_then(Option::as_ref);
        limit.map_or(0, |limit| limit.others().len() as u64)
    }
}

/// A limit without a name that has decided a request. While it is there, its entry is listed.
struct UnnamedLimit(UnnamedEntry);

#[derive(Clone, PartialEq)]
struct UnnamedEntry {
    /// The numbers of the store, and of the kind of the states.
    states: (u64, u64),
    /// The text of the rule.
    rule: Arc<str>,
}

/// The entries of all such limits, one for each: equal ones stand for different limits.
static UNNAMED: Mutex<Vec<UnnamedEntry>> = Mutex::new(Vec::new());

fn unnamed_limits() -> MutexGuard<'static, Vec<UnnamedEntry>> {
    lock(&UNNAMED)
}

impl UnnamedLimit {
    fn register(store: StoreId, rule: &impl Algorithm) -> Self {
        let entry = UnnamedEntry {
            states: (store.number(), rule.state_kind().as_u64()),
            rule: format!("{rule:?}").into(),
        };
        unnamed_limits().push(entry.clone());
        Self(entry)
    }

    /// Returns the rules of limits with another rule on the same states.
    fn others(&self) -> Vec<Arc<str>> {
        let limits = unnamed_limits();
        let on_same_states = limits.iter().filter(|other| other.states == self.0.states);
        let rules = on_same_states.map(|other| Arc::clone(&other.rule));
        rules.filter(|rule| *rule != self.0.rule).collect()
    }
}

impl Drop for UnnamedLimit {
    fn drop(&mut self) {
        let mut limits = unnamed_limits();
        if let Some(index) = limits.iter().position(|entry| *entry == self.0) {
            limits.swap_remove(index);
        }
    }
}

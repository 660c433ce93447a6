//! The policies that limits of files have, so that observers hear of the end of one.
//!
//! Each file makes its limits anew. A policy is in use as long as a limit of its name is in the
//! file, or admitted a request that has not ended.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, Weak},
};

use crate::{locks::lock, middleware::BoxObserver, observe::Observer, policy::Policy};

/// A policy in use. Held by its limits; the last one tells the observers.
pub(super) struct InUse {
    policy: Policy,
    /// Set once its limit is in force.
    observer: OnceLock<BoxObserver>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(observer) = self.observer.get() {
            observer.gone(&self.policy);
        }
    }
}

/// All policies in use, by name: a later file has the policies of the one before.
#[derive(Default)]
pub(super) struct PoliciesInUse(Mutex<HashMap<String, Weak<InUse>>>);

impl PoliciesInUse {
    /// Returns the policy for one more limit.
    pub(super) fn hold(&self, policy: &Policy) -> Arc<InUse> {
        let mut all = lock(&self.0);
        if let Some(in_use) = all.get(policy.name()).and_then(Weak::upgrade) {
            return in_use;
        }
        all.retain(|_, in_use| in_use.strong_count() > 0);
        let in_use = Arc::new(InUse {
            policy: policy.clone(),
            observer: OnceLock::new(),
        });
        all.insert(policy.name().to_owned(), Arc::downgrade(&in_use));
        in_use
    }

    /// Has an observer hear of the end of the policies with these names.
    pub(super) fn report_to<'a>(
        &self,
        observer: &BoxObserver,
        names: impl Iterator<Item = &'a str>,
    ) {
        let all = lock(&self.0);
        for in_use in names.filter_map(|name| all.get(name)?.upgrade()) {
            let _ = in_use.observer.set(observer.clone());
        }
    }
}

//! The counters of stores.

use super::{Publish, publish::store, wrappers::publish_unsettled};
use crate::{
    algorithm::Algorithm,
    observe::metrics::families::{
        LOCAL_CAPACITY, LOCAL_EVICTED, LOCAL_FORGOTTEN, LOCAL_HELD_BACK, LOCAL_INSERTED,
        LOCAL_KEYS, LOCAL_LET_THROUGH, LOCAL_RETURNED, LOCAL_TURNED_AWAY, LOCAL_UNSETTLED,
    },
    store::{Backend, BoxStore, Local, Stats, Transactional},
};

impl Publish for Stats {
    fn publish(&self, name: &str) {
        LOCAL_KEYS.set(store(name), self.keys as u64);
        LOCAL_CAPACITY.set(store(name), self.capacity as u64);
        LOCAL_INSERTED.set(store(name), self.inserted);
        LOCAL_FORGOTTEN.set(store(name), self.forgotten);
        LOCAL_RETURNED.set(store(name), self.returned);
        LOCAL_EVICTED.set(store(name), self.evicted);
        LOCAL_HELD_BACK.set(store(name), self.held_back);
        LOCAL_TURNED_AWAY.set(store(name), self.turned_away);
        LOCAL_LET_THROUGH.set(store(name), self.let_through);
        LOCAL_UNSETTLED.set(store(name), self.unsettled);
    }
}

impl<A: Algorithm, C> Publish for Local<A, C> {
    fn publish(&self, name: &str) {
        self.stats().publish(name);
    }
}

impl<T: Backend, K> Publish for Transactional<T, K> {
    fn publish(&self, name: &str) {
        publish_unsettled(self, name);
    }
}

impl<Rule, E> Publish for BoxStore<Rule, E> {
    fn publish(&self, name: &str) {
        publish_unsettled(self, name);
    }
}

#[cfg(feature = "redis")]
mod script {
    use super::{Publish, store};
    use crate::{
        algorithm::Scripted,
        observe::metrics::families::{
            SCRIPT_CALLS, SCRIPT_HEALED, SCRIPT_REQUESTS, STORE_UNSETTLED,
        },
        store::{Evaluate, Script, ScriptStats},
    };

    impl Publish for ScriptStats {
        fn publish(&self, name: &str) {
            SCRIPT_REQUESTS.set(store(name), self.requests);
            SCRIPT_CALLS.set(store(name), self.calls);
            SCRIPT_HEALED.set(store(name), self.healed);
            STORE_UNSETTLED.set(store(name), self.unsettled);
        }
    }

    impl<E, Rule> Publish for Script<E, Rule>
    where
        E: Evaluate,
        Rule: Scripted<State: Send> + Send + 'static,
    {
        fn publish(&self, name: &str) {
            self.stats().publish(name);
        }
    }
}

#[cfg(feature = "tokio")]
mod cas {
    use super::{Publish, store};
    use crate::{
        observe::metrics::families::{
            CAS_CONTENDED, CAS_HEALED, CAS_LOADS, CAS_LOST, CAS_NEWER, CAS_SWAPS, STORE_UNSETTLED,
        },
        store::{CasStats, Optimistic},
    };

    impl Publish for CasStats {
        fn publish(&self, name: &str) {
            CAS_LOADS.set(store(name), self.loads);
            CAS_SWAPS.set(store(name), self.swaps);
            CAS_LOST.set(store(name), self.lost);
            CAS_CONTENDED.set(store(name), self.contended);
            CAS_HEALED.set(store(name), self.healed);
            CAS_NEWER.set(store(name), self.newer);
            STORE_UNSETTLED.set(store(name), self.unsettled);
        }
    }

    impl<C, Rule, K> Publish for Optimistic<C, Rule, K> {
        fn publish(&self, name: &str) {
            self.stats().publish(name);
        }
    }
}

#[cfg(feature = "tokio")]
mod counter {
    use super::{Publish, store};
    use crate::{
        algorithm::Counted,
        observe::metrics::families::{
            COUNTERS_ADDITIONS, COUNTERS_CUT, COUNTERS_DOUBTFUL, COUNTERS_LEFT_BEHIND,
            COUNTERS_READINGS, COUNTERS_TAKEN_BACK, STORE_UNSETTLED,
        },
        store::{CounterStats, Counters},
    };

    impl Publish for CounterStats {
        fn publish(&self, name: &str) {
            COUNTERS_ADDITIONS.set(store(name), self.additions);
            COUNTERS_READINGS.set(store(name), self.readings);
            COUNTERS_TAKEN_BACK.set(store(name), self.taken_back);
            COUNTERS_CUT.set(store(name), self.cut);
            COUNTERS_LEFT_BEHIND.set(store(name), self.left_behind);
            COUNTERS_DOUBTFUL.set(store(name), self.doubtful);
            STORE_UNSETTLED.set(store(name), self.unsettled);
        }
    }

    impl<I, Rule: Counted, K> Publish for Counters<I, Rule, K> {
        fn publish(&self, name: &str) {
            self.stats().publish(name);
        }
    }
}

#[cfg(feature = "memcached")]
impl Publish for crate::store::MemcachedConnection {
    fn publish(&self, name: &str) {
        use crate::observe::metrics::families::MEMCACHED_HEALED;

        MEMCACHED_HEALED.set(store(name), self.healed());
    }
}

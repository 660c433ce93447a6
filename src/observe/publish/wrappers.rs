//! The counters of wrappers, and of the stores in them.

use metrics::Label;

use super::{Publish, publish::store};
use crate::{
    observe::metrics::families::{
        BLOCKS_FAILED, BLOCKS_MADE, BLOCKS_REFUSED, BLOCKS_UNCOUNTED, CIRCUIT_OPENED,
        CIRCUIT_PROBES, CIRCUIT_REJECTED, CIRCUIT_STATE, FALLBACK_DECIDED, FALLBACK_TURNED_AWAY,
        REMEMBERED_EVICTED, REMEMBERED_HITS, REMEMBERED_REFUSALS, REMEMBERED_STORED,
        STORE_CONTENTIONS, STORE_FAILURES, STORE_UNSETTLED, STORE_UNSUPPORTED, STORE_UNWRITTEN,
    },
    store::{
        Backend, Blocks, CircuitBreaker, CircuitState, Error, Fallback, OnFailure, RememberRefusals,
    },
    time::Clock,
};

impl<S: Publish + Backend> Publish for OnFailure<S> {
    fn publish(&self, name: &str) {
        STORE_FAILURES.set(store(name), self.failures());
        STORE_UNWRITTEN.set(store(name), self.unwritten());
        STORE_CONTENTIONS.set(store(name), self.contentions());
        STORE_UNSUPPORTED.set(store(name), self.unsupported());
        publish_unsettled(self, name);
        self.get_ref().publish(name);
    }
}

impl<S: Publish + Backend, L: Publish, Rule> Publish for Fallback<S, L, Rule> {
    fn publish(&self, name: &str) {
        STORE_FAILURES.set(store(name), self.failures());
        STORE_UNWRITTEN.set(store(name), self.unwritten());
        STORE_CONTENTIONS.set(store(name), self.contentions());
        STORE_UNSUPPORTED.set(store(name), self.unsupported());
        FALLBACK_DECIDED.set(store(name), self.decided());
        FALLBACK_TURNED_AWAY.set(store(name), self.turned_away());
        publish_unsettled(self, name);
        self.remote().publish(name);
        self.local().publish(&format!("{name}-local"));
    }
}

#[cfg(feature = "tokio")]
impl<S: Publish> Publish for crate::store::Timeout<S> {
    fn publish(&self, name: &str) {
        use crate::observe::metrics::families::STORE_TIMEOUTS;

        STORE_TIMEOUTS.set(store(name), self.timeouts());
        self.get_ref().publish(name);
    }
}

#[cfg(feature = "tokio")]
mod leased {
    use super::{Publish, publish_unsettled, store};
    use crate::{
        algorithm::Leasable,
        observe::metrics::families::{
            LEASES_ADMITTED, LEASES_ASKED, LEASES_CROWDED, LEASES_EXPIRED, LEASES_FAILED,
            LEASES_GRANTED, LEASES_KEYS, LEASES_LEFT, LEASES_LOST, LEASES_NODES, LEASES_OVERSHOOT,
            LEASES_REFUSED, LEASES_RETURNED, LEASES_SPENT, LEASES_UNDERSHOOT,
        },
        store::{Backend, Error, LeaseStats, Leased},
    };

    impl Publish for LeaseStats {
        fn publish(&self, name: &str) {
            LEASES_ASKED.set(store(name), self.asked);
            LEASES_ADMITTED.set(store(name), self.from_leases);
            LEASES_REFUSED.set(store(name), self.refused_here);
            LEASES_CROWDED.set(store(name), self.crowded);
            LEASES_FAILED.set(store(name), self.failed);
            LEASES_GRANTED.set(store(name), self.granted);
            LEASES_SPENT.set(store(name), self.spent);
            LEASES_EXPIRED.set(store(name), self.expired);
            LEASES_RETURNED.set(store(name), self.returned);
            LEASES_LOST.set(store(name), self.lost);
            LEASES_LEFT.set(store(name), self.left);
            LEASES_KEYS.set(store(name), self.keys);
            LEASES_NODES.set(store(name), self.nodes);
            LEASES_UNDERSHOOT.set(store(name), self.undershoot_bound);
            LEASES_OVERSHOOT.set(store(name), self.overshoot_bound);
        }
    }

    impl<S: Publish + Backend<Error = Error>, Rule: Leasable, C> Publish for Leased<S, Rule, C> {
        fn publish(&self, name: &str) {
            self.stats().publish(name);
            self.get_ref().publish(name);
            // With what leases could not give back, which the store does not know.
            publish_unsettled(self, name);
        }
    }
}

#[cfg(feature = "tokio")]
mod synced {
    use super::{Publish, store};
    use crate::{
        algorithm::Syncable,
        observe::metrics::families::{
            SYNC_ADMITTED, SYNC_CALLS, SYNC_CROWDED, SYNC_CUT_OFF, SYNC_CUT_OFF_BOUND, SYNC_DRIFT,
            SYNC_DROPPED, SYNC_FAILED, SYNC_IN_STORE, SYNC_KEYS, SYNC_LEAST_SHARE, SYNC_LOST,
            SYNC_MEAN_SHARE, SYNC_MOST_SHARE, SYNC_NODES, SYNC_OVERSHOOT, SYNC_REFUSED,
            SYNC_STALENESS, SYNC_TOLD, SYNC_UNDERSHOOT, SYNC_UNSYNCED, SYNC_WAITED,
        },
        store::{SyncStats, Synced},
        time::Clock,
    };

    impl Publish for SyncStats {
        fn publish(&self, name: &str) {
            SYNC_ADMITTED.set(store(name), self.admitted);
            SYNC_REFUSED.set(store(name), self.refused);
            SYNC_CUT_OFF.set(store(name), self.cut_off);
            SYNC_WAITED.set(store(name), self.waited);
            SYNC_IN_STORE.set(store(name), self.in_store);
            SYNC_CROWDED.set(store(name), self.crowded);
            SYNC_CALLS.set(store(name), self.syncs);
            SYNC_FAILED.set(store(name), self.failed);
            SYNC_TOLD.set(store(name), self.told);
            SYNC_DROPPED.set(store(name), self.dropped);
            SYNC_UNSYNCED.set(store(name), self.unsynced);
            SYNC_STALENESS.set(store(name), self.staleness_nanos);
            SYNC_LOST.set(store(name), self.lost);
            SYNC_DRIFT.set(store(name), self.drift);
            SYNC_LEAST_SHARE.set(store(name), self.least_share);
            SYNC_MEAN_SHARE.set(store(name), self.mean_share);
            SYNC_MOST_SHARE.set(store(name), self.most_share);
            SYNC_KEYS.set(store(name), self.keys);
            SYNC_NODES.set(store(name), self.nodes);
            SYNC_OVERSHOOT.set(store(name), self.overshoot_bound);
            SYNC_UNDERSHOOT.set(store(name), self.undershoot_bound);
            SYNC_CUT_OFF_BOUND.set(store(name), self.cut_off_bound);
        }
    }

    impl<S: Publish, Rule: Syncable, C: Clock> Publish for Synced<S, Rule, C> {
        fn publish(&self, name: &str) {
            self.stats().publish(name);
            self.get_ref().publish(name);
        }
    }
}

impl<S: Publish + Backend<Error = Error>, C: Clock> Publish for CircuitBreaker<S, C> {
    fn publish(&self, name: &str) {
        let current = self.state();
        let states = [
            ("closed", CircuitState::Closed),
            ("half_open", CircuitState::HalfOpen),
            ("open", CircuitState::Open),
        ];
        for (label, state) in states {
            let mut labels = store(name);
            labels.push(Label::from_static_parts("state", label));
            CIRCUIT_STATE.set(labels, u64::from(state == current));
        }
        CIRCUIT_OPENED.set(store(name), self.opened());
        CIRCUIT_REJECTED.set(store(name), self.rejected());
        CIRCUIT_PROBES.set(store(name), self.probes());
        publish_unsettled(self, name);
        self.get_ref().publish(name);
    }
}

impl<S: Publish, Rule, C> Publish for RememberRefusals<S, Rule, C> {
    fn publish(&self, name: &str) {
        REMEMBERED_REFUSALS.set(store(name), self.len() as u64);
        REMEMBERED_HITS.set(store(name), self.hits());
        REMEMBERED_STORED.set(store(name), self.remembered());
        REMEMBERED_EVICTED.set(store(name), self.evicted());
        self.get_ref().publish(name);
    }
}

impl<S: Publish, C> Publish for Blocks<S, C> {
    fn publish(&self, name: &str) {
        BLOCKS_MADE.set(store(name), self.made());
        BLOCKS_FAILED.set(store(name), self.failed());
        BLOCKS_REFUSED.set(store(name), self.refused());
        BLOCKS_UNCOUNTED.set(store(name), self.uncounted());
        self.get_ref().publish(name);
    }
}

/// Publishes the settlements that failed, if the store counts them. An outer store counts at least those of the store in it.
pub(super) fn publish_unsettled(backend: &impl Backend, name: &str) {
    if let Some(unsettled) = backend.unsettled() {
        STORE_UNSETTLED.set(store(name), unsettled);
    }
}

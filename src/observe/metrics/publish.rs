//! The counters of stores, wrappers, layers and responders, as metrics.

use std::sync::Arc;

use metrics::Label;

use super::families::{
    BLOCKS_FAILED, BLOCKS_MADE, BLOCKS_REFUSED, BLOCKS_UNCOUNTED, CIRCUIT_OPENED, CIRCUIT_PROBES,
    CIRCUIT_REJECTED, CIRCUIT_STATE, FALLBACK_DECIDED, FALLBACK_TURNED_AWAY, LAYER_CANCELLED,
    LAYER_COLLISIONS, LAYER_MISCONFIGURED, LAYER_UNSETTLED, LOCAL_CAPACITY, LOCAL_EVICTED,
    LOCAL_FORGOTTEN, LOCAL_HELD_BACK, LOCAL_INSERTED, LOCAL_KEYS, LOCAL_LET_THROUGH,
    LOCAL_RETURNED, LOCAL_TURNED_AWAY, LOCAL_UNSETTLED, REMEMBERED_EVICTED, REMEMBERED_HITS,
    REMEMBERED_REFUSALS, REMEMBERED_STORED, STORE_CONTENTIONS, STORE_FAILURES, STORE_UNSETTLED,
    STORE_UNSUPPORTED, STORE_UNWRITTEN,
};
use crate::{
    algorithm::Algorithm,
    middleware::RateLimitLayer,
    store::{
        Backend, Blocks, BoxStore, CircuitBreaker, CircuitState, Error, Fallback, Local, OnFailure,
        RememberRefusals, Stats, Transactional,
    },
    time::Clock,
};

/// Sets the metrics of counters that a store, a wrapper or a layer has anyway.
///
/// Call [`publish`](Self::publish) when your exporter is scraped, or once per interval. It sets the metrics of the store and of all stores that
/// it wraps; the page of [`Metrics`](crate::observe::Metrics#metrics) lists them. It allocates, so call it
/// for a scrape and not for a request.
///
/// | published | metrics |
/// |---|---|
/// | [`Local`](crate::store::Local) | `tollgate_local_…` |
/// | `Redis`, `Script` | `tollgate_script_…`, `tollgate_store_unsettled_total` |
/// | `Memcached`, `Optimistic` | `tollgate_cas_…`, `tollgate_store_unsettled_total` |
/// | `MemcachedCounters`, `Counters` | `tollgate_counters_…`, `tollgate_store_unsettled_total` |
/// | `MemcachedConnection`, by itself or as `data()` of its store | `tollgate_memcached_healed_total` |
/// | [`OnFailure`](crate::store::OnFailure) | `tollgate_store_…` |
/// | `Timeout` | `tollgate_store_timeouts_total` |
/// | [`CircuitBreaker`](crate::store::CircuitBreaker) | `tollgate_circuit_…` |
/// | [`RememberRefusals`](crate::store::RememberRefusals) | `tollgate_remembered_refusals…` |
/// | `Leased` | `tollgate_leases_…` |
/// | [`Blocks`](crate::store::Blocks) | `tollgate_blocks_…` |
/// | [`Fallback`](crate::store::Fallback) | `tollgate_fallback_…`, and those of `OnFailure`. Its local store is published as `<name>-local` |
/// | [`BoxStore`](crate::store::BoxStore), [`Transactional`](crate::store::Transactional) | `tollgate_store_unsettled_total`, if the store counts |
/// | [`RateLimitLayer`](crate::RateLimitLayer) | `tollgate_layer_…`, without those of its store |
/// | `Introspect` | `tollgate_introspect_…` |
/// | `respond::DrainBodies` | `tollgate_refused_bodies…` |
///
/// ```
/// use tollgate::{TokenBucket, observe::Publish, prelude::*, store::{BoxStore, Error}};
///
/// fn scraped(remote: BoxStore<TokenBucket, Error>) -> impl Fn() {
///     let store = remote.fall_back_to(Local::new()).share(1, 3);
///     let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(store.clone());
///     // Call it for each scrape, before the metrics are written.
///     move || {
///         store.publish("limits");
///         layer.publish("api");
///     }
/// }
/// # let _: fn(_) -> _ = |remote| scraped(remote);
/// ```
///
/// A store of your own implements it to be published by the wrappers around it:
///
/// ```
/// use tollgate::observe::Publish;
///
/// struct Shards {
///     lost_connections: u64,
/// }
///
/// impl Publish for Shards {
///     fn publish(&self, name: &str) {
///         metrics::counter!("shards_lost_connections_total", "store" => name.to_owned()).absolute(self.lost_connections);
///     }
/// }
/// # Shards { lost_connections: 1 }.publish("shards");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no counters to publish",
    note = "implement `tollgate::observe::Publish` for a store of your own; the function may be empty"
)]
pub trait Publish {
    /// Sets the metrics, with `name` as the label `store`, for a layer as the label `layer`.
    ///
    /// Give each store and each layer a name of its own. A counter never falls: of two stores with one name, the greater count is shown.
    fn publish(&self, name: &str);
}

impl<T: Publish + ?Sized> Publish for Arc<T> {
    fn publish(&self, name: &str) {
        (**self).publish(name);
    }
}

/// Returns the labels of a store.
fn store(name: &str) -> Vec<Label> {
    vec![Label::new("store", name.to_owned())]
}

impl<L, S: Backend, R, O> Publish for RateLimitLayer<L, S, R, O> {
    fn publish(&self, name: &str) {
        let layer = || vec![Label::new("layer", name.to_owned())];
        LAYER_CANCELLED.set(layer(), self.cancelled());
        LAYER_COLLISIONS.set(layer(), self.collisions());
        LAYER_MISCONFIGURED.set(layer(), self.misconfigured());
        LAYER_UNSETTLED.set(layer(), self.unsettled());
    }
}

#[cfg(feature = "introspect")]
mod introspect {
    use metrics::Label;

    use super::Publish;
    use crate::{
        key::introspect::{Introspect, IntrospectStats},
        observe::metrics::families::{
            INTROSPECT_ABORTED, INTROSPECT_CROWDED, INTROSPECT_EXPIRED, INTROSPECT_FAILED,
            INTROSPECT_HITS, INTROSPECT_IN_FLIGHT, INTROSPECT_INVALID, INTROSPECT_LOOKUPS,
            INTROSPECT_REQUESTS, INTROSPECT_SHARED, INTROSPECT_TIMEOUTS, INTROSPECT_TOKENS,
        },
    };

    impl Publish for IntrospectStats {
        fn publish(&self, name: &str) {
            let layer = || vec![Label::new("layer", name.to_owned())];
            INTROSPECT_HITS.set(layer(), self.hits);
            INTROSPECT_LOOKUPS.set(layer(), self.lookups);
            INTROSPECT_SHARED.set(layer(), self.shared);
            INTROSPECT_FAILED.set(layer(), self.failed);
            INTROSPECT_TIMEOUTS.set(layer(), self.timeouts);
            INTROSPECT_INVALID.set(layer(), self.invalid_answers);
            INTROSPECT_ABORTED.set(layer(), self.aborted);
            INTROSPECT_EXPIRED.set(layer(), self.expired);
            INTROSPECT_CROWDED.set(layer(), self.crowded);
            INTROSPECT_IN_FLIGHT.set(layer(), self.in_flight);
            for (outcome, count) in [
                ("anonymous", self.anonymous),
                ("inactive", self.inactive),
                ("malformed", self.malformed),
                ("stale", self.stale),
                ("unavailable", self.unavailable),
                ("unchecked", self.unchecked),
            ] {
                let mut labels = layer();
                labels.push(Label::from_static_parts("outcome", outcome));
                INTROSPECT_REQUESTS.set(labels, count);
            }
            for (state, count) in [("active", self.cached), ("inactive", self.cached_inactive)] {
                let mut labels = layer();
                labels.push(Label::from_static_parts("state", state));
                INTROSPECT_TOKENS.set(labels, count);
            }
        }
    }

    impl<R> Publish for Introspect<R> {
        fn publish(&self, name: &str) {
            self.stats().publish(name);
        }
    }
}

#[cfg(all(feature = "http-body", feature = "tokio"))]
mod drained {
    use metrics::Label;

    use super::Publish;
    use crate::{
        observe::metrics::families::{REFUSED_BODIES, REFUSED_BODIES_IN_FLIGHT},
        respond::{DrainBodies, DrainStats},
    };

    impl Publish for DrainStats {
        fn publish(&self, name: &str) {
            let layer = || vec![Label::new("layer", name.to_owned())];
            for (outcome, count) in [
                ("finished", self.finished),
                ("failed", self.failed),
                ("given_up", self.given_up),
                ("crowded", self.crowded),
                ("no_runtime", self.no_runtime),
            ] {
                let mut labels = layer();
                labels.push(Label::from_static_parts("outcome", outcome));
                REFUSED_BODIES.set(labels, count);
            }
            REFUSED_BODIES_IN_FLIGHT.set(layer(), self.in_flight);
        }
    }

    impl<R> Publish for DrainBodies<R> {
        fn publish(&self, name: &str) {
            self.stats().publish(name);
        }
    }
}

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
fn publish_unsettled(backend: &impl Backend, name: &str) {
    if let Some(unsettled) = backend.unsettled() {
        STORE_UNSETTLED.set(store(name), unsettled);
    }
}

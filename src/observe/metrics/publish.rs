//! The counters of stores, wrappers, layers and responders, as metrics.
//!
//! Counters of stores are published when they are read. The stores count anyway, and a call would
//! pay for each metric twice. A wrapper publishes what it wraps, so one call publishes all.

use std::sync::Arc;

use metrics::Label;

use super::families::{self, labels};
use crate::{
    algorithm::Algorithm,
    middleware::RateLimitLayer,
    store::{
        Backend, Blocks, BoxStore, CircuitBreaker, CircuitState, Fallback, Local, OnFailure,
        RememberRefusals, StoreError, Transactional,
    },
    time::Clock,
};
#[cfg(feature = "redis")]
use crate::{
    algorithm::Scripted,
    store::{Evaluate, ScriptStore},
};
#[cfg(feature = "tokio")]
use crate::{
    algorithm::{Counted, Leasable, Syncable},
    store::{CasStore, CounterStore, Leased, Synced, Timeout},
};

/// Sets metrics from the counters of a store, a wrapper or a layer.
///
/// Call [`publish`](Self::publish) when your exporter is scraped, or once per interval. It sets the
/// metrics of the store and of all stores that it wraps; the [page for
/// operators](crate::operations#all-metrics) lists them. It allocates, so call it for a scrape and
/// not for a request.
///
/// | published | metrics |
/// |---|---|
/// | [`Local`](crate::store::Local) | `tollgate_local_…` |
/// | `Redis`, `ScriptStore` | `tollgate_script_…`, `tollgate_store_unsettled_total` |
/// | `Memcached`, `CasStore` | `tollgate_cas_…`, `tollgate_store_unsettled_total` |
/// | `MemcachedCounters`, `CounterStore` | `tollgate_counters_…`, `tollgate_store_unsettled_total` |
/// | `MemcachedConnection`, by itself or as `data()` of its store | `tollgate_memcached_healed_total` |
/// | [`OnFailure`](crate::store::OnFailure) | `tollgate_store_…` |
/// | `Timeout` | `tollgate_store_timeouts_total` |
/// | [`CircuitBreaker`](crate::store::CircuitBreaker) | `tollgate_circuit_…` |
/// | [`RememberRefusals`](crate::store::RememberRefusals) | `tollgate_remembered_refusals…` |
/// | `Leased` | `tollgate_leases_…` |
/// | [`Blocks`](crate::store::Blocks) | `tollgate_blocks_…` |
/// | [`Fallback`](crate::store::Fallback) | `tollgate_fallback_…`, and those of `OnFailure`. Its local store is published as `<name>-local` |
/// | [`BoxStore`](crate::store::BoxStore), [`Transactional`](crate::store::driver::Transactional) | `tollgate_store_unsettled_total`, if the store counts |
/// | [`RateLimitLayer`](crate::RateLimitLayer) | `tollgate_layer_…`, without those of its store |
/// | `config::RouteLimits` | `tollgate_layer_…`, without collisions, and `tollgate_limits_files_total` |
/// | `Introspect` | `tollgate_introspect_…` |
/// | `respond::DrainBodies` | `tollgate_refused_bodies…` |
/// | `listen::Connections` | `tollgate_connections_…`, `tollgate_accept_errors_total` |
///
/// ```
/// use tollgate::{TokenBucket, observe::Publish, prelude::*, store::{BoxStore, StoreError}};
///
/// fn scraped(remote: BoxStore<TokenBucket, StoreError>) -> impl Fn() {
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
///         metrics::counter!("shards_lost_connections_total", "store" => name.to_owned())
///             .absolute(self.lost_connections);
///     }
/// }
/// # Shards { lost_connections: 1 }.publish("shards");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no counters to publish",
    note = "implement `tollgate::observe::Publish` for a store of your own; the function may be empty"
)]
pub trait Publish {
    /// Sets the metrics, with `name` as the label `store`, for a layer as the label `layer`, for a
    /// listener as the label `listener`.
    ///
    /// Give each store and each layer a name of its own. A counter never falls: of two stores with
    /// one name, the greater count is shown.
    fn publish(&self, name: &str);
}

impl<T: Publish + ?Sized> Publish for Arc<T> {
    fn publish(&self, name: &str) {
        (**self).publish(name);
    }
}

/// Implements [`Publish`] for snapshots, with the label of each.
macro_rules! snapshots {
    ($($(#[$cfg:meta])? $Snapshot:ty as $label:literal;)*) => {
        $(
            $(#[$cfg])?
            impl Publish for $Snapshot {
                fn publish(&self, name: &str) {
                    families::set(self, Self::SERIES, $label, name);
                }
            }
        )*

        /// Registers the units and descriptions of the metrics of all snapshots.
        pub(super) fn describe_snapshots() {
            $(
                $(#[$cfg])?
                families::describe(<$Snapshot>::SERIES);
            )*
        }
    };
}

snapshots! {
    #[cfg(feature = "tokio")]
    crate::respond::DrainStats as "layer";
    #[cfg(feature = "config")]
    crate::config::ReloadStats as "layer";
    #[cfg(feature = "introspect")]
    crate::key::introspect::IntrospectStats as "layer";
    #[cfg(feature = "listen")]
    crate::listen::ConnectionStats as "listener";
    #[cfg(feature = "tokio")]
    crate::store::LeaseStats as "store";
    #[cfg(feature = "tokio")]
    crate::store::SyncStats as "store";
    crate::store::LocalStats as "store";
    #[cfg(feature = "redis")]
    crate::store::ScriptStats as "store";
    #[cfg(feature = "tokio")]
    crate::store::CasStats as "store";
    #[cfg(feature = "tokio")]
    crate::store::CounterStats as "store";
}

/// Returns the labels of a store.
fn store(name: &str) -> Vec<Label> {
    labels("store", name, &[])
}

impl<L, S: Backend, R> Publish for RateLimitLayer<L, S, R> {
    fn publish(&self, name: &str) {
        let layer = || labels("layer", name, &[]);
        families::LAYER_CANCELLED.set(layer(), self.cancelled());
        families::LAYER_COLLISIONS.set(layer(), self.collisions());
        families::LAYER_MISCONFIGURED.set(layer(), self.misconfigured());
        families::LAYER_UNSETTLED.set(layer(), self.unsettled());
    }
}

#[cfg(feature = "config")]
impl<B, S: Backend, R, Out> Publish for crate::config::RouteLimits<B, S, R, Out> {
    fn publish(&self, name: &str) {
        let layer = || labels("layer", name, &[]);
        families::LAYER_CANCELLED.set(layer(), self.cancelled());
        families::LAYER_MISCONFIGURED.set(layer(), self.misconfigured());
        families::LAYER_UNSETTLED.set(layer(), self.unsettled());
        self.reloads().publish(name);
    }
}

#[cfg(feature = "introspect")]
impl<R> Publish for crate::key::introspect::Introspect<R> {
    fn publish(&self, name: &str) {
        self.stats().publish(name);
    }
}

#[cfg(feature = "listen")]
impl Publish for crate::listen::Connections {
    fn publish(&self, name: &str) {
        self.stats().publish(name);
    }
}

#[cfg(feature = "tokio")]
impl<R> Publish for crate::respond::DrainBodies<R> {
    fn publish(&self, name: &str) {
        self.stats().publish(name);
    }
}

impl<A: Algorithm, C> Publish for Local<A, C> {
    fn publish(&self, name: &str) {
        self.stats().publish(name);
    }
}

#[cfg(feature = "redis")]
impl<E, Rule> Publish for ScriptStore<E, Rule>
where
    E: Evaluate,
    Rule: Scripted,
{
    fn publish(&self, name: &str) {
        self.stats().publish(name);
    }
}

#[cfg(feature = "tokio")]
impl<C, Rule, K> Publish for CasStore<C, Rule, K> {
    fn publish(&self, name: &str) {
        self.stats().publish(name);
    }
}

#[cfg(feature = "tokio")]
impl<I, Rule: Counted, K> Publish for CounterStore<I, Rule, K> {
    fn publish(&self, name: &str) {
        self.stats().publish(name);
    }
}

impl<T: Backend, K> Publish for Transactional<T, K> {
    fn publish(&self, name: &str) {
        publish_unsettled(self, name);
    }
}

impl<Rule, E: Send + 'static> Publish for BoxStore<Rule, E> {
    fn publish(&self, name: &str) {
        publish_unsettled(self, name);
    }
}

#[cfg(feature = "memcached")]
impl Publish for crate::store::MemcachedConnection {
    fn publish(&self, name: &str) {
        families::MEMCACHED_HEALED.set(store(name), self.healed());
    }
}

impl<S: Publish + Backend> Publish for OnFailure<S> {
    fn publish(&self, name: &str) {
        families::STORE_FAILURES.set(store(name), self.failures());
        families::STORE_UNWRITTEN.set(store(name), self.unwritten());
        families::STORE_CONTENTIONS.set(store(name), self.contentions());
        families::STORE_UNSUPPORTED.set(store(name), self.unsupported());
        publish_unsettled(self, name);
        self.get_ref().publish(name);
    }
}

impl<S: Publish + Backend, L: Publish, Rule> Publish for Fallback<S, L, Rule> {
    fn publish(&self, name: &str) {
        families::STORE_FAILURES.set(store(name), self.failures());
        families::STORE_UNWRITTEN.set(store(name), self.unwritten());
        families::STORE_CONTENTIONS.set(store(name), self.contentions());
        families::STORE_UNSUPPORTED.set(store(name), self.unsupported());
        families::FALLBACK_DECIDED.set(store(name), self.decided());
        families::FALLBACK_TURNED_AWAY.set(store(name), self.turned_away());
        publish_unsettled(self, name);
        self.remote().publish(name);
        self.local().publish(&format!("{name}-local"));
    }
}

#[cfg(feature = "tokio")]
impl<S: Publish> Publish for Timeout<S> {
    fn publish(&self, name: &str) {
        families::STORE_TIMEOUTS.set(store(name), self.timeouts());
        self.get_ref().publish(name);
    }
}

#[cfg(feature = "tokio")]
impl<S: Publish + Backend<Error = StoreError>, Rule: Leasable, C> Publish for Leased<S, Rule, C> {
    fn publish(&self, name: &str) {
        self.stats().publish(name);
        self.get_ref().publish(name);
        // With what leases could not give back, which the store does not know.
        publish_unsettled(self, name);
    }
}

#[cfg(feature = "tokio")]
impl<S: Publish, Rule: Syncable, C: Clock> Publish for Synced<S, Rule, C> {
    fn publish(&self, name: &str) {
        self.stats().publish(name);
        self.get_ref().publish(name);
    }
}

impl<S: Publish + Backend<Error = StoreError>, C: Clock> Publish for CircuitBreaker<S, C> {
    fn publish(&self, name: &str) {
        let current = self.state();
        let states = [
            ("closed", CircuitState::Closed),
            ("half_open", CircuitState::HalfOpen),
            ("open", CircuitState::Open),
        ];
        for (label, state) in states {
            let labels = labels("store", name, &[("state", label)]);
            families::CIRCUIT_STATE.set(labels, state == current);
        }
        families::CIRCUIT_OPENED.set(store(name), self.opened());
        families::CIRCUIT_REJECTED.set(store(name), self.rejected());
        families::CIRCUIT_PROBES.set(store(name), self.probes());
        publish_unsettled(self, name);
        self.get_ref().publish(name);
    }
}

impl<S: Publish, Rule, C> Publish for RememberRefusals<S, Rule, C> {
    fn publish(&self, name: &str) {
        families::REMEMBERED_REFUSALS.set(store(name), self.len());
        families::REMEMBERED_HITS.set(store(name), self.hits());
        families::REMEMBERED_STORED.set(store(name), self.remembered());
        families::REMEMBERED_EVICTED.set(store(name), self.evicted());
        self.get_ref().publish(name);
    }
}

impl<S: Publish, C> Publish for Blocks<S, C> {
    fn publish(&self, name: &str) {
        families::BLOCKS_MADE.set(store(name), self.made());
        families::BLOCKS_FAILED.set(store(name), self.failed());
        families::BLOCKS_REFUSED.set(store(name), self.refused());
        families::BLOCKS_UNCOUNTED.set(store(name), self.uncounted());
        self.get_ref().publish(name);
    }
}

/// Publishes the number of failed settlements, if the store counts them. An outer store counts at
/// least those of its inner store.
fn publish_unsettled(backend: &impl Backend, name: &str) {
    if let Some(unsettled) = backend.unsettled() {
        families::STORE_UNSETTLED.set(store(name), unsettled);
    }
}

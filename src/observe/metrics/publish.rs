//! The counters of stores, wrappers, layers and responders, as metrics.
//!
//! Counters of stores are published when they are read. The stores count anyway, and a call would
//! pay for each metric twice. A wrapper publishes what it wraps, so one call publishes all.

use std::sync::Arc;

use super::families::{self, CIRCUIT_STATE, Family, STORE_UNSETTLED, labels};
use crate::{
    algorithm::Algorithm,
    middleware::RateLimitLayer,
    store::{
        Backend, Blocks, BoxStore, CircuitBreaker, CircuitState, Fallback, Local, OnFailure,
        RememberRefusals, StoreError, Transactional,
    },
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
    time::Clock,
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

/// Implements [`Publish`] for types with metrics that are no fields of snapshots, and with what
/// they publish of others. The documentation of a metric describes it; without any, another type
/// here describes it.
macro_rules! publish {
    ($(
        $(#[$cfg:meta])?
        impl[$($generics:tt)*] $Type:ty as $kind:literal, |$it:ident, $name:ident| {
            $($(#[doc = $doc:literal])* $metric:literal = $value:expr;)*
        } $(then $others:block)?
    )*) => {
        $(
            $(#[$cfg])?
            impl<$($generics)*> Publish for $Type {
                fn publish(&self, $name: &str) {
                    let $it = self;
                    $(Family($metric).set(labels($kind, $name, &[]), $value);)*
                    $($others)?
                }
            }
        )*

        /// The metrics that are no fields of snapshots, and their descriptions.
        pub(super) const OWN: &[(Family, &str)] = &[
            $($((Family($metric), concat!($($doc, "\n"),*)),)*)*
        ];
    };
}

publish! {
    impl[L, S: Backend, R] RateLimitLayer<L, S, R> as "layer", |it, name| {
        /// Delayed or waiting requests that were dropped before their turn.
        "tollgate_layer_cancelled_total" = it.cancelled();
        /// Limits that share the states of this layer's now, as both have no name.
        "tollgate_layer_collisions" = it.collisions();
        /// Requests that were refused, or decided twice, because the server is set up wrongly.
        "tollgate_layer_misconfigured_total" = it.misconfigured();
        /// Charges that may not have been corrected, in the layer's store.
        "tollgate_layer_unsettled_total" = it.unsettled();
    }

    #[cfg(feature = "config")]
    impl[B, S: Backend, R, Out] crate::config::RouteLimits<B, S, R, Out> as "layer", |it, name| {
        "tollgate_layer_cancelled_total" = it.cancelled();
        "tollgate_layer_misconfigured_total" = it.misconfigured();
        "tollgate_layer_unsettled_total" = it.unsettled();
    } then { it.reloads().publish(name); }

    #[cfg(feature = "introspect")]
    impl[R] crate::key::introspect::Introspect<R> as "layer", |it, name| {}
    then { it.stats().publish(name); }

    #[cfg(feature = "listen")]
    impl[] crate::listen::Connections as "listener", |it, name| {}
    then { it.stats().publish(name); }

    #[cfg(feature = "tokio")]
    impl[R] crate::respond::DrainBodies<R> as "layer", |it, name| {}
    then { it.stats().publish(name); }

    impl[A: Algorithm, C] Local<A, C> as "store", |it, name| {}
    then { it.stats().publish(name); }

    #[cfg(feature = "redis")]
    impl[E: Evaluate, Rule: Scripted] ScriptStore<E, Rule> as "store", |it, name| {}
    then { it.stats().publish(name); }

    #[cfg(feature = "tokio")]
    impl[C, Rule] CasStore<C, Rule> as "store", |it, name| {}
    then { it.stats().publish(name); }

    #[cfg(feature = "tokio")]
    impl[I, Rule: Counted] CounterStore<I, Rule> as "store", |it, name| {}
    then { it.stats().publish(name); }

    impl[T: Backend] Transactional<T> as "store", |it, name| {}
    then { publish_unsettled(it, name); }

    impl[Rule, E: Send + 'static] BoxStore<Rule, E> as "store", |it, name| {}
    then { publish_unsettled(it, name); }

    #[cfg(feature = "memcached")]
    impl[] crate::store::MemcachedConnection as "store", |it, name| {
        /// Counters whose value was not a number and was removed.
        "tollgate_memcached_healed_total" = it.healed();
    }

    impl[S: Publish + Backend] OnFailure<S> as "store", |it, name| {
        /// Calls that the store failed.
        "tollgate_store_failures_total" = it.failures();
        /// Calls that failed because the server takes no writes.
        "tollgate_store_unwritten_total" = it.unwritten();
        /// Calls that lost every race for a key.
        "tollgate_store_contentions_total" = it.contentions();
        /// Calls that the store does not support.
        "tollgate_store_unsupported_total" = it.unsupported();
    } then {
        publish_unsettled(it, name);
        it.get_ref().publish(name);
    }

    impl[S: Publish + Backend, L: Publish, Rule] Fallback<S, L, Rule> as "store", |it, name| {
        "tollgate_store_failures_total" = it.failures();
        "tollgate_store_unwritten_total" = it.unwritten();
        "tollgate_store_contentions_total" = it.contentions();
        "tollgate_store_unsupported_total" = it.unsupported();
        /// Calls that the local store decided.
        "tollgate_fallback_decided_total" = it.decided();
        /// Calls that were refused because this node has no share of their rule.
        "tollgate_fallback_turned_away_total" = it.turned_away();
    } then {
        publish_unsettled(it, name);
        it.remote().publish(name);
        it.local().publish(&format!("{name}-local"));
    }

    #[cfg(feature = "tokio")]
    impl[S: Publish] Timeout<S> as "store", |it, name| {
        /// Calls without an answer within the deadline.
        "tollgate_store_timeouts_total" = it.timeouts();
    } then { it.get_ref().publish(name); }

    #[cfg(feature = "tokio")]
    impl[S: Publish + Backend<Error = StoreError>, Rule: Leasable, C] Leased<S, Rule, C>
    as "store", |it, name| {} then {
        it.stats().publish(name);
        it.get_ref().publish(name);
        // With what leases could not give back, which the store does not know.
        publish_unsettled(it, name);
    }

    #[cfg(feature = "tokio")]
    impl[S: Publish, Rule: Syncable, C: Clock] Synced<S, Rule, C> as "store", |it, name| {} then {
        it.stats().publish(name);
        it.get_ref().publish(name);
    }

    impl[S: Publish + Backend<Error = StoreError>] CircuitBreaker<S>
    as "store", |it, name| {
        /// Times that a circuit opened.
        "tollgate_circuit_opened_total" = it.opened();
        /// Calls that failed without reaching the store.
        "tollgate_circuit_rejected_total" = it.rejected();
        /// Calls that probed the store while the circuit was half-open.
        "tollgate_circuit_probes_total" = it.probes();
    } then {
        let current = it.state();
        let states = [
            ("closed", CircuitState::Closed),
            ("half_open", CircuitState::HalfOpen),
            ("open", CircuitState::Open),
        ];
        for (label, state) in states {
            let labels = labels("store", name, &[("state", label)]);
            CIRCUIT_STATE.set(labels, state == current);
        }
        publish_unsettled(it, name);
        it.get_ref().publish(name);
    }

    impl[S: Publish, Rule, C] RememberRefusals<S, Rule, C> as "store", |it, name| {
        /// Cached refusals, including those that have ended.
        "tollgate_remembered_refusals" = it.len();
        /// Calls that were refused from the cache.
        "tollgate_remembered_refusals_hits_total" = it.hits();
        /// Refusals that were stored in the cache.
        "tollgate_remembered_refusals_stored_total" = it.remembered();
        /// Refusals that were evicted from the cache before they ended.
        "tollgate_remembered_refusals_evicted_total" = it.evicted();
    } then { it.get_ref().publish(name); }

    impl[S: Publish] Blocks<S> as "store", |it, name| {
        /// Blocks of keys that this process made.
        "tollgate_blocks_made_total" = it.made();
        /// Blocks that could not be made.
        "tollgate_blocks_failed_total" = it.failed();
        /// Calls that were refused because a key was blocked, with those of dry runs.
        "tollgate_blocks_refused_total" = it.refused();
        /// Refusals that do not lead to a block, because too many other keys were refused.
        "tollgate_blocks_uncounted_refusals_total" = it.uncounted();
    } then { it.get_ref().publish(name); }
}

/// Publishes the number of failed settlements, if the store counts them. An outer store counts at
/// least those of its inner store.
fn publish_unsettled(backend: &impl Backend, name: &str) {
    if let Some(unsettled) = backend.unsettled() {
        STORE_UNSETTLED.set(labels("store", name, &[]), unsettled);
    }
}

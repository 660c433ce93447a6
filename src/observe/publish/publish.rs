//! The trait of what has counters.

use std::sync::Arc;

use metrics::Label;

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
pub(super) fn store(name: &str) -> Vec<Label> {
    vec![Label::new("store", name.to_owned())]
}

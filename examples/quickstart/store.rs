//! The store of the limit: in memory, in Redis or in memcached, and the wrappers around a store
//! that can fail.

use std::{convert::Infallible, time::Duration};

use tollgate::{
    AnyRule, Cost, Policy,
    algorithm::FleetRule,
    key::Key,
    store::{
        self, BoxStore, CircuitBreaker, CircuitBreakerConfig, Local, Store, StoreExt, Timeout,
        driver::{Ask, Check},
    },
};
#[cfg(feature = "memcached")]
use tollgate::{
    algorithm::Counted,
    store::{Memcached, MemcachedConnection, MemcachedCounters},
};

use crate::{
    flags::{Args, OnStoreError, StoreLocation},
    handover::Handover,
};

/// A store chosen at run time, which never fails: `--on-store-error` decides about errors.
///
/// An application with a fixed store needs neither the box nor most of this file:
/// `.store(Redis::<TokenBucket>::connect(url).await?.fail_open())`.
pub(crate) type AnyStore = BoxStore<AnyRule, Infallible>;
/// A store whose calls can fail.
type Remote = BoxStore<AnyRule, store::StoreError>;
/// A store whose calls end soon, also while its server is silent.
type Guarded = CircuitBreaker<Timeout<Remote>>;
/// A store, and what it must get before the server ends.
type Opened = (AnyStore, Handover);

/// The first and the longest pause of the circuit breaker after a failure.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// Opens the store named by the arguments, or returns a sentence that says why it cannot be used.
pub(crate) async fn open(args: &Args) -> Result<Opened, String> {
    match &args.store {
        StoreLocation::Memory => Ok((Local::new().boxed(), Handover::nothing())),
        #[cfg(feature = "redis")]
        StoreLocation::Redis(url) => redis(url, args).await,
        #[cfg(feature = "memcached")]
        StoreLocation::Memcached(url) => memcached(url, args).await,
    }
}

#[cfg(feature = "redis")]
async fn redis(url: &str, args: &Args) -> Result<Opened, String> {
    let builder = store::Redis::<AnyRule>::builder(url).response_timeout(connection_timeout(args));
    let now = builder.clone().connect().await;
    let (redis, is_there) = now_or_later(now, || builder.connect_lazy(), args)?;
    guard(redis.boxed(), is_there, args).await
}

/// Counts windows. Runs all other rules by compare-and-swap, and all rules if units are leased.
#[cfg(feature = "memcached")]
async fn memcached(url: &str, args: &Args) -> Result<Opened, String> {
    let builder = MemcachedConnection::builder(url).response_timeout(connection_timeout(args));
    let now = builder.clone().connect().await;
    let (connection, is_there) = now_or_later(now, || builder.connect_lazy(), args)?;
    // A file may have any rule.
    let counts = args.lease.is_none() && args.config.is_none() && args.rule.slicing().is_ok();
    let store = if counts {
        MemcachedCounters::<AnyRule>::new(connection).boxed()
    } else {
        // Shorter than the timeout of a request, so that a lost race is reported as contention and
        // not as a silent server.
        let deadline = args.store_timeout * 4 / 5;
        let swaps = Memcached::<AnyRule>::builder_on(connection).deadline(deadline);
        swaps.build().boxed()
    };
    guard(store, is_there, args).await
}

/// Returns a timeout longer than that of a request, so that one slow answer does not close the
/// connection.
fn connection_timeout(args: &Args) -> Duration {
    args.store_timeout + Duration::from_secs(1)
}

/// Returns the connection, and `true` if the server answers. If it does not, `open` and `local`
/// start with a connection that the first request opens. An application that wants only that calls
/// `connect_lazy`.
fn now_or_later<T>(
    now: Result<T, store::StoreError>,
    later: impl FnOnce() -> Result<T, store::StoreError>,
    args: &Args,
) -> Result<(T, bool), String> {
    let error = match now {
        Ok(there) => return Ok((there, true)),
        Err(error) => error,
    };
    let is_gone = error.is_unavailable() || error.is_timeout();
    let sentence = describe(args, &error);
    if !(is_gone && args.starts_without) {
        return Err(sentence);
    }
    eprintln!(
        "quickstart: {sentence}; starting without it, as --on-store-error says, until it is there"
    );
    let later = later().map_err(|error| describe(args, &error))?;
    Ok((later, false))
}

fn describe(args: &Args, error: &store::StoreError) -> String {
    let advice = if error.is_unavailable() && !args.starts_without {
        "; or name another one, or start without it by --on-store-error open or local"
    } else {
        ""
    };
    format!("--store {}: {error}{advice}", args.store)
}

/// Wraps a store that can fail. From the inside out: a timeout, a circuit breaker, leases or
/// background synchronisation, remembered refusals, and a fallback.
async fn guard(remote: Remote, is_there: bool, args: &Args) -> Result<Opened, String> {
    let rule = &args.rule;
    // A rule that this store cannot run must fail at the start, not in every request.
    let policy = Policy::default();
    let ask = Ask::new(&policy, rule, Key::shared("start"), Cost::ONE);
    let answer = remote.look(&[ask]);
    if is_there || matches!(answer, Check::Ready(_)) {
        answer.await.map_err(|error| describe(args, &error))?;
    }
    let store = remote
        .timeout(args.store_timeout)
        .circuit_breaker(CircuitBreakerConfig::new().open_for(PAUSES[0], PAUSES[1]));
    let (store, handover) = fleet(store, args);
    // Of a rule that cannot be leased, or not for so long, or pushed later.
    let flag = if args.sync.is_some() {
        "--sync"
    } else {
        "--lease"
    };
    let fits = Store::fits(&store, rule);
    fits.map_err(|error| format!("{flag}: {error}"))?;
    let store = if args.remember_refusals {
        store.remember_refusals().boxed()
    } else {
        store
    };
    let store = match args.on_store_error {
        OnStoreError::Open => store.fail_open().boxed(),
        OnStoreError::Closed => store.fail_closed().boxed(),
        OnStoreError::Local => {
            let nodes = args.nodes;
            let share = rule.node_share(1, nodes).map_err(|error| {
                format!("--on-store-error local, --nodes {nodes}: {error}; here, take `open` or `closed`")
            })?;
            // With a rule that surely has a share: `.share(1, nodes)`.
            let local = store.fall_back_to(Local::new());
            local.rule(move |_: &AnyRule| Some(share.clone())).boxed()
        }
    };
    Ok((store, handover))
}

/// Adds leases if `--lease` is given, or background synchronisation if `--sync` is.
fn fleet(store: Guarded, args: &Args) -> (Remote, Handover) {
    match (&args.lease, &args.sync) {
        (Some(config), _) => {
            let leased = store.leased(config.clone());
            (leased.clone().boxed(), Handover::of_leases(leased))
        }
        (None, Some(config)) => {
            let synced = store.synced(config.clone());
            (synced.clone().boxed(), Handover::of_admissions(synced))
        }
        (None, None) => (store.boxed(), Handover::nothing()),
    }
}

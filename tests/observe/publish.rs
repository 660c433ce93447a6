//! Counters of stores, wrappers and layers as metrics.

use std::{convert::Infallible, pin::pin, time::Duration};

use futures_util::poll;
use http::{Request, Response};
use metrics_util::debugging::DebuggingRecorder;
use tollgate::{
    AnyRule, Cost, FixedWindow, Limiter, Policy, RateLimitLayer, TokenBucket,
    algorithm::Blockable,
    observe::Publish,
    store::{
        CasStats, CircuitBreakerConfig, CircuitState, CounterStats, LeaseConfig, LeaseStats, Local,
        LocalStats, Memcached, MemcachedConnection, MemcachedCounters, Redis, ScriptStats, Store,
        StoreExt, SyncStats, driver::Ask,
    },
    testing::{Fault, Faulty},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    metrics::{Values, lines, values},
    requests::memory,
};

/// Publishes one of everything, so that each metric has a value.
pub(crate) fn publish_everything() {
    tollgate::respond::Http::new().drain_bodies().publish("api");
    #[cfg(feature = "introspect")]
    tollgate::key::introspect::IntrospectStats::default().publish("api");
    #[cfg(feature = "listen")]
    tollgate::listen::Connections::default().publish("public");
    #[cfg(feature = "config")]
    tollgate::config::RouteLimits::<()>::new("default.limits = []")
        .unwrap()
        .publish("api");
    LocalStats::default().publish("any");
    ScriptStats::default().publish("any");
    CasStats::default().publish("any");
    CounterStats::default().publish("any");
    SyncStats::default().publish("any");
    MemcachedConnection::connect_lazy("memcached://127.0.0.1:1")
        .unwrap()
        .publish("any");
    let store = Faulty::new(Local::<TokenBucket>::new())
        .timeout(Duration::from_secs(1))
        .circuit_breaker(CircuitBreakerConfig::new())
        .leased(LeaseConfig::new())
        .remember_refusals()
        .fall_back_to(Local::new())
        .share(1, 2);
    store.publish("any");
    Local::<Blockable<TokenBucket>>::new()
        .with_blocks()
        .publish("any");
    RateLimitLayer::new(TokenBucket::per_second(100))
        .store(store)
        .publish("any");
}

fn published(publish: impl FnOnce()) -> Values {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, publish);
    values(&recorder.snapshotter())
}

/// Sets the fields of a store's counters, and expects that each has a metric of its own:
/// `field: value, metric;`.
macro_rules! assert_published {
    ($stats:ident { $($field:ident: $value:literal, $metric:literal;)+ }) => {{
        let mut stats = $stats::default();
        $(stats.$field = $value;)+
        let expected = [$((concat!("tollgate_", $metric, "{store=a}"), stringify!($value))),+];
        let expected = expected.map(|(metric, value)| (metric.to_owned(), value.to_owned()));
        assert_eq!(published(|| stats.publish("a")), Values::from(expected));
    }};
}

#[test]
fn the_counters_of_stores_are_published_field_by_field() {
    assert_published!(LocalStats {
        keys: 2, "local_keys";
        capacity: 3, "local_capacity";
        waiting: 31, "local_waiting";
        inserted: 5, "local_inserted_total";
        forgotten: 7, "local_forgotten_total";
        returned: 11, "local_returned_total";
        evicted: 13, "local_evicted_total";
        held_back: 17, "local_held_back_total";
        turned_away: 19, "local_turned_away_total";
        let_through: 23, "local_let_through_total";
        unsettled: 29, "local_unsettled_total";
    });
    assert_published!(ScriptStats {
        requests: 2, "script_requests_total";
        calls: 3, "script_calls_total";
        healed: 5, "script_healed_total";
        unsettled: 7, "store_unsettled_total";
    });
    assert_published!(CasStats {
        loads: 2, "cas_loads_total";
        swaps: 3, "cas_swaps_total";
        lost: 5, "cas_lost_total";
        contended: 7, "cas_contended_total";
        healed: 11, "cas_healed_total";
        newer: 13, "cas_newer_total";
        unsettled: 17, "store_unsettled_total";
    });
    assert_published!(CounterStats {
        additions: 2, "counters_additions_total";
        readings: 3, "counters_readings_total";
        taken_back: 5, "counters_taken_back_total";
        left_behind: 7, "counters_left_behind_total";
        unsettled: 11, "store_unsettled_total";
        cut: 13, "counters_cut_total";
        doubtful: 17, "counters_doubtful_units_total";
    });
    assert_published!(LeaseStats {
        asked: 2, "leases_asked_total";
        admitted: 3, "leases_admitted_total";
        refused: 5, "leases_refused_total";
        over_capacity: 7, "leases_over_capacity_total";
        failed: 11, "leases_failed_total";
        keys: 13, "leases_keys";
        granted: 17, "leases_granted_units_total";
        spent: 19, "leases_spent_units_total";
        left: 23, "leases_left_units";
        expired: 29, "leases_expired_units_total";
        returned: 31, "leases_returned_units_total";
        lost: 37, "leases_lost_units_total";
        nodes: 41, "leases_nodes";
        undershoot_bound: 43, "leases_undershoot_bound_units";
        overshoot_bound: 47, "leases_overshoot_bound_units";
    });
    assert_published!(SyncStats {
        admitted: 2, "sync_admitted_total";
        refused: 3, "sync_refused_total";
        offline: 5, "sync_offline_total";
        waited: 7, "sync_waited_total";
        in_store: 11, "sync_in_store_total";
        over_capacity: 13, "sync_over_capacity_total";
        syncs: 17, "sync_calls_total";
        failed: 19, "sync_failed_total";
        pushed: 23, "sync_pushed_units_total";
        dropped: 29, "sync_dropped_units_total";
        unsynced: 31, "sync_unsynced_units";
        staleness_nanos: 37, "sync_staleness_nanoseconds";
        drift: 41, "sync_drift_units";
        keys: 43, "sync_keys";
        nodes: 47, "sync_nodes";
        overshoot_bound: 53, "sync_overshoot_bound_units";
        undershoot_bound: 59, "sync_undershoot_bound_units";
        lost: 61, "sync_lost_units_total";
        least_share: 67, "sync_least_share_permille";
        mean_share: 71, "sync_mean_share_permille";
        most_share: 73, "sync_most_share_permille";
        offline_bound: 79, "sync_offline_bound_units";
    });
}

/// A store that is published shows its own counters, whatever its server.
#[tokio::test]
async fn remote_stores_publish_their_counters() {
    let redis = Redis::<TokenBucket>::connect_lazy("redis://127.0.0.1:1").unwrap();
    let memcached = Memcached::<TokenBucket>::connect_lazy("memcached://127.0.0.1:1").unwrap();
    let counters =
        MemcachedCounters::<FixedWindow>::connect_lazy("memcached://127.0.0.1:1").unwrap();
    let values = published(|| {
        redis.publish("redis");
        memcached.publish("memcached");
        counters.publish("counters");
        counters.data().publish("counters");
    });
    let count = |part: &str| values.keys().filter(|name| name.contains(part)).count();
    assert_eq!(count("store=redis"), 4);
    assert_eq!(count("store=memcached"), 7);
    assert_eq!(count("store=counters"), 8);
    assert_eq!(values.len(), 19);
}

/// The numbers of a stack of wrappers, by hand.
#[tokio::test(start_paused = true)]
async fn a_store_publishes_all_that_it_wraps() {
    let faulty = Faulty::new(memory());
    let faults = faulty.faults();
    let remote = faulty
        .timeout(Duration::from_secs(1))
        .circuit_breaker(CircuitBreakerConfig::new().failures(3))
        .remember_refusals();
    let store = remote.fall_back_to(Local::new()).share(1, 2);
    let (policy, rule) = (Policy::new("api"), "token-bucket 2/1h".parse().unwrap());
    let call = async |key: &str| {
        let ask = [Ask::new(&policy, &rule, key.into(), Cost::ONE)];
        let Ok(decisions) = Store::<AnyRule>::acquire(&store, &ask).await;
        decisions.is_admitted()
    };

    // Two admissions, a refusal of the store, and two from the cache.
    let mut admitted = Vec::new();
    for _ in 0..5 {
        admitted.push(call("alice").await);
    }
    assert_eq!(admitted, [true, true, false, false, false]);
    // A lost race, which the local store does not decide.
    faults.script([Some(Fault::Contended)]);
    assert!(!call("bob").await);
    // Two failures and a silence open the circuit, and two calls do not reach the store. The local
    // store admits one of five.
    faults.script([
        Some(Fault::Unavailable),
        Some(Fault::Unavailable),
        Some(Fault::Silent),
    ]);
    let mut admitted = 0;
    for _ in 0..5 {
        admitted += u32::from(call("bob").await);
    }
    assert_eq!(admitted, 1);
    let breaker = store.remote().get_ref();
    assert_eq!(breaker.state(), CircuitState::Open);
    assert_eq!(breaker.get_ref().timeouts(), 1);

    let mut found = published(|| store.publish("limits"));
    let expected = lines(
        "tollgate_store_failures_total{store=limits} 5
        tollgate_store_contentions_total{store=limits} 1
        tollgate_store_unwritten_total{store=limits} 0
        tollgate_store_unsupported_total{store=limits} 0
        tollgate_store_unsettled_total{store=limits} 0
        tollgate_store_timeouts_total{store=limits} 1
        tollgate_fallback_decided_total{store=limits} 5
        tollgate_fallback_turned_away_total{store=limits} 0
        tollgate_circuit_state{store=limits,state=closed} 0
        tollgate_circuit_state{store=limits,state=half_open} 0
        tollgate_circuit_state{store=limits,state=open} 1
        tollgate_circuit_opened_total{store=limits} 1
        tollgate_circuit_rejected_total{store=limits} 2
        tollgate_circuit_probes_total{store=limits} 0
        tollgate_remembered_refusals{store=limits} 1
        tollgate_remembered_refusals_hits_total{store=limits} 2
        tollgate_remembered_refusals_stored_total{store=limits} 1
        tollgate_remembered_refusals_evicted_total{store=limits} 0
        tollgate_local_keys{store=limits} 1
        tollgate_local_inserted_total{store=limits} 1
        tollgate_local_keys{store=limits-local} 1
        tollgate_local_inserted_total{store=limits-local} 1",
    );
    found.retain(|name, value| !name.starts_with("tollgate_local_") || value != "0");
    found.retain(|name, _| !name.starts_with("tollgate_local_capacity"));
    assert_eq!(found, expected);
}

/// A count never falls and is not added up, however often it is published.
#[tokio::test(start_paused = true)]
async fn publishing_again_shows_the_latest_count() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let faulty = Faulty::new(memory());
    faulty.faults().always(Fault::Unavailable);
    let store = faulty.fail_open();
    let (policy, rule) = (Policy::new("api"), "token-bucket 2/1h".parse().unwrap());
    for failures in 1..=3_u64 {
        let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
        let Ok(_) = Store::<AnyRule>::acquire(&store, &ask).await;
        for _ in 0..2 {
            store.publish("limits");
            let values = values(&recorder.snapshotter());
            let found = &values["tollgate_store_failures_total{store=limits}"];
            assert_eq!(found, &failures.to_string());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_publishes_what_it_counts() {
    let rule: AnyRule = "leaky-bucket 1/10s queue=2".parse().unwrap();
    let layer = RateLimitLayer::new(rule).store(memory());
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let request = || Request::new(());
    service.clone().oneshot(request()).await.unwrap();
    for _ in 0..2 {
        let mut call = pin!(service.clone().oneshot(request()));
        assert!(poll!(call.as_mut()).is_pending());
    }
    let expected = lines(
        "tollgate_layer_cancelled_total{layer=api} 2
        tollgate_layer_collisions{layer=api} 0
        tollgate_layer_misconfigured_total{layer=api} 0
        tollgate_layer_unsettled_total{layer=api} 0",
    );
    assert_eq!(published(|| layer.publish("api")), expected);
}

/// A reload makes limits collide until the last service of the old one is gone.
#[tokio::test]
async fn collisions_are_published_as_a_number_that_falls() {
    let store = memory();
    let layer = |rule: &str| {
        let rule: AnyRule = rule.parse().unwrap();
        RateLimitLayer::new(rule).store(store.clone())
    };
    let inner =
        || service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let (old, new) = (layer("token-bucket 3/1h"), layer("token-bucket 5/1h"));
    let connection = old.layer(inner());
    connection.clone().oneshot(Request::new(())).await.unwrap();
    let response = new.layer(inner()).oneshot(Request::new(())).await;
    response.unwrap();
    drop(old);
    let recorder = DebuggingRecorder::new();
    let collisions = || {
        metrics::with_local_recorder(&recorder, || new.publish("api"));
        values(&recorder.snapshotter())["tollgate_layer_collisions{layer=api}"].clone()
    };
    assert_eq!(collisions(), "1");
    drop(connection);
    assert_eq!(collisions(), "0");
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_responder_publishes_the_bodies_that_it_reads() {
    use axum::body::Body;
    use tollgate::respond::Http;

    let respond = Http::new().drain_bodies();
    let layer = RateLimitLayer::new(TokenBucket::per_hour(1)).respond(respond.clone());
    let service = layer.layer(service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    // The first one is admitted, and the last one has no end.
    let endless = Body::from_stream(futures_util::stream::pending::<Result<String, Infallible>>());
    for body in [Body::from("a"), Body::from("bc"), Body::empty(), endless] {
        service.clone().oneshot(Request::new(body)).await.unwrap();
    }
    while respond.stats().finished == 0 {
        tokio::task::yield_now().await;
    }
    let expected = lines(
        "tollgate_refused_bodies_total{layer=api,outcome=finished} 1
        tollgate_refused_bodies_total{layer=api,outcome=failed} 0
        tollgate_refused_bodies_total{layer=api,outcome=given_up} 0
        tollgate_refused_bodies_total{layer=api,outcome=over_capacity} 0
        tollgate_refused_bodies_total{layer=api,outcome=no_runtime} 0
        tollgate_refused_bodies_in_flight{layer=api} 1",
    );
    assert_eq!(published(|| respond.publish("api")), expected);
}

#[cfg(feature = "introspect")]
#[tokio::test]
async fn an_introspection_layer_publishes_what_it_counts() {
    use tollgate::key::introspect::{Claims, Introspect, Token};
    use tower::BoxError;

    let look_up = async |token: Token| -> Result<Option<Claims>, BoxError> {
        match token.expose() {
            "down" => Err("down".into()),
            token => Ok((token == "good").then(Claims::new)),
        }
    };
    let layer = Introspect::new(look_up);
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    for credentials in [
        "Bearer good",
        "Bearer good",
        "Bearer bad",
        "Bearer down",
        "Bearer",
        "Basic a",
    ] {
        let request = Request::builder().header("authorization", credentials);
        service
            .clone()
            .oneshot(request.body(()).unwrap())
            .await
            .unwrap();
    }
    let expected = lines(
        "tollgate_introspect_aborted_total{layer=api} 0
        tollgate_introspect_over_capacity_total{layer=api} 0
        tollgate_introspect_expired_total{layer=api} 0
        tollgate_introspect_failed_total{layer=api} 1
        tollgate_introspect_hits_total{layer=api} 1
        tollgate_introspect_in_flight{layer=api} 0
        tollgate_introspect_invalid_answers_total{layer=api} 0
        tollgate_introspect_lookups_total{layer=api} 3
        tollgate_introspect_requests_total{layer=api,outcome=anonymous} 1
        tollgate_introspect_requests_total{layer=api,outcome=inactive} 1
        tollgate_introspect_requests_total{layer=api,outcome=malformed} 1
        tollgate_introspect_requests_total{layer=api,outcome=stale} 0
        tollgate_introspect_requests_total{layer=api,outcome=unavailable} 1
        tollgate_introspect_requests_total{layer=api,outcome=unchecked} 0
        tollgate_introspect_shared_total{layer=api} 0
        tollgate_introspect_timeouts_total{layer=api} 0
        tollgate_introspect_tokens{layer=api,state=active} 1
        tollgate_introspect_tokens{layer=api,state=inactive} 1",
    );
    assert_eq!(published(|| layer.publish("api")), expected);
}

/// One block, two calls that it refuses, and a refusal by the limit itself.
#[test]
fn the_counters_of_blocks_are_published() {
    let store = Local::new().with_blocks();
    let limiter = Limiter::new(
        Policy::new("api"),
        "token-bucket 1/1h".parse::<AnyRule>().unwrap(),
        store.clone(),
    );
    let admitted = |key: &str| limiter.check(key, Cost::ONE).at_once().is_admitted();
    let blocked = limiter.block("mallory", Duration::from_secs(60)).unwrap();
    assert!(blocked.at_once().is_some());
    assert!(!admitted("mallory") && !admitted("mallory"));
    assert!(admitted("alice") && !admitted("alice"));

    let values = published(|| store.publish("limits"));
    let value = |name: &str| values[&format!("tollgate_blocks_{name}{{store=limits}}")].clone();
    assert_eq!(value("made_total"), "1");
    assert_eq!(value("failed_total"), "0");
    assert_eq!(value("refused_total"), "2");
    assert_eq!(value("uncounted_refusals_total"), "0");
}

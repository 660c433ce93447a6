//! Stores that several nodes share refuse the rule: what a dead node holds would stay held.

use tokio::runtime::Runtime;
use tollgate::{
    AnyRule, Policy, RateLimitLayer,
    key::Key,
    store::{
        Backend, LeaseConfig, Local, LocalBuilder, Memcached, Redis, Store, StoreExt, SyncConfig,
        driver::{Ask, Check, Never, Settlement},
    },
    testing::conformance::{Law, Suite},
    time::ManualClock,
};

#[test]
fn shared_stores_refuse_it_when_a_layer_is_made() {
    let runtime = Runtime::new().unwrap();
    let _in_it = runtime.enter();
    let rule: AnyRule = "in-flight 8".parse().unwrap();
    let url = "redis://127.0.0.1:1";
    let redis = || Redis::<AnyRule>::connect_lazy(url).unwrap();
    let memcached = Memcached::<AnyRule>::connect_lazy("memcached://127.0.0.1:1").unwrap();
    let in_memory_only = "counts calls in flight without a lease, in a store that nodes share";
    for error in [
        redis().fits(&rule).unwrap_err(),
        memcached.fits(&rule).unwrap_err(),
        redis().fail_open().fits(&rule).unwrap_err(),
        Store::<AnyRule>::fits(&Redis::connect_lazy(url).unwrap().with_blocks(), &rule)
            .unwrap_err(),
        RateLimitLayer::new(rule.clone())
            .try_store(redis().fail_open())
            .unwrap_err(),
    ] {
        assert!(error.to_string().contains(in_memory_only), "{error}");
    }
    // With a lease they run it, but nobody waits.
    let waits: AnyRule = "in-flight 8 lease=30s wait-at-most=1s".parse().unwrap();
    for error in [
        redis().fits(&waits).unwrap_err(),
        memcached.fits(&waits).unwrap_err(),
    ] {
        let error = error.to_string();
        assert!(error.contains("calls wait for their turn"), "{error}");
    }
    let shared = || Redis::<AnyRule>::connect_lazy(url).unwrap();
    for error in [
        shared().leased(LeaseConfig::new()).fits(&rule).unwrap_err(),
        shared().synced(SyncConfig::new()).fits(&rule).unwrap_err(),
    ] {
        assert!(error.to_string().contains("in-flight 8"), "{error}");
    }
    assert!(Local::<AnyRule>::new().fits(&rule).is_ok());
}

/// The rule keeps the laws of stores, and a store that never gives back does not.
#[tokio::test]
async fn the_conformance_suite_knows_calls_in_flight() {
    let rules = || {
        [
            "in-flight 4",
            "in-flight 7",
            "in-flight 5 max-hold=1h",
            "token-bucket 5/1h",
        ]
        .map(|text| text.parse::<AnyRule>().unwrap())
    };
    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build::<AnyRule>();
    let suite = Suite::with_rules(store, rules())
        .clock(clock)
        .spawn(tokio::spawn);
    let report = suite.run().await.unwrap();
    assert!(report.kept().contains(&Law::Wait) && report.kept().contains(&Law::Timeline));

    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build::<AnyRule>();
    let suite = Suite::with_rules(Leaks(store), rules()).clock(clock);
    let broken = suite.only(Law::Wait).run().await.unwrap_err().to_string();
    assert!(broken.contains("wait"), "{broken}");
}

/// A store that loses settlements.
struct Leaks<S>(S);

impl<S: Backend> Backend for Leaks<S> {
    type Error = S::Error;
}

impl<S: Store<AnyRule>> Store<AnyRule> for Leaks<S> {
    type Answer = S::Answer;
    type Done = Never<Result<(), S::Error>>;

    fn acquire(&self, asks: &[Ask<'_, AnyRule>]) -> Check<S::Answer> {
        self.0.acquire(asks)
    }

    fn look(&self, asks: &[Ask<'_, AnyRule>]) -> Check<S::Answer> {
        self.0.look(asks)
    }

    fn settle(&self, _: Vec<Settlement<'_, AnyRule>>) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }

    fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
}

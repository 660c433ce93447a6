//! Background synchronisation: if a node may not be ahead, it is the wrapped store.

use support::timelines;
use tollgate::{
    AnyRule, Policy, TokenBucket,
    store::{Store, StoreError, StoreExt, SyncConfig, driver::Ask},
    testing::{
        Alternating, Faulty,
        conformance::{Law, Suite},
    },
    time::ManualClock,
};

use super::{
    memory::{Memory, Ways, driver},
    recorder::{Recorder, calls, states},
};

fn exact(clock: &ManualClock) -> SyncConfig<ManualClock> {
    let config = SyncConfig::new().overshoot_percent(0).nodes(3);
    config.clock(clock.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overshoot_of_zero_keeps_all_laws() {
    let clock = ManualClock::default();
    let store = states::<AnyRule>(&clock).synced(exact(&clock));
    let suite = Suite::new(store.clone())
        .clock(clock)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .timelines(timelines());
    let report = suite.run().await.unwrap();
    assert_eq!(report.left_out(), [Law::Fault]);
    assert_eq!(report.kept().len(), Law::ALL.len() - 1);
    let stats = store.stats();
    assert_eq!((stats.admitted, stats.refused, stats.syncs), (0, 0, 0));
    assert!(stats.in_store > 1000, "{stats:?}");
}

/// A store that can take in units is not told any if no node may be ahead. If one may, the suite
/// notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_may_not_be_ahead_are_one_store() {
    for most in [0, 3] {
        let clock = ManualClock::default();
        let memory = Memory::new(clock.clone(), Ways::default());
        let config = SyncConfig::new().max_unsynced(most).nodes(2);
        let node = |number| {
            let store = driver::<AnyRule>(memory.node(number));
            store.synced(config.clone().clock(clock.clone()))
        };
        let (one, other) = (node(1), node(2));
        let rules = [
            "token-bucket 6/1h",
            "token-bucket 6/1h keep-free=2",
            "fixed-window 4/1d",
            "sliding-window 6/1d slices=4",
            "token-bucket 6/1h & fixed-window 4/1d",
        ];
        let rules = rules.map(|rule| rule.parse::<AnyRule>().unwrap());
        let suite = Suite::with_rules(Alternating::new(one.clone(), other), rules)
            .clock(clock)
            .sleep(tokio::time::sleep)
            .spawn(tokio::spawn)
            .settling_back()
            .timelines(timelines())
            .without(Law::Fault);
        let result = suite.run().await;
        match most {
            0 => assert_eq!(result.unwrap().kept().len(), Law::ALL.len() - 1),
            _ => assert!(result.is_err(), "nodes that are ahead are not noticed"),
        }
        assert_eq!(one.stats().syncs > 0, most > 0);
    }
}

/// If a node may not be ahead, the wrapped store is asked the same as without the wrapper, and the
/// answers are its own.
#[tokio::test]
async fn an_overshoot_of_zero_is_the_wrapped_store_call_for_call() {
    for seed in 0..support::cases(50).max(8) {
        let clocks = [(); 2].map(|()| ManualClock::default());
        let [bare, wrapped] = clocks.each_ref().map(Recorder::new);
        let synced = wrapped.clone().synced(exact(&clocks[1]));
        let expected = calls(&bare, &clocks[0], seed).await;
        assert_eq!(calls(&synced, &clocks[1], seed).await, expected);
        let asked = |store: &Recorder| store.asked.lock().unwrap().clone();
        assert_eq!(asked(&wrapped), asked(&bare), "seed {seed}");
        assert!(asked(&bare).len() >= 200);
    }
}

/// A store that cannot take in units decides each call, whatever the settings say.
#[tokio::test]
async fn a_store_that_cannot_take_in_units_decides() {
    let clock = ManualClock::default();
    let store = Faulty::new(states::<TokenBucket>(&clock)).synced(
        SyncConfig::new()
            .max_unsynced(50)
            .nodes(3)
            .clock(clock.clone()),
    );
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(100));
    for n in 0..150 {
        let ask = Ask::new(&policy, &rule, "alice".into(), tollgate::Cost::ONE);
        let decisions: Result<_, StoreError> = store.acquire(&[ask]).await;
        assert_eq!(decisions.unwrap().is_admitted(), n < 100);
    }
    assert_eq!(store.stats().in_store, 150);
}

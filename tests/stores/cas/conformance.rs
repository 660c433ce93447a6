//! The conformance suite.

use std::sync::atomic::Ordering;

use tollgate::{
    AnyRule,
    testing::conformance::{Law, Suite},
    time::ManualClock,
};

use crate::cas::memory::{Memory, Ways, driver};

async fn all_laws_hold(ways: Ways) {
    let clock = ManualClock::default();
    let store = driver::<AnyRule>(Memory::new(clock.clone(), ways));
    let down = store.data().is_down.clone();
    let report = Suite::new(store)
        .clock(clock)
        .spawn(tokio::spawn)
        .fault(move |on| down.store(on, Ordering::Relaxed))
        .settling_back()
        .timelines(support::timelines())
        .run()
        .await
        .unwrap();
    assert_eq!(report.left_out(), [] as [Law; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_on_a_store_that_returns_nothing_optional() {
    all_laws_hold(Ways::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_on_a_store_that_returns_versions() {
    let ways = Ways {
        versions: true,
        gives_way: true,
        ..Ways::default()
    };
    all_laws_hold(ways).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_on_a_store_that_returns_everything_optional() {
    let ways = Ways {
        versions: true,
        found: true,
        time: true,
        ..Ways::default()
    };
    all_laws_hold(ways).await;
}

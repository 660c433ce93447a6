//! The conformance suite, in real time.

use std::{sync::Arc, time::Duration};

use tollgate::{
    AnyRule,
    store::driver::{CasStoreBuilder, CounterStore},
    testing::conformance::{Law, Suite},
};

use crate::common::{Dynalite, connect, dynamo};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold() {
    let server = Dynalite::start();
    let store = CasStoreBuilder::<_, AnyRule>::new(dynamo(&server).await);
    let report = Suite::new(store.deadline(Duration::from_secs(30)).build())
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .settling_back()
        .timelines(support::timelines())
        .run()
        .await
        .unwrap();
    assert_eq!(report.left_out(), [Law::Fault]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_for_counters() {
    let server = Dynalite::start();
    let rules = [
        "fixed-window 4/1d",
        "fixed-window 4/400ms",
        "sliding-window 6/1h slices=4",
    ];
    let rules = rules.map(|rule| rule.parse::<AnyRule>().unwrap());
    let report = Suite::with_rules(CounterStore::new(dynamo(&server).await), rules)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .settling_back()
        .repeating_deltas()
        .without(Law::Change)
        .timelines(support::timelines())
        .run()
        .await
        .unwrap();
    assert_eq!(report.left_out(), [Law::Change, Law::Fault]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_pass_and_the_laws_still_hold() {
    let server = Arc::new(Dynalite::start());
    dynamo(&server).await;
    let dynamo = connect(&server.url()).response_timeout(Duration::from_secs(2));
    let store = CasStoreBuilder::new(dynamo)
        .deadline(Duration::from_secs(4))
        .build();
    // Each call during the silence waits until the timeout.
    let rules = ["token-bucket 5/1h", "fixed-window 4/1d"];
    let rules = rules.map(|rule| rule.parse::<AnyRule>().unwrap());
    let silent = Arc::clone(&server);
    let report = Suite::with_rules(store, rules)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .fault(move |on| if on { silent.pause() } else { silent.resume() })
        .only(Law::Fault)
        .run()
        .await
        .unwrap();
    assert_eq!(report.kept(), [Law::Fault]);
}

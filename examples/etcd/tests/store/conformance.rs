//! The conformance suite on a real server, in real time.

use std::{sync::Arc, time::Duration};

use tollgate::{
    AnyRule,
    store::driver::CasStoreBuilder,
    testing::{
        Alternating,
        conformance::{Law, Suite},
    },
};

use crate::common::{etcd, keys, node, servers};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold() {
    let server = servers::Etcd::start();
    let report = Suite::new(node::<AnyRule>(&server).await)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .settling_back()
        .timelines(support::timelines())
        .run()
        .await
        .unwrap();
    assert_eq!(report.left_out(), [Law::Fault]);
    assert!(keys(&server).await > 0);
}

/// Calls for a key through one connection are combined, and never race in etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_on_two_connections_share_one_limit() {
    let server = servers::Etcd::start();
    let (one, other) = (node::<AnyRule>(&server).await, node(&server).await);
    let report = Suite::new(Alternating::new(one, other))
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .settling_back()
        .only(Law::Race)
        .run()
        .await
        .unwrap();
    assert_eq!(report.kept(), [Law::Race]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_pass_and_the_laws_still_hold() {
    let server = Arc::new(servers::Etcd::start());
    let etcd = etcd(&server).await.response_timeout(Duration::from_secs(2));
    let store = CasStoreBuilder::new(etcd)
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

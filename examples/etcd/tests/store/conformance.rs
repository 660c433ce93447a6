//! The suite that every store passes, on a real server, in real time.

use std::sync::Arc;

use tollgate::{
    AnyRule,
    store::Optimistic,
    testing::conformance::{Law, Suite},
};

use crate::common::{etcd, keys, servers};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold() {
    let server = Arc::new(servers::Etcd::start());
    let store: Optimistic<_, AnyRule> = Optimistic::new(etcd(&server).await);
    let silent = Arc::clone(&server);
    let report = Suite::new(store)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .fault(move |on| if on { silent.pause() } else { silent.resume() })
        .settling_back()
        .run()
        .await
        .unwrap();
    assert_eq!(report.left_out(), [] as [Law; 0]);
    assert!(keys(&server).await > 0);
}

//! A fleet of eight processes with leases on one etcd: never over the limit, and hardly below it.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![allow(clippy::disallowed_methods, reason = "processes live in real time")]

#[path = "../../../../tests/common/fleet/mod.rs"]
mod fleet;

use std::time::Duration;

use etcd_client::ConnectOptions;
use fleet::{
    node::{Orders, serve},
    run::Run,
};
use support::servers;
use tollgate::{TokenBucket, store::driver::CasStoreBuilder};
use tollgate_etcd::Etcd;

/// Does nothing, except in a process that the fleet starts.
#[test]
fn node() {
    let Some(orders) = Orders::read() else { return };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(async {
        let etcd = Etcd::connect(&[&orders.url], ConnectOptions::new()).await;
        let etcd = etcd.unwrap().response_timeout(Duration::from_secs(1));
        let store = CasStoreBuilder::<_, TokenBucket>::new(etcd);
        serve(&orders, store.deadline(Duration::from_secs(3)).build()).await;
    });
}

/// Each write of etcd waits for its log, so there are fewer keys and calls than on other servers.
#[test]
fn etcd_that_is_restarted_with_its_data() {
    let server = servers::Etcd::start();
    let journals = Run {
        node: "node",
        store: "etcd",
        url: server.url(),
        seed: 4,
        keys: 200,
        demand: 80,
        time: Duration::from_secs(7),
        offset: Duration::from_millis(5),
        // More expires of what a node holds, because each ask takes etcd longer.
        used: 90,
        restart: &|| server.restart(),
        forgets: false,
    }
    .check();
    let hot = &journals.sums[0];
    let decisions = hot.asked + hot.admitted + hot.refused;
    assert!(100 * hot.asked <= 13 * decisions, "{hot:?}");
}

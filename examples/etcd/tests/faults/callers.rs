//! Faults must be detected for any number and pace of callers: one caller at several paces, four,
//! and 64.

use tollgate::{key::Key, store::driver::CasStore};

use crate::{
    common::{at_once, connect, servers},
    crowd::{Crowd, RESPONSE},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_closed_for_any_number_of_callers() {
    let server = servers::Etcd::start();
    let proxy = servers::Proxy::start(server.address());
    let clients: Vec<_> = (0..10_u64).map(Key::from).collect();
    let url = format!("http://{}", proxy.address());
    let connect = async || {
        let etcd = connect(std::slice::from_ref(&url))
            .await
            .response_timeout(RESPONSE);
        CasStore::new(etcd)
    };
    let crowd = Crowd::start(&clients, at_once(1_000_000), connect).await;
    // Half-open: no packet reports the end. A ping detects it after ten seconds, at the first one
    // during a call.
    proxy.abandon();
    crowd.has_failed();
    crowd.is_answered();
    crowd.end().await;
}

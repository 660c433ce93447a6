//! Fleets of eight processes on one server. With leases: never over the limit, and hardly below it.
//! With background synchronisation: over it by no more than the bound, and nothing is lost.

mod meter;
mod synced;

use std::{
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use fleet::{
    node::{Orders, serve},
    run::Run,
};
use support::servers;
use tollgate::{
    TokenBucket,
    store::{Memcached, Redis},
};

use crate::common::fleet;

const TIME: Duration = Duration::from_secs(6);

static FLEETS: RwLock<()> = RwLock::new(());

/// Waits for other fleets, because this one needs the processors.
fn alone() -> RwLockWriteGuard<'static, ()> {
    FLEETS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for fleets that need the processors. Fleets that mostly wait run beside each other.
fn beside() -> RwLockReadGuard<'static, ()> {
    FLEETS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Does nothing, except in a process that a fleet starts.
#[test]
fn node() {
    let Some(orders) = Orders::read() else { return };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(async {
        match orders.store.as_str() {
            "redis" => {
                let store = Redis::<TokenBucket>::connect_lazy(&orders.url);
                serve(&orders, store.unwrap()).await;
            }
            _ => {
                let store = Memcached::<TokenBucket>::connect_lazy(&orders.url);
                serve(&orders, store.unwrap()).await;
            }
        }
    });
}

#[test]
fn memcached_that_is_restarted() {
    let _alone = alone();
    let server = servers::Memcached::start();
    let journals = Run {
        node: "processes::node",
        store: "memcached",
        url: format!("memcached://{}", server.address()),
        seed: 1,
        keys: 1000,
        demand: 600,
        time: TIME,
        offset: Duration::from_millis(5),
        used: 95,
        restart: &|| server.restart(),
        forgets: true,
    }
    .check();
    few_requests(&journals);
}

/// A fleet asks seldom for the hot key, if the server grants.
fn few_requests(journals: &fleet::journal::Journals) {
    let hot = &journals.sums[0];
    let decisions = hot.asked + hot.admitted + hot.refused;
    assert!(100 * hot.asked <= 13 * decisions, "{hot:?}");
}

fn redis(server: &servers::Redis, seed: u64, restart: &dyn Fn(), forgets: bool) {
    let _alone = alone();
    let journals = Run {
        node: "processes::node",
        store: "redis",
        url: server.url(),
        seed,
        keys: 1000,
        demand: 600,
        time: TIME,
        offset: Duration::ZERO,
        used: 95,
        restart,
        forgets,
    }
    .check();
    // Also a server that grants no more than the cost keeps the limit.
    if journals.sums[0].admitted > 0 {
        few_requests(&journals);
    } else {
        eprintln!("redis: no unit was granted ahead, so the number of requests is not checked");
    }
}

#[test]
fn redis_that_is_restarted_with_its_data() {
    let server = servers::Redis::options().durable().start();
    redis(&server, 2, &|| server.restart(), false);
}

#[test]
fn redis_that_is_restarted_without_its_data() {
    let server = servers::Redis::start();
    redis(&server, 3, &|| server.restart_empty(), true);
}

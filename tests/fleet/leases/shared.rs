//! The nodes of a fleet, which share a store in memory.

use tollgate::{
    Cost, Policy,
    algorithm::Leasable,
    store::{
        LeaseConfig, Leased, Store, StoreExt,
        driver::{Ask, Transactional},
    },
    time::ManualClock,
};

use crate::leases::map_store::MapStore;

pub(crate) type Server<R> = Transactional<MapStore<R>>;
pub(crate) type Node<R> = Leased<Server<R>, R, ManualClock>;

/// Returns a node with leases on a server. Both have one clock.
pub(crate) fn node<R>(states: &MapStore<R>, clock: &ManualClock, config: LeaseConfig) -> Node<R>
where
    R: Leasable,
{
    Transactional::with_clock(states.clone(), clock.clone()).leased(config.clock(clock.clone()))
}

/// Returns how many of so many calls are admitted.
pub(crate) async fn admitted<R: Leasable>(node: &Node<R>, rule: &R, calls: u64) -> u64 {
    let (policy, mut admitted) = (Policy::new("api"), 0);
    for _ in 0..calls {
        let ask = Ask::new(&policy, rule, "alice".into(), Cost::ONE);
        let decisions = node.acquire(&[ask]).await.unwrap();
        admitted += u64::from(decisions.is_admitted());
        tokio::task::yield_now().await;
    }
    admitted
}

//! The nodes of a fleet, which share a store in memory.

use tollgate::{
    algorithm::Leasable,
    store::{LeaseConfig, Leased, StoreExt, driver::Transactional},
    time::ManualClock,
};

use crate::leases::map_store::MapStore;

pub(crate) type Server<R> = Transactional<MapStore<R>, ManualClock>;
pub(crate) type Node<R> = Leased<Server<R>, R, ManualClock>;

/// Returns a node with leases on a server. Both have one clock.
pub(crate) fn node<R>(states: &MapStore<R>, clock: &ManualClock, config: LeaseConfig) -> Node<R>
where
    R: Leasable,
{
    Transactional::with_clock(states.clone(), clock.clone()).leased(config.clock(clock.clone()))
}

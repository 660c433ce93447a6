//! Wrappers, each with some settings, and what the operators' page lets a fleet of them admit above
//! the limit.

use std::time::Duration;

use tollgate::{
    algorithm::{Algorithm, AnyRule, Blockable, Leasable, Syncable},
    store::{BoxStore, CircuitBreakerConfig, LeaseConfig, StoreError, StoreExt, SyncConfig},
};

use super::meter::Meter;
use crate::{
    clock,
    synced::nodes::{Fleet, PERIOD},
};

/// A wrapper with a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrapper {
    None,
    Deadline(u64),
    Breaker,
    Remembered(usize),
    Blocks,
    BlockAfter(u64),
    /// With a hold in milliseconds.
    Leased(u64),
    /// Ahead by so many units.
    Synced(u64),
    /// So many percent of the limit ahead, with counted nodes.
    Counted(u64),
}

pub(super) const ALL: [Wrapper; 14] = [
    Wrapper::None,
    Wrapper::Deadline(50),
    Wrapper::Deadline(1000),
    Wrapper::Breaker,
    Wrapper::Remembered(16),
    Wrapper::Remembered(1000),
    Wrapper::Blocks,
    // Never, in as many calls.
    Wrapper::BlockAfter(1000),
    Wrapper::Leased(20),
    Wrapper::Leased(200),
    Wrapper::Synced(0),
    Wrapper::Synced(2),
    Wrapper::Synced(5),
    Wrapper::Counted(50),
];

/// The reasons why a fleet may admit more than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cost {
    /// Nodes of a fleet with synchronisation alone are ahead.
    Ahead,
    /// Nodes are ahead, and some have no synchronisation.
    AheadBesideOthers,
    /// Some nodes of a log forget what leases still spend.
    Log,
}

impl Wrapper {
    pub(super) fn is_of_blocks(self) -> bool {
        matches!(self, Self::Blocks | Self::BlockAfter(_))
    }

    /// Returns a node with this wrapper, in a fleet of so many nodes.
    pub(super) fn node(
        self,
        fleet: &Fleet,
        nodes: u64,
        seed: u64,
    ) -> BoxStore<AnyRule, StoreError> {
        match self.is_of_blocks() {
            true => self.with_blocks(fleet.reliable().boxed()),
            false => self.around(fleet.reliable().boxed(), nodes, seed),
        }
    }

    /// Returns a node with a wrapper, and this one around it.
    pub(super) fn node_around(
        self,
        inner: Self,
        fleet: &Fleet,
        nodes: u64,
        seed: u64,
    ) -> BoxStore<AnyRule, StoreError> {
        match (self.is_of_blocks(), inner.is_of_blocks()) {
            (false, _) => self.around(inner.node(fleet, nodes, seed), nodes, seed),
            (true, false) => self.with_blocks(inner.around(fleet.reliable().boxed(), nodes, seed)),
            (true, true) => self.with_blocks(inner.with_blocks(fleet.reliable().boxed())),
        }
    }

    fn with_blocks<R>(self, server: BoxStore<Blockable<R>, StoreError>) -> BoxStore<R, StoreError>
    where
        R: Algorithm,
    {
        let blocks = server.with_blocks().clock(clock());
        match self {
            Self::BlockAfter(refusals) => {
                let (period, day) = (Duration::from_secs(2), Duration::from_secs(86_400));
                blocks.block_after(refusals, period, day).boxed()
            }
            _ => blocks.boxed(),
        }
    }

    fn around<R>(
        self,
        server: BoxStore<R, StoreError>,
        nodes: u64,
        seed: u64,
    ) -> BoxStore<R, StoreError>
    where
        R: Leasable + Syncable,
    {
        let clock = clock();
        let sync = SyncConfig::new().period(PERIOD).clock(clock).seed(seed);
        match self {
            Self::None => server,
            Self::Deadline(millis) => server.timeout(Duration::from_millis(millis)).boxed(),
            Self::Breaker => server.circuit_breaker(CircuitBreakerConfig::new()).boxed(),
            Self::Remembered(keys) => {
                let remembered = server.remember_refusals::<R>().clock(clock);
                remembered.capacity(keys).boxed()
            }
            Self::Blocks | Self::BlockAfter(_) => {
                unreachable!("blocks change the type of the rule")
            }
            Self::Leased(millis) => {
                let config = LeaseConfig::new().duration(Duration::from_millis(millis));
                let config = config.nodes(nodes).clock(clock).seed(seed);
                server.leased(config).boxed()
            }
            Self::Synced(units) => server.synced(sync.max_unsynced(units).nodes(nodes)).boxed(),
            Self::Counted(percent) => server.synced(sync.overshoot_percent(percent)).boxed(),
        }
    }

    /// Returns the place of a node at which a fleet admits most: those that know the store least
    /// come last.
    pub(super) fn comes(self) -> u64 {
        match self {
            Self::Leased(hold) => 1 + hold,
            Self::Synced(units) => 1000 + units,
            Self::Counted(percent) => 1000 + percent,
            _ => 0,
        }
    }

    /// Returns the units of a limit that this node may be ahead, in a fleet where so many nodes
    /// count themselves.
    fn ahead(self, limit: u64, counted: u64) -> u64 {
        match self {
            Self::Synced(units) => units,
            Self::Counted(percent) => limit * percent / 100 / counted.saturating_sub(1).max(1),
            _ => 0,
        }
    }
}

/// Returns the units by which the operators' page lets a fleet exceed a limit, with the reasons.
pub(super) fn above(fleet: &[Wrapper], rule: &AnyRule, meter: Meter) -> (u64, Vec<Cost>) {
    let limit = meter.limit();
    let counted = fleet
        .iter()
        .filter(|node| matches!(node, Wrapper::Counted(_)));
    let counted = counted.count() as u64;
    let (mut above, mut costs) = (0, Vec::new());
    // The node that is ahead least decides last, and knows of nobody else's units. Those without
    // synchronisation are never ahead.
    let ahead = || fleet.iter().map(|node| node.ahead(limit, counted));
    let all_but_the_least = ahead().sum::<u64>() - ahead().min().unwrap_or(0);
    if all_but_the_least > 0 {
        above += all_but_the_least;
        let is_alone = |node: &Wrapper| matches!(node, Wrapper::Synced(_) | Wrapper::Counted(_));
        costs.push(match fleet.iter().all(is_alone) {
            true => Cost::Ahead,
            false => Cost::AheadBesideOthers,
        });
    }
    let holds = || {
        fleet.iter().map(|node| match node {
            Wrapper::Leased(millis) => Duration::from_millis(*millis),
            _ => Duration::ZERO,
        })
    };
    let longest = holds().max().unwrap_or_default();
    if holds().any(|hold| hold != longest) && matches!(rule, AnyRule::SlidingLog(_)) {
        // As long as the last leases live. A node holds a quarter at most if no call gives back.
        let leased = holds().filter(|hold| *hold > Duration::ZERO).count() as u64;
        above += limit.min(leased * (limit / 4));
        costs.push(Cost::Log);
    }
    (above, costs)
}

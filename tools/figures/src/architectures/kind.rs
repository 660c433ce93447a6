//! The list of architectures.

use std::{sync::Arc, time::Duration};

use tollgate::{AnyRule, algorithm::FleetRule};

use super::{
    aggregates::Aggregates,
    architecture::Architecture,
    balancers::Balancers,
    broadcast::Broadcast,
    central_store::CentralStore,
    get_then_set::GetThenSet,
    kafka::Topics,
    lock::Locked,
    no_sync::NoSync,
    sticky::{Placement, Sticky},
    stored::Stored,
    synced::SyncedNodes,
    world::World,
};

/// An architecture by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Central,
    Leases,
    Synced50ms,
    Synced200ms,
    Synced1s,
    Kafka20ms,
    Kafka500ms,
    Lock,
    GetThenSet,
    StickyModulo,
    StickyRendezvous,
    Balancers,
    Broadcast,
    Aggregates,
    NoSync,
}

impl Kind {
    pub const ALL: [Self; 15] = [
        Self::Central,
        Self::Leases,
        Self::Synced50ms,
        Self::Synced200ms,
        Self::Synced1s,
        Self::Kafka20ms,
        Self::Kafka500ms,
        Self::Lock,
        Self::GetThenSet,
        Self::StickyModulo,
        Self::StickyRendezvous,
        Self::Balancers,
        Self::Broadcast,
        Self::Aggregates,
        Self::NoSync,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Central => "central",
            Self::Leases => "leases",
            Self::Synced50ms => "synced-50ms",
            Self::Synced200ms => "synced-200ms",
            Self::Synced1s => "synced-1s",
            Self::Kafka20ms => "kafka-20ms",
            Self::Kafka500ms => "kafka-500ms",
            Self::Lock => "lock",
            Self::GetThenSet => "get-then-set",
            Self::StickyModulo => "sticky-modulo",
            Self::StickyRendezvous => "sticky-rendezvous",
            Self::Balancers => "balancers",
            Self::Broadcast => "broadcast",
            Self::Aggregates => "aggregates",
            Self::NoSync => "no-sync",
        }
    }

    /// Returns `true` for background synchronisation, by a store or through Kafka.
    pub fn is_synced(self) -> bool {
        use Kind::*;
        matches!(
            self,
            Synced50ms | Synced200ms | Synced1s | Kafka20ms | Kafka500ms
        )
    }

    /// Checks that the architecture can keep limits of a rule.
    ///
    /// # Errors
    ///
    /// When it is background synchronisation, and the units of the rule cannot be pushed later.
    pub fn check(self, rule: &AnyRule) -> Result<(), String> {
        match self.is_synced() {
            true => rule.check_sync().map_err(|error| error.to_string()),
            false => Ok(()),
        }
    }

    pub(super) fn build(self, world: &Arc<World>) -> Arc<dyn Architecture> {
        match self {
            Self::Central => Arc::new(Stored::central(world)),
            Self::Leases => Arc::new(Stored::leased(world)),
            Self::Synced50ms => synced(world, 50),
            Self::Synced200ms => synced(world, 200),
            Self::Synced1s => synced(world, 1000),
            Self::Kafka20ms => kafka(world, 20),
            Self::Kafka500ms => kafka(world, 500),
            Self::Lock => Arc::new(Locked::new(world)),
            Self::GetThenSet => Arc::new(GetThenSet::new(world)),
            Self::StickyModulo => Arc::new(Sticky::new(world, Placement::Modulo)),
            Self::StickyRendezvous => Arc::new(Sticky::new(world, Placement::Rendezvous)),
            Self::Balancers => Arc::new(Balancers::new(world)),
            Self::Broadcast => Arc::new(Broadcast::new(world)),
            Self::Aggregates => Arc::new(Aggregates::new(world)),
            Self::NoSync => Arc::new(NoSync::new(world)),
        }
    }
}

/// Nodes that push to a central store usually once in so many milliseconds.
fn synced(world: &Arc<World>, period: u64) -> Arc<dyn Architecture> {
    let store = Arc::new(CentralStore::new(world));
    let period = Duration::from_millis(period);
    Arc::new(SyncedNodes::new(world, period, store))
}

/// Nodes that push to each other through topics with a lag of so many milliseconds.
fn kafka(world: &Arc<World>, lag: u64) -> Arc<dyn Architecture> {
    /// As `synced-200ms`, so that the two differ in the way alone.
    const PERIOD: Duration = Duration::from_millis(200);
    let topics = Topics::new(world, Duration::from_millis(lag));
    Arc::new(SyncedNodes::new(world, PERIOD, topics))
}

//! The list of architectures.

use std::sync::Arc;

use super::{
    aggregates::Aggregates,
    architecture::Architecture,
    balancers::Balancers,
    broadcast::Broadcast,
    get_then_set::GetThenSet,
    lock::Locked,
    no_sync::NoSync,
    sticky::{Placement, Sticky},
    stored::Stored,
    world::World,
};

/// An architecture by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Central,
    Leases,
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
    pub const ALL: [Self; 10] = [
        Self::Central,
        Self::Leases,
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

    pub(super) fn build(self, world: &Arc<World>) -> Arc<dyn Architecture> {
        match self {
            Self::Central => Arc::new(Stored::central(world)),
            Self::Leases => Arc::new(Stored::leased(world)),
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

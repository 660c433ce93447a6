//! The slots of a cluster, and the connections to its nodes.

use std::{collections::HashMap, sync::Arc};

use super::{server::HostPort, shared_connection::SharedConnection};

/// A node of a cluster, with the connection to it.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) host: Arc<str>,
    pub(super) connection: Arc<SharedConnection>,
}

/// Consecutive slots with one master.
pub(super) struct Slots {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) shard: u32,
    pub(super) master: Node,
}

/// The last known slots and nodes.
#[derive(Default)]
pub(super) struct SlotMap {
    /// In ascending order; empty before the first survey.
    pub(super) slots: Vec<Slots>,
    /// By address; includes nodes that calls were redirected to.
    pub(super) nodes: HashMap<HostPort, Node>,
}

impl SlotMap {
    /// Returns the entry that contains a slot.
    pub(super) fn find(&self, slot: u16) -> Option<&Slots> {
        let after = self.slots.partition_point(|slots| slots.first <= slot);
        let slots = self.slots.get(after.checked_sub(1)?)?;
        (slot <= slots.last).then_some(slots)
    }
}

//! Slots in migration from one master to another.

use super::super::{redis::Redis, wait::wait_until};
use super::{Cluster, LIMIT, seen};

impl Cluster {
    /// Moves a slot with its keys to another master.
    pub fn migrate_slot(&self, slot: u16, to: &Redis) {
        self.begin_migration(slot, to).finish();
    }

    /// Starts to migrate a slot. From then on, its master redirects requests for keys that it does
    /// not have to `to` (`ASK`).
    pub fn begin_migration<'a>(&'a self, slot: u16, to: &'a Redis) -> Migration<'a> {
        let from = self.master_of(slot);
        assert_ne!(from.port(), to.port(), "slot {slot} is there already");
        let (source, target) = (seen::itself(from).id, seen::itself(to).id);
        let number = slot.to_string();
        to.command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &source]);
        from.command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &target]);
        Migration {
            cluster: self,
            slot,
            from,
            to,
        }
    }
}

/// A slot in migration. If dropped, the migration stays unfinished.
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: &'a Redis,
    to: &'a Redis,
}

impl Migration<'_> {
    /// Moves the keys that exist now.
    pub fn move_keys(&self) {
        let (slot, port) = (self.slot.to_string(), self.to.port().to_string());
        for _ in 0..10_000 {
            let some = self.from.reply(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            let keys = some.into_members();
            if keys.is_empty() {
                return;
            }
            let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            let words = words.iter().map(|word| word.as_bytes().to_vec());
            let command: Vec<_> = words.chain(keys).collect();
            self.from.command(&command);
        }
        panic!("expected a million keys at most in slot {slot}");
    }

    /// Moves the keys and then the slot, and waits until all nodes have noticed.
    pub fn finish(self) {
        self.move_keys();
        let slot = self.slot.to_string();
        let owner = seen::itself(self.to).id;
        // The new owner first, so that there is always one.
        for node in [self.to, self.from] {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &owner]);
        }
        wait_until("all nodes have the new owner of the slot", LIMIT, || {
            self.cluster.is_settled()?;
            match self.cluster.find(self.slot)? {
                node if node.port() == self.to.port() => Ok(()),
                node => Err(format!("slot {slot} is still at port {}", node.port())),
            }
        });
    }
}

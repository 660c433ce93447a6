//! The random part of a schedule: who calls, and what happens beside calls.

use super::{Call, Fleet, Node, Operation, Setting};
use crate::{algorithm::Syncable, fleet::sync::proof::network::Network};

impl<R: Syncable> Fleet<'_, R> {
    /// Plays random calls, and then all that is under way.
    pub(in crate::fleet::sync::proof) fn play(&mut self) {
        self.play_calls();
        self.end();
    }

    pub(in crate::fleet::sync::proof) fn play_calls(&mut self) {
        let (mut burst, mut pace, mut only) = (0, 0, None);
        for _ in 0..self.network.calls {
            let mut gap = self.random.up_to(pace);
            if burst == 0 {
                gap = self.random.up_to(self.network.gap) << self.random.up_to(4);
                burst = 1 + self.random.up_to(30);
                pace = self.random.up_to(self.network.gap) >> self.random.up_to(6);
                only = (self.random.up_to(2) == 0).then(|| self.random_node());
            }
            burst -= 1;
            self.until(self.now + gap);
            self.befall();
            let node = only.unwrap_or_else(|| self.random_node());
            let call = self.random_call();
            if self.is_by_chance(self.network.plain) {
                self.call_plainly(node, call);
            } else {
                self.offer(node, self.now, call);
            }
        }
        self.until(self.now + 1);
    }

    /// Lets happen to a node by chance what is no call.
    pub(super) fn befall(&mut self) {
        if self.is_by_chance(self.network.death) {
            let node = self.random_node();
            self.kill(node);
        }
        if self.is_by_chance(self.network.forget) {
            let (node, key) = (self.random_node(), self.random_key());
            self.forget(node, key);
        }
        if self.is_by_chance(self.network.count) {
            let node = self.random_node();
            self.nodes[node].most = match self.random.up_to(3) {
                0 => 0,
                1 => self.random.up_to(self.nodes[node].setting.most),
                _ => self.nodes[node].setting.most,
            };
        }
        self.operate();
    }

    /// Lets happen by chance what changes a key otherwise than by calls, and steps of clocks.
    fn operate(&mut self) {
        if self.is_by_chance(self.network.reset) {
            let (node, key) = (self.random_node(), self.random_key());
            self.reset(node, key);
        }
        if self.is_by_chance(self.network.settle) {
            let node = self.random_node();
            self.settle_any(node);
        }
        if self.is_by_chance(self.network.grant) {
            let (node, key) = (self.random_node(), self.random_key());
            let units = 1 + self.random.up_to(2 * self.network.most);
            self.grant(node, key, units);
        }
        if self.is_by_chance(self.network.node_steps) {
            let node = self.random_node();
            let (time, is_forward) = self.random_step();
            self.step_node(node, time, is_forward);
        }
        if self.is_by_chance(self.network.store_steps) {
            let (time, is_forward) = self.random_step();
            self.step_store(time, is_forward || !self.network.steps_back);
        }
    }

    /// Returns a length, mostly a short one, and a direction.
    fn random_step(&mut self) -> (u64, bool) {
        let time = self.random.up_to(self.network.longest_step) >> self.random.up_to(6);
        (1 + time, self.random.up_to(1) == 0)
    }

    /// Returns the settings of a node: those of all, or its own.
    pub(super) fn random_setting(&mut self) -> Setting {
        let Network {
            most,
            period,
            nodes,
            differs,
            ..
        } = self.network;
        if !differs {
            return Setting {
                most,
                period,
                nodes,
            };
        }
        self.operations[Operation::Setting as usize] += 1;
        Setting {
            most: 1 + self.random.up_to(2 * most),
            period: 1_000_000 + self.random.up_to(2 * period),
            nodes: 1 + self.random.up_to(2 * nodes),
        }
    }

    /// Drops what a node knows of a key, if it has nothing to push and nobody waits.
    pub(super) fn forget(&mut self, node: usize, key: usize) {
        let Node { views, waiting, .. } = &mut self.nodes[node];
        let view = views.get(key as u64);
        let is_settled = view.is_some_and(|view| view.is_settled());
        if is_settled && waiting.iter().all(|call| call.key != key) {
            let _ = views.remove(key as u64);
        }
    }

    pub(super) fn random_key(&mut self) -> usize {
        self.random.up_to(self.network.keys - 1) as usize
    }

    pub(super) fn random_call(&mut self) -> Call {
        let cost = 1 + self.random.up_to(self.network.max_cost - 1);
        let mut call = Call::new(self.random_key(), cost);
        if self.is_by_chance(self.network.change) {
            call.rule = self.random.up_to(self.rules.len() as u64 - 1) as usize;
        }
        call
    }

    /// Lets everything come to its end: nobody calls, nothing is lost, and what nodes have to push
    /// is pushed.
    pub(in crate::fleet::sync::proof) fn end(&mut self) {
        (self.network.loss, self.network.repeat, self.down_until) = (0, 0, 0);
        self.network.timeout = 4 * self.network.delay + 1;
        self.until(u64::MAX);
    }

    pub(super) fn random_node(&mut self) -> usize {
        self.random.up_to(self.nodes.len() as u64 - 1) as usize
    }

    pub(super) fn is_by_chance(&mut self, chance: u64) -> bool {
        chance > 0 && self.random.up_to(999) < chance
    }
}

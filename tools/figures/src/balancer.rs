//! Which node a call goes to.

use crate::random::{Millionths, Random};

/// A load balancer's choice of the node of a call. Dead nodes get none.
#[derive(Clone, Copy, Debug)]
pub enum Balancing {
    RoundRobin,
    Random,
    /// All calls of a key go to one node.
    ByKey,
    /// Node 0 gets a part of the calls, the others take turns for the rest.
    Hot(Millionths),
}

pub(crate) struct Balancer {
    balancing: Balancing,
    random: Random,
    turn: usize,
}

impl Balancer {
    pub(crate) fn new(balancing: Balancing, seed: u64) -> Self {
        Self {
            balancing,
            random: Random::new(seed, "balancer"),
            turn: 0,
        }
    }

    /// Chooses one of the living nodes, of which there is at least one.
    pub(crate) fn choose(&mut self, living: &[usize], key: u64) -> usize {
        let count = living.len() as u64;
        let index = match self.balancing {
            Balancing::Hot(part) if living.len() > 1 => {
                if self.random.happens(part) {
                    0
                } else {
                    1 + self.turn(living.len() - 1)
                }
            }
            Balancing::RoundRobin | Balancing::Hot(_) => self.turn(living.len()),
            Balancing::Random => self.random.below(count) as usize,
            Balancing::ByKey => Random::new(key, "key").below(count) as usize,
        };
        living[index]
    }

    fn turn(&mut self, nodes: usize) -> usize {
        self.turn = (self.turn + 1) % nodes;
        self.turn
    }
}

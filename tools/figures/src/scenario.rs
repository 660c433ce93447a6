//! The subject of a simulation.

use std::time::Duration;

use tollgate::AnyRule;

use crate::{
    balancer::Balancing, clients::Arrivals, faults::Faults, keys::KeyChoice, network::Link,
    random::Millionths,
};

/// A fleet, its clients, its store, and what goes wrong.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    /// Determines each random number.
    pub seed: u64,
    pub nodes: usize,
    /// The rule of each key.
    pub rule: AnyRule,
    /// The time for which units are held; `None` for the default of the rule, zero for no leases.
    pub hold: Option<Duration>,
    /// All calls together, in millionths of what the rule refills for one key.
    pub demand: u64,
    pub keys: KeyChoice,
    pub arrivals: Arrivals,
    /// The number of clients that share the demand.
    pub clients: usize,
    pub balancing: Balancing,
    pub link: Link,
    pub faults: Faults,
    /// The clock of each node is at most so far from the store's at the beginning.
    pub offset: Duration,
    /// The clocks of the nodes are fast and slow by so much, in turns.
    pub drift: Millionths,
    /// The time for which calls come.
    pub time: Duration,
    /// Calls before this time are not counted in the numbers, except in those of the meter and the
    /// units.
    pub warm_up: Duration,
}

impl Scenario {
    /// Returns a fleet of so many nodes with one hot key under a rule, and a demand of 1.2 of the
    /// rate.
    pub fn hot(name: &str, nodes: usize, rule: AnyRule) -> Self {
        Self {
            name: name.to_owned(),
            seed: 1,
            nodes,
            rule,
            hold: None,
            demand: 1_200_000,
            keys: KeyChoice::One,
            arrivals: Arrivals::Poisson,
            clients: 1,
            balancing: Balancing::RoundRobin,
            link: Link::default(),
            faults: Faults::default(),
            offset: Duration::ZERO,
            drift: 0,
            time: Duration::from_secs(12),
            warm_up: Duration::from_secs(2),
        }
    }

    /// Returns what the rule refills for one key: an amount per nanoseconds.
    pub(crate) fn refill(&self) -> (u64, u64) {
        refill_of(&self.rule).unwrap_or((1, 1_000_000_000))
    }

    /// Returns the calls of all clients in a second.
    pub(crate) fn calls_per_second(&self) -> f64 {
        let (amount, nanos) = self.refill();
        self.demand as f64 / 1e6 * amount as f64 * 1e9 / nanos as f64
    }
}

/// Returns the quota of the rule, or the slowest of several: an amount per nanoseconds.
pub(crate) fn refill_of(rule: &AnyRule) -> Option<(u64, u64)> {
    let quota = match rule {
        AnyRule::TokenBucket(rule) => rule.quota(),
        AnyRule::FixedWindow(rule) => rule.quota(),
        AnyRule::SlidingWindow(rule) => rule.quota(),
        AnyRule::SlidingLog(rule) => rule.quota(),
        AnyRule::All(all) => {
            let each = all.rules().iter().filter_map(refill_of);
            return each.min_by(|(a, p), (b, q)| {
                let (left, right) = (
                    u128::from(*a) * u128::from(*q),
                    u128::from(*b) * u128::from(*p),
                );
                left.cmp(&right)
            });
        }
        _ => return None,
    };
    Some((quota.amount(), quota.period_nanos()))
}

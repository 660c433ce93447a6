//! The settings of a fleet.

use std::time::Duration;

use tollgate::{AnyRule, algorithm::FleetRule};

use crate::{meter, random::Millionths, scenario::refill_of};

/// A fleet, its clients, its network, and the times that its parts take.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// Determines each random number.
    pub seed: u64,
    pub nodes: usize,
    /// The limit of each key.
    pub rule: AnyRule,
    /// Keys whose clients call as often as the load says.
    pub greedy: u64,
    /// The calls of a greedy key, in millionths of its limit.
    pub load: u64,
    /// Keys whose clients keep their limit: they call at 0.8 of it.
    pub polite: u64,
    /// The time for which calls come.
    pub time: Duration,
    /// Calls before this time are not counted.
    pub warm_up: Duration,
    /// The least time of one way between two machines, and the most that is added to it.
    pub delay: Duration,
    pub jitter: Duration,
    /// A call that is not answered by then has failed, and is refused.
    pub deadline: Duration,
    /// The time that the store works for one request, and the aggregator for one event.
    pub service: Duration,
    /// The time that a node works for a decision of its own, and for a message that it receives.
    pub decision: Duration,
    pub message: Duration,
    /// The time between two broadcasts of a node.
    pub broadcast: Duration,
    /// The most units of a key that a node may admit before it has pushed them, with background
    /// synchronisation.
    pub max_unsynced: u64,
    /// The time between two aggregates.
    pub aggregate: Duration,
    /// Events that come twice.
    pub duplicates: Millionths,
    /// The nodes that one load balancer serves. The fleet has as few balancers as possible.
    pub per_balancer: usize,
    /// When a node is added to a fleet with sticky sessions, and when it is taken away.
    pub scaled: (Duration, Duration),
}

impl FleetSettings {
    /// Returns a fleet of so many nodes, with a load in millionths of the limit.
    pub fn new(rule: AnyRule, nodes: usize, load: u64) -> Self {
        Self {
            seed: 1,
            nodes,
            rule,
            greedy: 10,
            load,
            polite: 10,
            time: Duration::from_secs(10),
            warm_up: Duration::ZERO,
            delay: Duration::from_micros(500),
            jitter: Duration::from_micros(200),
            deadline: Duration::from_millis(50),
            service: Duration::from_micros(40),
            decision: Duration::from_micros(1),
            message: Duration::from_micros(5),
            broadcast: Duration::from_millis(10),
            max_unsynced: 5,
            aggregate: Duration::from_millis(100),
            duplicates: 10_000,
            per_balancer: 10,
            scaled: (Duration::from_secs(4), Duration::from_secs(7)),
        }
    }

    /// # Errors
    ///
    /// When a setting is out of its range.
    pub(super) fn check(&self) -> Result<(), String> {
        meter::of(&self.rule)?;
        let hold = self.rule.default_lease_duration();
        let held = self.rule.tightened(hold, 1);
        held.map_err(|error| error.to_string())?;
        if self.nodes == 0 || self.per_balancer == 0 || self.greedy + self.polite == 0 {
            return Err(
                "a fleet without nodes, balancers or keys: expected at least 1 of each".to_owned(),
            );
        }
        if self.warm_up >= self.time {
            return Err(format!(
                "calls for {:?} after a warm-up of {:?}: expected a longer time, so that something is measured",
                self.time, self.warm_up
            ));
        }
        if self.aggregate.is_zero() || self.broadcast.is_zero() {
            return Err(
                "no time between broadcasts or aggregates: expected some, as in 10ms".to_owned(),
            );
        }
        if self.calls() > MOST_CALLS {
            return Err(format!(
                "{:.0} calls: expected at most 5 million; choose fewer nodes, less load or less time",
                self.calls()
            ));
        }
        Ok(())
    }

    pub(super) fn keys(&self) -> u64 {
        self.greedy + self.polite
    }

    /// Returns the calls of all clients in a second.
    pub(super) fn calls_per_second(&self) -> f64 {
        let of_greedy = self.greedy as f64 * self.load as f64 / 1e6;
        self.limit() * (of_greedy + self.polite as f64 * POLITE)
    }

    /// Returns the part of the calls that are for greedy keys.
    pub(super) fn greedy_part(&self) -> f64 {
        let of_greedy = self.limit() * self.greedy as f64 * self.load as f64 / 1e6;
        of_greedy / self.calls_per_second()
    }

    pub(super) fn calls(&self) -> f64 {
        self.calls_per_second() * self.time.as_secs_f64()
    }

    /// Returns the units that are refilled in a second for one key.
    fn limit(&self) -> f64 {
        let (amount, nanos) = refill_of(&self.rule).unwrap_or((1, 1_000_000_000));
        amount as f64 * 1e9 / nanos as f64
    }
}

/// The most calls of a fleet: each is recorded.
const MOST_CALLS: f64 = 5e6;

/// The calls of a polite key, as a part of its limit.
const POLITE: f64 = 0.8;

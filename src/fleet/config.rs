//! Settings of leases and of background synchronisation.

use std::time::Duration;

use super::{shared::Clocked, sync::Bound};
use crate::{
    algorithm::{Algorithm, Leasable},
    error::{Error, or_panic},
    quota::Written,
    time::{Clock, LeaseClock, SystemClock, Timestamp},
};

/// The settings that leases and background synchronisation have in common.
#[derive(Clone, Debug)]
pub(super) struct Common<C> {
    /// The most keys of which a node knows something.
    pub(super) keys: usize,
    /// `None` to count them.
    pub(super) nodes: Option<u64>,
    pub(super) seed: Option<u64>,
    clock: C,
}

impl<C> Common<C> {
    fn new(clock: C) -> Self {
        Self {
            keys: 100_000,
            nodes: None,
            seed: None,
            clock,
        }
    }
}

/// The methods of those settings, each with the part of its documentation that differs.
macro_rules! common_settings {
    (
        $Config:ident { $($own:ident),* }
        $(#[$keys:meta])* keys
        $(#[$nodes:meta])* nodes
        $(#[$seed:meta])* seed
        $(#[$clock:meta])* clock
    ) => {
        impl<C> $Config<C> {
            $(#[$keys])*
            pub fn keys(mut self, most: usize) -> Self {
                self.common.keys = most;
                self
            }

            /// Sets the number of nodes that share the limits, at least 1, so that they are not
            /// counted.
            ///
            /// Otherwise each node counts itself in the store, once in [some
            /// seconds](crate::store::driver::NodeCounts::PERIOD), beside a call that it makes
            /// anyway.
            $(#[$nodes])*
            pub fn nodes(mut self, number: u64) -> Self {
                self.common.nodes = Some(number.max(1));
                self
            }

            $(#[$seed])*
            /// Clients who know it can choose keys that count as one, so leave it out where clients
            /// choose their keys.
            pub fn seed(mut self, seed: u64) -> Self {
                self.common.seed = Some(seed);
                self
            }

            $(#[$clock])*
            pub fn clock<D>(self, clock: D) -> $Config<D> {
                let Common { keys, nodes, seed, .. } = self.common;
                $Config {
                    $($own: self.$own,)*
                    common: Common { keys, nodes, seed, clock },
                }
            }
        }

        impl<C: Clock> Clocked for $Config<C> {
            #[inline]
            fn now(&self) -> Timestamp {
                self.common.clock.now()
            }
        }
    };
}

/// Settings of [leases](crate::store::Leased).
///
/// A longer lease duration saves more calls to the store, and costs more of the burst: see [the
/// prices](crate::store::Leased#what-it-costs). It should be several times the store's round trip,
/// so that units arrive before the last ones are spent.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`duration`](Self::duration) | a tenth of the time in which the limit is refilled | how long granted units may be spent |
/// | [`max_cost`](Self::max_cost) | 1 | the greatest cost that the tightened rule in the store must leave room for |
/// | [`keys`](Self::keys) | 100,000 | the most keys with leases |
/// | [`nodes`](Self::nodes) | counted | the nodes that share the limits, for [`undershoot_bound`](crate::store::Leased::undershoot_bound) |
/// | [`seed`](Self::seed) | random | seed of the random part of pauses and of the hash of keys |
/// | [`clock`](Self::clock) | the machine's, with the time that it was suspended | clock of the leases |
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::LeaseConfig;
///
/// let config = LeaseConfig::new().duration(Duration::from_millis(100)).max_cost(5);
/// # let _ = config;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LeaseConfig<C = LeaseClock> {
    duration: Option<Duration>,
    max_cost: u64,
    pub(super) common: Common<C>,
}

impl LeaseConfig {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self {
            duration: None,
            max_cost: 1,
            common: Common::new(LeaseClock::default()),
        }
    }
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> LeaseConfig<C> {
    /// The longest lease duration.
    const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

    /// Sets how long granted units may be spent, and so how far ahead a node asks for units; zero
    /// for no leases.
    ///
    /// # Panics
    ///
    /// When [`try_duration`](Self::try_duration) fails; for literals.
    #[track_caller]
    pub fn duration(self, time: Duration) -> Self {
        or_panic(self.try_duration(time))
    }

    /// Sets how long granted units may be spent, and so how far ahead a node asks for units; zero
    /// for no leases.
    ///
    /// # Errors
    ///
    /// When it is longer than a day.
    pub fn try_duration(self, time: Duration) -> Result<Self, Error> {
        if time > Self::LONGEST {
            return Err(Error::new(format!(
                "leases of {}: expected at most a day; a tenth of the time in which the limit is refilled suits most limits",
                Written(time)
            )));
        }
        Ok(Self {
            duration: Some(time),
            ..self
        })
    }

    /// Sets the greatest cost of a call, in units, for which the tightened rule in the store must
    /// leave room.
    ///
    /// A rule that leaves less is an error when it is given to a layer. A call that costs more than
    /// what is left of the rule is refused without a retry time.
    pub fn max_cost(self, units: u64) -> Self {
        Self {
            max_cost: units,
            ..self
        }
    }

    /// Has the store decide each call.
    pub(super) fn turn_off(&mut self) {
        self.duration = Some(Duration::ZERO);
    }

    /// Returns `true` if the store decides each call.
    pub(super) fn is_off(&self) -> bool {
        self.duration.is_some_and(|duration| duration.is_zero())
    }

    /// Returns how long units of a rule are held.
    pub(super) fn duration_of(&self, rule: &impl Leasable) -> Duration {
        self.duration
            .unwrap_or_else(|| rule.default_lease_duration())
    }

    /// Returns the rule that the store runs.
    ///
    /// # Errors
    ///
    /// When the rule cannot be leased for so long.
    pub(super) fn tightened<Rule: Leasable>(&self, rule: &Rule) -> Result<Rule, Error> {
        rule.tightened(self.duration_of(rule), self.max_cost)
    }
}

common_settings! {
    LeaseConfig { duration, max_cost }
    /// Sets the most keys with leases. Calls of further keys are decided by the store.
    ///
    /// With a token bucket a key takes about 250 bytes, for as long as it is in use, and 580 if it
    /// holds leases. Beside them, each of this number of keys takes 16 to 32 bytes for its last
    /// call: a key takes its place with the second call within a lease duration.
    keys
    /// Nothing is admitted or refused by this number: it determines what
    /// [`undershoot_bound`](crate::store::Leased::undershoot_bound) says.
    nodes
    /// Sets the seed of the random part of pauses, and of the hash of keys, for tests and
    /// simulations: two runs of one schedule are equal.
    ///
    seed
    /// Sets another clock. It must go on while the machine is suspended, and must not step back.
    clock
}

/// Settings of [background synchronisation](crate::store::Synced).
///
/// | setting | default | |
/// |---|---|---|
/// | [`overshoot_percent`](Self::overshoot_percent) or [`max_unsynced`](Self::max_unsynced) | 5 % | what all nodes together may admit above the limit, or one node without pushing to the store |
/// | [`period`](Self::period) | 100 ms | the usual time between two synchronisations of a key |
/// | [`nodes`](Self::nodes) | counted | the nodes that share the limits |
/// | [`keys`](Self::keys) | 100,000 | the most keys of which this node knows something |
/// | [`seed`](Self::seed) | random | seed of the number of this node, and of the hash of keys |
/// | [`clock`](Self::clock) | the system's | clock of this node |
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::SyncConfig;
///
/// let config = SyncConfig::new().period(Duration::from_millis(50)).overshoot_percent(2);
/// # let _ = config;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SyncConfig<C = SystemClock> {
    pub(super) period: Duration,
    max: MaxUnsynced,
    pub(super) common: Common<C>,
}

/// The most units by which a node may be ahead of the store.
#[derive(Clone, Copy, Debug)]
enum MaxUnsynced {
    Units(u64),
    /// All nodes together, of the limit.
    Percent(u64),
}

impl SyncConfig {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self {
            period: Duration::from_millis(100),
            max: MaxUnsynced::Percent(5),
            common: Common::new(SystemClock::default()),
        }
    }
}

impl Default for SyncConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> SyncConfig<C> {
    const SHORTEST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_secs(60);

    /// Sets what all nodes together may admit above a limit, as a part of it: 0 to 100 percent.
    ///
    /// Each node may then be ahead of the store by this part of the limit, divided by the number of
    /// the other nodes and rounded down. While the number of nodes is not known, and if that leaves
    /// less than a unit, the store decides each call. With 0 it always does; then a node decides
    /// alone only while it cannot reach the store, and repays.
    ///
    /// # Panics
    ///
    /// When [`try_overshoot_percent`](Self::try_overshoot_percent) fails; for literals.
    #[track_caller]
    pub fn overshoot_percent(self, percent: u64) -> Self {
        or_panic(self.try_overshoot_percent(percent))
    }

    /// Sets what all nodes together may admit above a limit, as a part of it: 0 to 100 percent.
    ///
    /// # Errors
    ///
    /// When it is above 100.
    pub fn try_overshoot_percent(self, percent: u64) -> Result<Self, Error> {
        if percent > 100 {
            return Err(Error::new(format!(
                "an overshoot of {percent} %: expected 0 to 100 percent of the limit; 5 suits most limits"
            )));
        }
        Ok(Self {
            max: MaxUnsynced::Percent(percent),
            ..self
        })
    }

    /// Sets how many units of a key this node may admit that the store does not know yet: at most
    /// the limit. All nodes together may then admit so many units above the limit as all others may
    /// be ahead.
    pub fn max_unsynced(self, units: u64) -> Self {
        Self {
            max: MaxUnsynced::Units(units),
            ..self
        }
    }

    /// Sets the usual time between two synchronisations of a key.
    ///
    /// # Panics
    ///
    /// When [`try_period`](Self::try_period) fails; for literals.
    #[track_caller]
    pub fn period(self, period: Duration) -> Self {
        or_panic(self.try_period(period))
    }

    /// Sets the usual time between two synchronisations of a key.
    ///
    /// It is four times as long while less than a tenth of the limit is used, twice as long below a
    /// half, and half as long from 80 percent on. A node that is half as far ahead as it may be
    /// does not wait for it, nor does the first refusal.
    ///
    /// # Errors
    ///
    /// When it is shorter than a millisecond, or longer than a minute.
    pub fn try_period(self, period: Duration) -> Result<Self, Error> {
        if period < Self::SHORTEST || period > Self::LONGEST {
            return Err(Error::new(format!(
                "a synchronisation each {}: expected 1ms to 1m; 100ms suits most stores",
                Written(period)
            )));
        }
        Ok(Self { period, ..self })
    }

    /// Returns what a node may do alone under a rule.
    pub(super) fn bound(&self, rule: &impl Algorithm, nodes: Option<u64>) -> Bound {
        let limit = rule.look(None, Timestamp::default()).limit().unwrap_or(0);
        let most = match (self.max, nodes) {
            (MaxUnsynced::Units(units), _) => units.min(limit),
            (MaxUnsynced::Percent(percent), Some(nodes)) => {
                let all = u128::from(limit) * u128::from(percent) / 100;
                let others = u128::from(nodes.saturating_sub(1).max(1));
                u64::try_from(all / others).unwrap_or(u64::MAX)
            }
            (MaxUnsynced::Percent(_), None) => 0,
        };
        Bound {
            number: 0,
            most,
            period: self.period,
            nodes,
            is_closed: false,
        }
    }

    /// Returns `true` if the store decides each call, as long as it can be reached.
    pub(super) fn is_exact(&self) -> bool {
        matches!(self.max, MaxUnsynced::Units(0) | MaxUnsynced::Percent(0))
    }

    /// Returns how long a key is known after its last call.
    pub(super) fn idle(&self) -> Duration {
        (self.period * 10).max(Duration::from_secs(1))
    }
}

common_settings! {
    SyncConfig { period, max }
    /// Sets the most keys of which this node knows something. Calls of further keys are decided by
    /// the store, and fail in an outage.
    ///
    /// With a token bucket a key takes about 700 bytes, from its first call until some periods
    /// after its last one.
    keys
    /// Until the others have counted again they do not know of a new node, and may be ahead as if
    /// it were not there.
    nodes
    /// Sets the seed of the number of this node and of the hash of keys, for tests and simulations.
    ///
    /// Two nodes of one store must not have the same seed: the store would take the units of one
    /// for those of the other.
    seed
    /// Sets another clock. It must not step.
    clock
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::TokenBucket;

    #[test]
    fn the_overshoot_is_shared_by_the_other_nodes() {
        let rule = TokenBucket::per_second(1000);
        let most = |config: SyncConfig, nodes| config.bound(&rule, nodes).most;
        assert_eq!(most(SyncConfig::new(), Some(1)), 50);
        assert_eq!(most(SyncConfig::new(), Some(2)), 50);
        assert_eq!(most(SyncConfig::new(), Some(4)), 16);
        assert_eq!(most(SyncConfig::new(), Some(100)), 0);
        assert_eq!(most(SyncConfig::new(), None), 0);
        assert_eq!(most(SyncConfig::new().max_unsynced(7), None), 7);
        assert_eq!(most(SyncConfig::new().max_unsynced(7000), None), 1000);
    }

    #[test]
    fn settings_outside_of_their_range_are_errors() {
        let config = SyncConfig::new();
        assert!(config.clone().try_overshoot_percent(101).is_err());
        assert!(config.clone().try_period(Duration::ZERO).is_err());
        assert!(config.try_period(Duration::from_secs(61)).is_err());
    }
}

//! Settings of leases.

use std::time::Duration;

use crate::{algorithm::Leasable, error::Error, quota::Written, time::LeaseClock};

/// Settings of [leases](crate::store::Leased).
///
/// A longer hold saves more calls to the store, and costs more of the burst: see [the
/// prices](crate::store::Leased#what-it-costs). It should be several times the store's round trip,
/// so that units arrive before the last ones are spent.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`hold`](Self::hold) | a tenth of the time in which the limit is refilled | how long granted units may be spent |
/// | [`max_cost`](Self::max_cost) | 1 | the greatest cost that the stricter rule in the store must leave room for |
/// | [`keys`](Self::keys) | 100,000 | the most keys with leases |
/// | [`nodes`](Self::nodes) | counted | the nodes that share the limits, for [`undershoot_bound`](crate::store::Leased::undershoot_bound) |
/// | [`seed`](Self::seed) | random | seed of the random part of pauses and of the hash of keys |
/// | [`clock`](Self::clock) | the machine's, with the time that it was suspended | clock of the leases |
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::LeaseConfig;
///
/// let config = LeaseConfig::new().hold(Duration::from_millis(100)).max_cost(5);
/// # let _ = config;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LeaseConfig<C = LeaseClock> {
    hold: Option<Duration>,
    max_cost: u64,
    pub(super) keys: usize,
    pub(super) nodes: Option<u64>,
    pub(super) seed: Option<u64>,
    pub(super) clock: C,
}

impl LeaseConfig {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self {
            hold: None,
            max_cost: 1,
            keys: 100_000,
            nodes: None,
            seed: None,
            clock: LeaseClock::default(),
        }
    }
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> LeaseConfig<C> {
    /// The longest hold.
    const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

    /// Sets how long granted units may be spent, and so how far ahead a node asks for units; zero
    /// for no leases.
    ///
    /// # Panics
    ///
    /// When [`try_hold`](Self::try_hold) fails; for literals.
    #[track_caller]
    pub fn hold(self, time: Duration) -> Self {
        self.try_hold(time)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sets how long granted units may be spent, and so how far ahead a node asks for units; zero
    /// for no leases.
    ///
    /// # Errors
    ///
    /// When it is longer than a day.
    pub fn try_hold(self, time: Duration) -> Result<Self, Error> {
        if time > Self::LONGEST {
            return Err(Error::new(format!(
                "leases of {}: expected at most a day; a tenth of the time in which the limit is refilled suits most limits",
                Written(time)
            )));
        }
        Ok(Self {
            hold: Some(time),
            ..self
        })
    }

    /// Sets the greatest cost of a call, in units, for which the stricter rule in the store must
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

    /// Sets the most keys with leases. Calls of further keys are decided by the store.
    ///
    /// With a token bucket a key takes about 250 bytes, for as long as it is in use, and 570 if it
    /// holds leases. Beside them, each of this number of keys takes 16 to 32 bytes for its last
    /// call: a key takes its place with the second call within a hold.
    pub fn keys(self, most: usize) -> Self {
        Self { keys: most, ..self }
    }

    /// Sets the number of nodes that share the limits, at least 1, so that they are not counted.
    ///
    /// Otherwise each node counts itself in the store, once in [some
    /// seconds](crate::store::driver::NodeCounts::PERIOD), beside a call that it makes anyway.
    /// Nothing is admitted or refused by this number: it determines what
    /// [`undershoot_bound`](crate::store::Leased::undershoot_bound) says.
    pub fn nodes(self, number: u64) -> Self {
        Self {
            nodes: Some(number.max(1)),
            ..self
        }
    }

    /// Sets the seed of the random part of pauses, and of the hash of keys, for tests and
    /// simulations: two runs of one schedule are equal.
    ///
    /// Clients who know the seed can choose keys that count as one. So leave it out where clients
    /// choose their keys.
    pub fn seed(self, seed: u64) -> Self {
        Self {
            seed: Some(seed),
            ..self
        }
    }

    /// Sets another clock. It must go on while the machine is suspended, and must not step back.
    pub fn clock<D>(self, clock: D) -> LeaseConfig<D> {
        LeaseConfig {
            hold: self.hold,
            max_cost: self.max_cost,
            keys: self.keys,
            nodes: self.nodes,
            seed: self.seed,
            clock,
        }
    }

    /// Has the store decide each call.
    pub(super) fn turn_off(&mut self) {
        self.hold = Some(Duration::ZERO);
    }

    /// Returns `true` if the store decides each call.
    pub(super) fn is_off(&self) -> bool {
        self.hold.is_some_and(|hold| hold.is_zero())
    }

    /// Returns how long units of a rule are held.
    pub(super) fn hold_of(&self, rule: &impl Leasable) -> Duration {
        self.hold.unwrap_or_else(|| rule.usual_hold())
    }

    /// Returns the rule that the store runs.
    ///
    /// # Errors
    ///
    /// When the rule cannot be leased for so long.
    pub(super) fn held<Rule: Leasable>(&self, rule: &Rule) -> Result<Rule, Error> {
        rule.held(self.hold_of(rule), self.max_cost)
    }
}

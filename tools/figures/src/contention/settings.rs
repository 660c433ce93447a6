//! The settings of the race.

use std::time::Duration;

use tollgate::backoff::{Backoff, Delays};

/// The waits of a client after its failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffKind {
    None,
    Exponential,
    Full,
    Equal,
    Decorrelated,
}

impl BackoffKind {
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Exponential,
        Self::Full,
        Self::Equal,
        Self::Decorrelated,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exponential => "exponential",
            Self::Full => "full",
            Self::Equal => "equal",
            Self::Decorrelated => "decorrelated",
        }
    }

    /// Returns the delays of one client, by tollgate's own back-off; `None` if it does not wait.
    ///
    /// The delay after failure `k`, counted from 1, grows with `2ᵏ` as in the simulation of the
    /// source. Tollgate counts attempts from 0, so its first delay is left out. A decorrelated
    /// delay depends on the one before it, and not on a count.
    pub(super) fn delays(self, contenders: &Contenders, seed: u64) -> Option<Delays> {
        let (base, cap) = (contenders.base, contenders.cap);
        let backoff = match self {
            Self::None => return None,
            Self::Exponential => Backoff::exponential(base, cap),
            Self::Full => Backoff::full(base, cap),
            Self::Equal => Backoff::equal(base, cap),
            Self::Decorrelated => Backoff::decorrelated(base, cap),
        };
        let mut delays = backoff.seed(seed).delays();
        if self != Self::Decorrelated {
            delays.next();
        }
        Some(delays)
    }
}

/// A race for one row.
#[derive(Clone, Debug)]
pub struct Contenders {
    /// Determines each random number.
    pub seed: u64,
    /// The numbers of clients to simulate, each at least 1.
    pub clients: Vec<usize>,
    /// The number of times that each race is run, at least 2.
    pub trials: usize,
    /// The mean of the normal distribution whose absolute value is the time of one way.
    pub delay: Duration,
    /// Its standard deviation.
    pub deviation: Duration,
    /// Of the back-offs.
    pub base: Duration,
    pub cap: Duration,
    /// The number of clients whose calls over time are recorded.
    pub over_time: usize,
}

/// The most calls of all races with one kind of back-off, about: some minutes.
const MOST_CALLS: u64 = 1_000_000_000;

impl Default for Contenders {
    fn default() -> Self {
        let tens = (1..=20).map(|tens| 10 * tens);
        Self {
            seed: 1,
            clients: [1, 2, 5].into_iter().chain(tens).collect(),
            trials: 100,
            delay: Duration::from_millis(10),
            deviation: Duration::from_millis(2),
            base: Duration::from_millis(5),
            cap: Duration::from_secs(2),
            over_time: 100,
        }
    }
}

impl Contenders {
    /// # Errors
    ///
    /// When a number is out of its range.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.trials < 2 {
            return Err(format!(
                "{} trials: expected at least 2, because the interval of confidence needs their variance",
                self.trials
            ));
        }
        if self.clients.is_empty() || self.clients.contains(&0) {
            return Err("0 clients: expected at least 1".to_owned());
        }
        let squares = self
            .clients
            .iter()
            .map(|clients| (clients * clients) as u64);
        let calls = squares.sum::<u64>().saturating_mul(self.trials as u64);
        if calls > MOST_CALLS {
            return Err(format!(
                "{} trials of up to {} clients: expected at most {MOST_CALLS} calls for each kind, by the square of the clients; choose \
                 fewer clients or trials",
                self.trials,
                self.clients.iter().max().unwrap_or(&0)
            ));
        }
        let longest = Duration::from_secs(3600);
        for (name, time) in [
            ("delay", self.delay),
            ("deviation", self.deviation),
            ("base", self.base),
            ("cap", self.cap),
        ] {
            if time > longest {
                return Err(format!(
                    "a {name} of {time:?}: expected at most 3600 s, so that no race takes years"
                ));
            }
        }
        if self.delay.is_zero() && self.deviation.is_zero() {
            return Err(
                "a delay of 0: expected more, because calls that take no time never collide"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

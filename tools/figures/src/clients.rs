//! When calls come.

use std::time::Duration;

use crate::{random::Random, timeline::Instant};

/// When a client calls.
#[derive(Clone, Copy, Debug)]
pub enum Arrivals {
    /// At random, independently of each other.
    Poisson,
    /// At random while the client is on. How long it is on and off is random, too, with these
    /// means.
    OnOff { on: Duration, off: Duration },
}

/// The calls of one client.
pub(crate) struct Client {
    random: Random,
    /// Between two calls while the client is on, in nanoseconds.
    mean_gap: f64,
    /// Means in nanoseconds.
    on_off: Option<(f64, f64)>,
    at: Instant,
    on_until: Instant,
}

impl Client {
    /// Creates the client of a number, with so many calls in a second on average.
    pub(crate) fn new(arrivals: Arrivals, rate: f64, seed: u64, number: usize) -> Self {
        let mut random = Random::new(seed, &format!("client {number}"));
        let mean_gap = 1e9 / rate;
        let Arrivals::OnOff { on, off } = arrivals else {
            return Self {
                random,
                mean_gap,
                on_off: None,
                at: 0,
                on_until: Instant::MAX,
            };
        };
        let (on, off) = (on.as_nanos() as f64, off.as_nanos() as f64);
        let on_until = random.exponential(on);
        Self {
            random,
            mean_gap: mean_gap * on / (on + off),
            on_off: Some((on, off)),
            at: 0,
            on_until,
        }
    }

    /// Returns the instant of the next call.
    pub(crate) fn next(&mut self) -> Instant {
        loop {
            let at = self
                .at
                .saturating_add(self.random.exponential(self.mean_gap));
            let Some((on, off)) = self.on_off.filter(|_| at > self.on_until) else {
                self.at = at;
                return at;
            };
            // Exponential times have no memory, so the next gap may begin anew.
            self.at = self.on_until + self.random.exponential(off);
            self.on_until = self.at + self.random.exponential(on);
        }
    }
}

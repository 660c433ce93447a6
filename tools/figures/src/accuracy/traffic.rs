//! When calls come, in milliseconds.

use std::{fs, path::Path};

use tollgate::Quota;

use super::MOST_CALLS;
use crate::random::Random;

/// Calls with a name, in the order of their times.
pub(super) struct Traffic {
    pub(super) name: &'static str,
    /// In milliseconds.
    pub(super) calls: Vec<u64>,
}

/// The latest call, 31 years after the beginning.
const LATEST: u64 = 1_000_000_000_000;

/// Clumps of calls beside the steady ones.
struct Clumps {
    next: f64,
    random: Random,
}

impl Traffic {
    /// Returns the title of the traffic in pictures.
    pub(super) fn title(&self) -> &'static str {
        match self.name {
            "poisson" => "Poisson calls at the rate of the limit",
            "modulated" => {
                "Poisson calls at 0.2 to 1.8 of the rate of the limit, which changes several times in a window"
            }
            "bursty" => {
                "Poisson calls at 0.6 of the rate of the limit, and clumps of 0.2 to 0.6 of the limit"
            }
            _ => "Recorded calls",
        }
    }

    /// Reads a JSON list of milliseconds.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let file = path.display();
        let help = "expected a JSON list of whole milliseconds, as in [0, 250, 1700]";
        let text = fs::read(path).map_err(|error| {
            format!("the file {file} cannot be read: {error}; choose another one with --arrivals")
        })?;
        let mut calls: Vec<u64> = serde_json::from_slice(&text)
            .map_err(|error| format!("the file {file} is wrong: {error}; {help}"))?;
        if calls.is_empty() {
            return Err(format!("the file {file} has no calls; {help}"));
        }
        if calls.len() as u64 > MOST_CALLS {
            return Err(format!(
                "the file {file} has more than {MOST_CALLS} calls; choose a part of them"
            ));
        }
        calls.sort_unstable();
        if let Some(late) = calls.last().filter(|last| **last > LATEST) {
            return Err(format!(
                "the file {file} has a call at {late} ms: expected at most {LATEST}; count from the first call"
            ));
        }
        Ok(Self {
            name: "arrivals",
            calls,
        })
    }

    /// Returns calls at the rate of the limit, at a changing rate, and in clumps.
    ///
    /// Their numbers and times are parts of the limit, so that those of `100/60s` are round.
    pub(super) fn random(limit: Quota, windows: u64, seed: u64) -> Result<Vec<Self>, String> {
        let calls = limit.amount().saturating_mul(windows);
        if calls > MOST_CALLS / 2 {
            return Err(format!(
                "--limit \"{limit}\" and --windows {windows}: expected at most {} calls in all; choose fewer windows",
                MOST_CALLS / 2
            ));
        }
        let window = limit.period().as_secs_f64() * 1000.0;
        let end = window * windows as f64;
        if end > LATEST as f64 {
            return Err(format!(
                "--limit \"{limit}\" and --windows {windows}: expected at most 31 years in all; choose fewer windows"
            ));
        }
        let rate = limit.amount() as f64 / window;
        let poisson = steady(rate, end, &mut Random::new(seed, "poisson"));
        let modulated = modulated(rate, window, end, &mut Random::new(seed, "modulated"));
        let mut bursty = steady(0.6 * rate, end, &mut Random::new(seed, "bursty"));
        let mut clumps = Clumps {
            next: 0.0,
            random: Random::new(seed, "clumps"),
        };
        while clumps.add(limit, window, end, &mut bursty) {}
        let new = |name, mut calls: Vec<f64>| {
            calls.sort_unstable_by(f64::total_cmp);
            let calls = calls.into_iter().map(|call| call as u64).collect();
            Self { name, calls }
        };
        Ok(vec![
            new("poisson", poisson),
            new("modulated", modulated),
            new("bursty", bursty),
        ])
    }
}

/// Returns Poisson calls at a rate per millisecond.
fn steady(rate: f64, end: f64, random: &mut Random) -> Vec<f64> {
    let mut calls = Vec::new();
    let mut now = gap(rate, random);
    while now < end {
        calls.push(now);
        now += gap(rate, random);
    }
    calls
}

/// Returns Poisson calls at 0.2 to 1.8 of a rate, which is drawn anew after a sixth to two thirds
/// of a window.
fn modulated(rate: f64, window: f64, end: f64, random: &mut Random) -> Vec<f64> {
    let (mut calls, mut begin) = (Vec::new(), 0.0);
    while begin < end {
        let until = begin + window * between(random, 1.0 / 6.0, 2.0 / 3.0);
        let rate = rate * between(random, 0.2, 1.8);
        // Gaps have no memory, so each part may begin anew.
        let mut now = begin + gap(rate, random);
        while now < until.min(end) {
            calls.push(now);
            now += gap(rate, random);
        }
        begin = until;
    }
    calls
}

impl Clumps {
    /// Adds 0.2 to 0.6 of the limit within a thirtieth of a window, half a window to a whole one
    /// after the last clump.
    fn add(&mut self, limit: Quota, window: f64, end: f64, calls: &mut Vec<f64>) -> bool {
        self.next += window * between(&mut self.random, 0.5, 1.0);
        let count = limit.amount() as f64 * between(&mut self.random, 0.2, 0.6);
        for _ in 0..libm::round(count) as u64 {
            let call = self.next + window * between(&mut self.random, 0.0, 1.0 / 30.0);
            if call < end {
                calls.push(call);
            }
        }
        self.next < end
    }
}

/// Returns an exponentially distributed time in milliseconds.
fn gap(rate: f64, random: &mut Random) -> f64 {
    -libm::log(random.fraction()) / rate
}

fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    low + (high - low) * random.fraction()
}

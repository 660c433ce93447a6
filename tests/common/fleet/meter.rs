//! An exact meter for admissions whose instants are known between two bounds.

/// An admission at some instant from `from` to `to`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    pub from: u64,
    pub to: u64,
}

/// A time in which the server lost its data: the bucket was full again, and units that were granted
/// before could still be spent.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub from: u64,
    pub to: u64,
}

/// The most that a bucket may admit in a span: the burst, the refill, and another burst for each
/// loss that the span meets.
#[derive(Clone, Debug)]
pub struct Meter<'a> {
    pub rate: u64,
    pub burst: u64,
    /// The difference between the clocks of two nodes in nanoseconds; zero if the store has a clock
    /// of its own.
    pub offset: u64,
    pub losses: &'a [Loss],
}

/// A span in which more was admitted than the limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    pub from: u64,
    pub to: u64,
    pub admitted: u64,
    pub allowed: u64,
}

impl Meter<'_> {
    fn allowed(&self, from: u64, to: u64) -> u64 {
        let span = u128::from(to - from + self.offset);
        let refilled = u128::from(self.rate) * span / 1_000_000_000;
        let lost = self.losses.iter();
        let lost = lost.filter(|loss| loss.from <= to && from <= loss.to);
        self.burst * (1 + lost.count() as u64) + refilled as u64
    }

    /// Compares each span from one bound to another with what was certainly admitted in it. Returns
    /// the span that is the furthest over.
    ///
    /// Sound, because an admission counts only where all of its bounds lie within the span; and it
    /// finds whatever can be known: if no span is over, there are instants within the bounds that
    /// an exact bucket admits.
    pub fn worst(&self, admissions: &[Admission]) -> Option<Over> {
        let mut by_end = admissions.to_vec();
        by_end.sort_by_key(|admission| admission.to);
        let mut starts: Vec<u64> = admissions.iter().map(|admission| admission.from).collect();
        starts.sort_unstable();
        starts.dedup();
        let mut worst: Option<Over> = None;
        for from in starts {
            let mut admitted = 0;
            let first = by_end.partition_point(|admission| admission.to < from);
            for last in &by_end[first..] {
                if last.from < from {
                    continue;
                }
                admitted += 1;
                // Most spans hold less than the burst.
                if admitted <= self.burst {
                    continue;
                }
                let allowed = self.allowed(from, last.to);
                let before = worst.map_or(0, |worst| worst.admitted - worst.allowed);
                if admitted > allowed + before {
                    worst = Some(Over {
                        from,
                        to: last.to,
                        admitted,
                        allowed,
                    });
                }
            }
        }
        worst
    }
}

/// Returns how many of these calls an exact bucket admits, which is full at first, and again at the
/// first call after each of `full_at`.
pub fn exactly(rate: u64, burst: u64, calls: &[u64], full_at: &[u64]) -> u64 {
    let mut calls = calls.to_vec();
    calls.sort_unstable();
    // In billionths of a unit.
    let (unit, mut level, mut last) = (1_000_000_000_u128, u128::from(burst) * 1_000_000_000, 0);
    let mut admitted = 0;
    for now in calls {
        let refilled = u128::from(rate) * u128::from(now - last);
        let is_full = full_at.iter().any(|full| last < *full && *full <= now);
        level = (level + refilled).min(u128::from(burst) * unit);
        if is_full {
            level = u128::from(burst) * unit;
        }
        last = now;
        if level >= unit {
            level -= unit;
            admitted += 1;
        }
    }
    admitted
}

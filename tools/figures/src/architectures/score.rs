//! A fleet compared with one exact limiter.

use super::{kind::Kind, world::World};
use crate::{exact::Meters, record::Outcome};

/// The result of a run, of the calls after the warm-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Score {
    pub kind: Kind,
    pub nodes: usize,
    /// The calls of a greedy key, in millionths of its limit.
    pub load: u64,
    pub offered: u64,
    pub admitted: u64,
    /// Calls that were not answered by their deadline; they were refused.
    pub failed: u64,
    /// The calls that one exact limiter admits of the same calls, each at the instant at which the
    /// fleet decided it.
    pub exact: u64,
    /// Admitted calls above what the limit allows: an exact limiter that sees only what the fleet
    /// has admitted refuses so many.
    pub over_admitted: u64,
    /// The most units by which the admissions of a key exceeded the limit at an instant of the
    /// whole run. A bucket repays what is above.
    pub overshoot: u64,
    /// The bound of the architecture for that; `None` without a hard bound above 0.
    pub overshoot_bound: Option<u64>,
    /// Refused and failed calls that the exact limiter admits.
    pub wrongly_refused: u64,
    /// Units of the limit that no call got: for each key, what the exact limiter admits and the
    /// fleet does not, on balance.
    pub withheld: u64,
    /// The admitted calls of greedy keys, and what the exact limiter admits of these keys.
    pub of_greedy: (u64, u64),
    pub store_calls: u64,
    pub messages: u64,
    /// The longest that half and 99 of 100 calls waited, in nanoseconds.
    pub p50: u64,
    pub p99: u64,
}

impl Score {
    pub(super) fn new(
        kind: Kind,
        world: &World,
        (offered, overshoot_bound): (u64, Option<u64>),
    ) -> Result<Self, String> {
        let settings = &world.settings;
        let mut record = world.record.take();
        record.sort_by_key(|call| (call.counts_at, call.number));
        let (store_calls, messages) = world.traffic();
        let mut score = Self {
            kind,
            nodes: settings.nodes,
            load: settings.load,
            offered,
            admitted: 0,
            failed: 0,
            exact: 0,
            over_admitted: 0,
            overshoot: 0,
            overshoot_bound,
            wrongly_refused: 0,
            withheld: 0,
            of_greedy: (0, 0),
            store_calls,
            messages,
            p50: 0,
            p99: 0,
        };
        let meters = || Meters::new(&settings.rule);
        let (mut of_all, mut of_admitted, mut with_excess) = (meters(), meters(), meters());
        // Of each key, what the exact limiter admits, and what the fleet has admitted within the
        // limit.
        let mut balances = vec![(0_u64, 0_u64); settings.keys() as usize];
        let mut waits = Vec::new();
        for call in &record {
            let is_admitted = call.outcome == Outcome::Admitted;
            let would_admit = of_all.admits(call.key, call.counts_at)?;
            let is_over = is_admitted && !of_admitted.admits(call.key, call.counts_at)?;
            if is_admitted {
                let excess = with_excess.admitted(call.key, call.counts_at)?;
                score.overshoot = score.overshoot.max(excess);
            }
            if !world.is_measured(call.came) {
                continue;
            }
            score.admitted += u64::from(is_admitted);
            score.failed += u64::from(call.outcome == Outcome::Failed);
            score.exact += u64::from(would_admit);
            score.over_admitted += u64::from(is_over);
            let balance = &mut balances[call.key as usize];
            balance.0 += u64::from(would_admit);
            balance.1 += u64::from(is_admitted && !is_over);
            score.wrongly_refused += u64::from(would_admit && !is_admitted);
            if call.key < settings.greedy {
                score.of_greedy.0 += u64::from(is_admitted);
                score.of_greedy.1 += u64::from(would_admit);
            }
            waits.push(call.answered - call.came);
        }
        let withheld = |(exact, admitted): (u64, u64)| exact.saturating_sub(admitted);
        score.withheld = balances.into_iter().map(withheld).sum();
        waits.sort_unstable();
        let wait = |part| {
            waits
                .get(waits.len().saturating_sub(1) * part / 100)
                .copied()
        };
        score.p50 = wait(50).unwrap_or(0);
        score.p99 = wait(99).unwrap_or(0);
        // A call that is lost would be missed by all the numbers above.
        if waits.len() as u64 != offered {
            return Err(format!(
                "{} of {offered} calls were answered: expected all; this is a fault of the simulation",
                waits.len()
            ));
        }
        Ok(score)
    }
}

//! The numbers of a run.

use tollgate::store::LeaseStats;

use crate::{
    exact::Meters,
    faults::nanos,
    record::{Call, Outcome},
    scenario::Scenario,
    timeline::{Instant, Timeline},
};

/// The result of a run. Calls and their numbers are those of the measured time, after the warm-up.
#[derive(Clone, Debug)]
pub struct Report {
    pub name: String,
    pub seed: u64,
    /// The units that the rule refills for one key in the measured time, in units.
    pub refilled: u64,
    pub offered: u64,
    pub admitted: u64,
    pub refused: u64,
    /// The store did not answer.
    pub failed: u64,
    /// The calls that an exact limiter would have admitted of these.
    pub exact: u64,
    /// By how many units the limit was exceeded at most, of any key at any time.
    pub overshoot: u64,
    /// Calls to the store.
    pub asked: u64,
    /// Of each node.
    pub served: Vec<Served>,
    /// The instants at which each node called the store, from the beginning.
    pub calls: Vec<Vec<Instant>>,
    /// All calls that were answered, from the beginning.
    pub record: Vec<Call>,
    /// The waits of calls for their answers, in nanoseconds, sorted.
    pub waits: Vec<u64>,
    /// The fate of the units that each node was granted, from the beginning.
    pub stats: Vec<LeaseStats>,
}

/// The calls that came to a node, and those that were admitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    pub offered: u64,
    pub admitted: u64,
}

impl Report {
    pub(crate) fn new(
        scenario: &Scenario,
        record: Vec<Call>,
        offered: Vec<u64>,
        calls: &[Vec<Instant>],
        stats: Vec<LeaseStats>,
    ) -> Result<Self, String> {
        let (begin, end) = (nanos(scenario.warm_up), nanos(scenario.time));
        let measured = |at: &Instant| (begin..end).contains(at);
        let served = |offered| Served {
            offered,
            admitted: 0,
        };
        let (amount, period) = scenario.refill();
        let refilled =
            u128::from(end.saturating_sub(begin)) * u128::from(amount) / u128::from(period);
        let mut report = Self {
            name: scenario.name.clone(),
            seed: scenario.seed,
            refilled: refilled as u64,
            offered: offered.iter().sum(),
            admitted: 0,
            refused: 0,
            failed: 0,
            exact: 0,
            overshoot: overshoot(scenario, &record)?,
            asked: calls.iter().flatten().filter(|at| measured(at)).count() as u64,
            served: offered.into_iter().map(served).collect(),
            calls: calls.to_vec(),
            waits: Vec::new(),
            stats,
            record: Vec::new(),
        };
        let mut exact = Meters::new(&scenario.rule);
        for call in &record {
            let would_admit = exact.admits(call.key, Timeline::timestamp(call.came))?;
            if !measured(&call.came) {
                continue;
            }
            report.exact += u64::from(would_admit);
            report.waits.push(call.answered - call.came);
            match call.outcome {
                Outcome::Admitted => {
                    report.admitted += 1;
                    report.served[call.node].admitted += 1;
                }
                Outcome::Refused => report.refused += 1,
                Outcome::Failed => report.failed += 1,
            }
        }
        report.waits.sort_unstable();
        report.record = record;
        Ok(report)
    }

    /// Returns how long a part of the calls waited at most, in nanoseconds; the part is in
    /// thousandths.
    pub fn wait(&self, part: usize) -> u64 {
        let last = self.waits.len().saturating_sub(1);
        self.waits.get(last * part / 1000).copied().unwrap_or(0)
    }

    /// Returns the sum of a counter of all nodes.
    pub fn units(&self, of: impl Fn(&LeaseStats) -> u64) -> u64 {
        self.stats.iter().map(of).sum()
    }

    /// Returns the parts of their calls that were admitted on the node that was served worst and on
    /// the one that was served best, in thousandths. Nodes without calls are left out.
    pub fn fairness(&self) -> (u64, u64) {
        let with_calls = self.served.iter().filter(|served| served.offered > 0);
        let parts = with_calls.map(|served| 1000 * served.admitted / served.offered);
        let (least, most) = (parts.clone().min(), parts.max());
        (least.unwrap_or(0), most.unwrap_or(0))
    }
}

/// Feeds all admissions of all nodes to exact meters, in the order of their times.
fn overshoot(scenario: &Scenario, record: &[Call]) -> Result<u64, String> {
    let mut admitted: Vec<_> = record
        .iter()
        .filter(|call| call.outcome == Outcome::Admitted)
        .collect();
    admitted.sort_by_key(|call| (call.counts_at, call.number));
    let (mut meters, mut most) = (Meters::new(&scenario.rule), 0);
    for call in admitted {
        most = most.max(meters.admitted(call.key, call.counts_at)?);
    }
    Ok(most)
}

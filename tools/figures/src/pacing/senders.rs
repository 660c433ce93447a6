//! One process serves many senders, each in its time slice of every second.

use std::time::Duration;

use tollgate::{
    Quota, Timestamp,
    pace::{Pacer, RoundRobin},
};

use super::{Pacing, rules::rules};
use crate::figure::Table;

const SENDERS: [usize; 5] = [1, 2, 10, 50, 100];
const SECONDS: u64 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// Returns what all senders send in ten seconds, each under a rule with its share of the rate.
pub(super) fn table(of: &Pacing) -> Result<Table, String> {
    let mut table = Table::new([
        "senders",
        "quantum_ms",
        "rule",
        "items",
        "least_per_sender",
        "most_per_sender",
    ]);
    let per_second = of.rate.amount() as f64 / of.rate.period().as_secs_f64();
    for senders in SENDERS {
        let share = per_second as u64 / senders as u64;
        // A rate that the senders cannot share has fewer rows.
        let Ok(share) = Quota::try_new(share, SECOND) else {
            continue;
        };
        for (name, rule) in rules(share)? {
            let pacers: Vec<_> = (0..senders).map(|_| Pacer::new(rule.clone())).collect();
            let items = send(of, &pacers);
            let [least, most] = [items.iter().min(), items.iter().max()];
            table.row([
                senders.to_string(),
                (1000 / senders).to_string(),
                name.to_owned(),
                items.iter().sum::<u64>().to_string(),
                least.copied().unwrap_or(0).to_string(),
                most.copied().unwrap_or(0).to_string(),
            ]);
        }
    }
    Ok(table)
}

/// Returns the items of each sender.
fn send(of: &Pacing, pacers: &[Pacer<tollgate::AnyRule>]) -> Vec<u64> {
    let schedule = RoundRobin::new(SECOND, pacers.len());
    let mut now = Timestamp::from_nanos(43_200_000_000_000);
    let end = now.saturating_add(SECOND * SECONDS as u32);
    let mut items = vec![0; pacers.len()];
    while now < end {
        let sender = schedule.turn(now).sender;
        let sends = pacers[sender].can_do_work(now);
        items[sender] += u64::from(sends);
        now = now.saturating_add(if sends { of.work } else { of.poll });
    }
    items
}

//! The totals of one partition, as its aggregator adds them up.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use rdkafka::{Message, message::BorrowedMessage};
use tokio::time::Instant;

use crate::{
    counters::AggregatorCounts,
    message::Change,
    total::{HEARTBEAT, Taken, Total},
};

const HEARTBEAT_EVERY: Duration = Duration::from_millis(200);

/// The totals of one partition.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    totals: HashMap<String, Total>,
    /// Keys whose totals are to be written.
    changed: HashSet<String>,
    /// The offset after the last change that was read, since it was committed.
    pub(crate) next: Option<i64>,
    /// Nothing is left to be read.
    is_at_end: bool,
    /// When the last change was produced, in nanoseconds of Unix time.
    produced_at: u64,
    last_heartbeat: Option<Instant>,
}

/// A total to be written; none to have the key removed.
pub(crate) type Write = (String, Option<Vec<u8>>);

impl Partition {
    pub(crate) fn new(totals: HashMap<String, Total>) -> Self {
        Self {
            totals,
            ..Self::default()
        }
    }

    /// Takes in a change of this partition.
    pub(crate) fn take_in(
        &mut self,
        message: &BorrowedMessage<'_>,
        now: u64,
        counts: &AggregatorCounts,
    ) {
        self.next = Some(message.offset() + 1);
        self.is_at_end = false;
        if let Some(millis) = message.timestamp().to_millis() {
            self.produced_at = u64::try_from(millis).unwrap_or(0).saturating_mul(1_000_000);
        }
        let key = message.key().and_then(|key| std::str::from_utf8(key).ok());
        let change = message.payload().map(serde_json::from_slice::<Change>);
        let (Some(key), Some(Ok(change))) = (key, change) else {
            counts.unreadable.add(1);
            return;
        };
        if key == HEARTBEAT || !change.is_readable() {
            counts.unreadable.add(1);
            return;
        }
        let total = self.totals.entry(key.to_owned()).or_default();
        match total.take_in(&change, message.offset(), now) {
            Taken::In => counts.taken_in.add(1),
            Taken::Repeated => counts.repeated.add(1),
            Taken::Redelivered => {
                counts.redelivered.add(1);
                return;
            }
            Taken::Newer => {
                counts.unreadable.add(1);
                return;
            }
        }
        // A repetition advances the offset, by which its node knows that it is in the total.
        self.changed.insert(key.to_owned());
    }

    /// Notes that nothing is left to be read.
    pub(crate) fn reach_the_end(&mut self) {
        self.is_at_end = true;
    }

    /// Returns the totals that have changed, a heartbeat if one is due, and with it keys that are
    /// like new for longer than `keep`, in nanoseconds.
    pub(crate) fn writes(&mut self, now: u64, keep: u64, counts: &AggregatorCounts) -> Vec<Write> {
        let as_of = match self.is_at_end {
            true => now,
            false => self.produced_at,
        };
        let mut writes = Vec::new();
        for key in &self.changed {
            if let Some(total) = self.totals.get_mut(key) {
                total.as_of = as_of;
                counts.forgotten_nodes.add(total.forget_nodes(now, keep));
                writes.push((key.clone(), serde_json::to_vec(total).ok()));
            }
        }
        let since = self.last_heartbeat.map(|last| last.elapsed());
        let is_due = since.is_none_or(|since| since >= HEARTBEAT_EVERY);
        // Nothing was heard of a partition that was just assigned.
        if as_of > 0 && (is_due || !writes.is_empty()) {
            let alive = Total {
                as_of,
                ..Total::default()
            };
            writes.push((HEARTBEAT.to_owned(), serde_json::to_vec(&alive).ok()));
            // Changes that are not read yet may be of these keys.
            let is_old = |total: &Total| total.until.max(total.as_of).saturating_add(keep) < as_of;
            let old = self.totals.iter().filter(|(_, total)| is_old(total));
            writes.extend(old.map(|(key, _)| (key.clone(), None)));
        }
        writes
    }

    /// Notes that these are written.
    pub(crate) fn written(&mut self, writes: &[Write], counts: &AggregatorCounts) {
        for (key, total) in writes {
            match total {
                Some(_) if key == HEARTBEAT => self.last_heartbeat = Some(Instant::now()),
                Some(_) => drop(self.changed.remove(key)),
                None => {
                    self.totals.remove(key);
                    counts.removed.add(1);
                }
            }
        }
    }
}

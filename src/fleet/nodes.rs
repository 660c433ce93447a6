//! The number of nodes that share the limits of a store.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::locks::lock;
use crate::{
    algorithm::Algorithm,
    decision::Decision,
    policy::Policy,
    stats::Counter,
    store::{NodeCounts, Store, StoreError, engine::runtime},
    time::{Clock, SystemClock, Timestamp},
};

/// The most policies whose nodes are counted. All nodes of a service ask under the same ones.
const MOST_POLICIES: usize = 8;

/// The time after which a policy without calls counts no longer, and leaves its place to another.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3 * NodeCounts::PERIOD.as_secs());

/// The nodes that share the limits of each policy, as far as they are known.
pub(super) struct Nodes {
    /// `true` if the number was set.
    is_set: bool,
    /// The greatest number of the policies that are called; 0 while it is not known.
    number: AtomicU64,
    of_policies: Mutex<Vec<OfPolicy>>,
    /// Counts that failed.
    pub(super) failed: Counter,
    /// By how many nanoseconds the clock of the store is ahead of this node's.
    ahead: AtomicI64,
}

/// Stands for a clock of which nothing is known.
const UNKNOWN: i64 = i64::MIN;

struct OfPolicy {
    policy: Policy,
    /// The period in which this node was counted last.
    period: u64,
    /// When that was, by this node's clock.
    at: Timestamp,
    /// 0 while it is not known.
    nodes: u64,
}

impl OfPolicy {
    /// Returns the time since this node was counted last, whichever way its clock has stepped.
    fn age(&self, here: Timestamp) -> Duration {
        let nanos = here.as_nanos().abs_diff(self.at.as_nanos());
        Duration::from_nanos(nanos)
    }

    fn is_called(&self, here: Timestamp) -> bool {
        self.age(here) < FORGOTTEN_AFTER
    }
}

impl Nodes {
    pub(super) fn new(set: Option<u64>) -> Self {
        Self {
            is_set: set.is_some(),
            number: AtomicU64::new(set.unwrap_or(0)),
            of_policies: Mutex::default(),
            failed: Counter::default(),
            ahead: AtomicI64::new(UNKNOWN),
        }
    }

    /// Notes an instant of the store's clock, from an answer. All nodes see that one, where the
    /// store has one: a node whose own is ahead would count itself in a period to which the others
    /// have not come.
    pub(super) fn note_clock(&self, at: Timestamp) {
        if !self.is_set {
            self.note_clock_at(at, SystemClock::default().now());
        }
    }

    /// Notes the instant of an answer of the store, if the store decided it.
    pub(super) fn note_answer(&self, answer: &Decision) {
        if !answer.is_undecided() {
            self.note_clock(answer.at());
        }
    }

    fn note_clock_at(&self, at: Timestamp, now: Timestamp) {
        let ahead = i128::from(at.as_nanos()) - i128::from(now.as_nanos());
        let ahead = ahead.clamp(i128::from(UNKNOWN + 1), i128::from(i64::MAX));
        self.ahead.store(ahead as i64, Ordering::Relaxed);
    }

    /// Returns the period in which this node has to count itself, if it has not done so. Not before
    /// an answer has shown the clock of the store.
    pub(super) fn due(&self, policy: &Policy) -> Option<u64> {
        if self.is_set {
            return None;
        }
        self.due_at(policy, SystemClock::default().now())
    }

    fn due_at(&self, policy: &Policy, here: Timestamp) -> Option<u64> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let by = Duration::from_nanos(ahead.unsigned_abs());
        let now = match ahead {
            UNKNOWN => return None,
            0.. => here.saturating_add(by),
            _ => here.saturating_sub(by),
        };
        let period = now.as_nanos() / NodeCounts::PERIOD.as_nanos() as u64;
        let mut all = lock(&self.of_policies);
        if let Some(known) = all.iter_mut().find(|known| known.policy == *policy) {
            // Answers that took longer show an earlier period for a while: it is no other one. A
            // clock that was set back shows it for longer, and so does a store whose time stands
            // still since.
            let is_due = period > known.period || known.age(here) >= 2 * NodeCounts::PERIOD;
            if is_due {
                (known.period, known.at) = (period, here);
            }
            return is_due.then_some(period);
        }
        if all.len() >= MOST_POLICIES {
            all.retain(|known| known.is_called(here));
        }
        if all.len() >= MOST_POLICIES {
            return None;
        }
        all.push(OfPolicy {
            policy: policy.clone(),
            period,
            at: here,
            nodes: 0,
        });
        Some(period)
    }

    /// Has this node counted in the store if that is due, beside a call to the store.
    pub(super) fn count<Rule: Algorithm>(
        self: &Arc<Self>,
        policy: &Policy,
        store: &impl Store<Rule, Error = StoreError>,
    ) {
        let count = |period| store.fleet()?.count_node(policy, period);
        let counting = self.due(policy).and_then(count);
        let (Some(counting), Ok(runtime)) = (counting, runtime()) else {
            return;
        };
        let (nodes, policy) = (Arc::clone(self), policy.clone());
        runtime.spawn(async move {
            match counting.await {
                Ok(counts) => nodes.counted(&policy, counts, SystemClock::default().now()),
                Err(_) => nodes.failed.add(1),
            }
        });
    }

    fn counted(&self, policy: &Policy, counts: NodeCounts, here: Timestamp) {
        let mut all = lock(&self.of_policies);
        if let Some(known) = all.iter_mut().find(|known| known.policy == *policy) {
            known.nodes = counts.nodes();
        }
        let called = all.iter().filter(|known| known.is_called(here));
        if let Some(most) = called.map(|known| known.nodes).max() {
            self.number.store(most, Ordering::Relaxed);
        }
    }

    /// Returns the greatest number of the policies that are called; `None` while it is not known.
    #[inline]
    pub(super) fn number(&self) -> Option<u64> {
        let number = self.number.load(Ordering::Relaxed);
        (number > 0).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_counts_itself_once_in_a_period_and_policy() {
        let nodes = Nodes::new(None);
        let (a, b) = (Policy::new("a"), Policy::new("b"));
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        assert_eq!(nodes.number(), None);
        assert_eq!(nodes.due_at(&a, at(85)), None, "the clock is not known");
        // This node is a minute ahead of the store.
        nodes.note_clock_at(at(25), at(85));
        assert_eq!(nodes.due_at(&a, at(85)), Some(2));
        assert_eq!(nodes.due_at(&a, at(89)), None);
        let nodes = Nodes::new(None);
        nodes.note_clock_at(at(25), at(25));
        assert_eq!(nodes.due_at(&a, at(25)), Some(2));
        assert_eq!(nodes.due_at(&a, at(29)), None);
        assert_eq!(nodes.due_at(&b, at(29)), Some(2));
        assert_eq!(nodes.due_at(&a, at(30)), Some(3));
        let counts = |current, previous| NodeCounts { current, previous };
        // The store's time stands still.
        nodes.note_clock_at(at(30), at(49));
        assert_eq!(nodes.due_at(&a, at(49)), None);
        nodes.note_clock_at(at(30), at(50));
        assert_eq!(nodes.due_at(&a, at(50)), Some(3));
        assert_eq!(nodes.due_at(&a, at(51)), None);
        nodes.counted(&a, counts(1, 8), at(51));
        nodes.counted(&b, counts(3, 2), at(51));
        assert_eq!(nodes.number(), Some(8));
        nodes.counted(&a, counts(2, 1), at(51));
        assert_eq!(nodes.number(), Some(3));
    }

    #[test]
    fn answers_that_take_different_times_count_a_node_once_in_a_period() {
        let nodes = Nodes::new(None);
        let policy = Policy::new("a");
        let at = Timestamp::from_nanos;
        // Answers take 1 ms and 200 ms by turns, and there is one each 50 ms.
        let mut counted = Vec::new();
        for n in 0..1200 {
            let (now, took) = (100_000_000_000 + n * 50_000_000, [1, 200][n as usize % 2]);
            nodes.note_clock_at(at(now - took * 1_000_000), at(now));
            counted.extend(nodes.due_at(&policy, at(now)));
        }
        assert_eq!(counted, [9, 10, 11, 12, 13, 14, 15]);
    }

    #[test]
    fn nodes_are_counted_while_clocks_are_set_back() {
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        let policy = Policy::new("a");
        // That of the store, and those of both.
        for here in [5000, 1000] {
            let nodes = Nodes::new(None);
            nodes.note_clock_at(at(5000), at(5000));
            assert_eq!(nodes.due_at(&policy, at(5000)), Some(500));
            let times = (20..60).map(|n| (at(1000 + n), at(here + n)));
            let counted = times.filter_map(|(there, here)| {
                nodes.note_clock_at(there, here);
                nodes.due_at(&policy, here)
            });
            assert_eq!(counted.collect::<Vec<_>>(), [102, 103, 104, 105]);
        }
    }

    #[test]
    fn policies_that_are_called_no_longer_count_no_longer() {
        let nodes = Nodes::new(None);
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        let count = |policy: &str, seconds, current| {
            let policy = Policy::new(policy);
            nodes.note_clock_at(at(seconds), at(seconds));
            if nodes.due_at(&policy, at(seconds)).is_some() {
                let previous = 0;
                nodes.counted(&policy, NodeCounts { current, previous }, at(seconds));
            }
        };
        for n in 0..MOST_POLICIES {
            count(&format!("p{n}"), 100, 50);
        }
        assert_eq!(nodes.number(), Some(50));
        for seconds in 101..160 {
            count("ninth", seconds, 3);
            let number = if seconds < 130 { 50 } else { 3 };
            assert_eq!(nodes.number(), Some(number), "{seconds}");
        }
        count("p1", 160, 7);
        assert_eq!(nodes.number(), Some(7));
    }

    #[test]
    fn a_number_that_is_set_needs_no_counting() {
        let nodes = Nodes::new(Some(5));
        assert_eq!(nodes.due(&Policy::new("a")), None);
        assert_eq!(nodes.number(), Some(5));
    }

    #[test]
    fn policies_that_come_and_go_fill_no_memory() {
        let nodes = Nodes::new(None);
        nodes.note_clock_at(Timestamp::default(), Timestamp::default());
        for n in 0..100 {
            let policy = Policy::new(&format!("p{n}"));
            let is_due = nodes.due_at(&policy, Timestamp::from_nanos(n)).is_some();
            assert_eq!(is_due, n < MOST_POLICIES as u64);
        }
    }
}

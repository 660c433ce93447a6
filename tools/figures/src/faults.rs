//! The faults of a run, and their times.

use std::time::Duration;

use crate::timeline::{Instant, Timeline};

/// A span of time.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from: Duration,
    pub to: Duration,
}

impl Span {
    fn contains(&self, at: Instant) -> bool {
        let at = Duration::from_nanos(at);
        self.from <= at && at < self.to
    }
}

/// A fault. Nodes are numbers from 0 on.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The store answers nothing that arrives within.
    pub outages: Vec<Span>,
    /// The store forgets all states at the end of each outage.
    pub loses_data: bool,
    /// A node cannot send or be reached.
    pub partitions: Vec<(usize, Span)>,
    /// A node does nothing, but its clock goes on.
    pub freezes: Vec<(usize, Span)>,
    /// A node dies, with all that it knows.
    pub deaths: Vec<(usize, Duration)>,
}

impl Faults {
    pub(crate) fn is_out(&self, at: Instant) -> bool {
        self.outages.iter().any(|span| span.contains(at))
    }

    pub(crate) fn is_cut_off(&self, node: usize, at: Instant) -> bool {
        let cut = |(cut, span): &(usize, Span)| *cut == node && span.contains(at);
        self.partitions.iter().any(cut)
    }

    pub(crate) fn is_dead(&self, node: usize, at: Instant) -> bool {
        let dead =
            |(dead, from): &(usize, Duration)| *dead == node && *from <= Duration::from_nanos(at);
        self.deaths.iter().any(dead)
    }

    pub(crate) fn is_frozen(&self, node: usize, at: Instant) -> bool {
        self.frozen_until(node, at).is_some()
    }

    fn frozen_until(&self, node: usize, at: Instant) -> Option<Duration> {
        let frozen = |(frozen, span): &&(usize, Span)| *frozen == node && span.contains(at);
        self.freezes.iter().find(frozen).map(|(_, span)| span.to)
    }

    /// Waits until a node is not frozen.
    pub(crate) async fn thawed(&self, node: usize, time: &Timeline) {
        while let Some(until) = self.frozen_until(node, time.now()) {
            time.until(nanos(until)).await;
        }
    }
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

//! A worker that pulls its items when the rule allows it.

use std::time::Duration;

use tollgate::{AnyRule, pace::Pacer};

use super::{Pacing, scenario::Scenario};
use crate::window_count::WindowCount;

/// The work of a worker.
pub(super) struct Run {
    /// Items by the tenth of a second in which they began.
    pub(super) tenths: Vec<u64>,
    /// The most items that began in any window of the rate's period.
    pub(super) most: u64,
    /// When the last item was done, after the launch.
    pub(super) finish: Duration,
}

/// Does all items.
pub(super) fn run(of: &Pacing, scenario: &Scenario, rule: &AnyRule) -> Result<Run, String> {
    let (pacer, mut window) = (Pacer::new(rule.clone()), WindowCount::new(of.rate)?);
    let (mut time, mut items) = (Duration::ZERO, 0);
    let mut run = Run {
        tenths: Vec::new(),
        most: 0,
        finish: Duration::ZERO,
    };
    while items < of.items {
        if let Some(end) = scenario.paused_until(time) {
            time = end;
        }
        let now = scenario.launch().saturating_add(time);
        if !pacer.can_do_work(now) {
            time += of.poll;
            continue;
        }
        items += 1;
        run.most = run.most.max(window.add(now));
        let tenth = (time.as_millis() / 100) as usize;
        if run.tenths.len() <= tenth {
            run.tenths.resize(tenth + 1, 0);
        }
        run.tenths[tenth] += 1;
        time += of.work;
    }
    run.finish = time;
    Ok(run)
}

impl Run {
    /// Returns the tenths of a second without an item, from the launch to the finish and outside of
    /// pauses.
    pub(super) fn idle_tenths(&self, scenario: &Scenario) -> usize {
        let tenths = (0..).zip(&self.tenths);
        let idle = |(tenth, items): &(u64, &u64)| **items == 0 && !scenario.is_paused(*tenth);
        tenths.filter(idle).count()
    }
}

//! Decides on drawn requests in simulated time.

use std::time::Duration;

use tollgate::{AnyRule, Cost, Timestamp, Verdict, algorithm::Algorithm};

use crate::{
    report::{Axis, Column, Report, Totals, Window},
    rule,
    spans::Spans,
};

const NANOS_PER_MS: u64 = 1_000_000;

/// Decides on requests of one client, which arrive at these milliseconds, in any order.
///
/// Time 0 is the start of Unix time, so every calendar window that divides a day begins at it.
/// Requests after the end of the axis are decided and counted, but are in no column.
///
/// # Errors
///
/// Returns the message of a text that is no rule, or of a rule that counts calls in flight.
///
/// # Panics
///
/// Panics if the width of a column is 0.
pub fn simulate(text: &str, arrivals_ms: &[u32], axis: Axis) -> Result<Report, String> {
    let rule = rule::parse(text)?;
    let mut arrivals = arrivals_ms.to_vec();
    arrivals.sort_unstable();
    Ok(Run::new(&rule, axis).all(&arrivals))
}

/// A client's state, and what was counted so far.
struct Run<'a> {
    rule: &'a AnyRule,
    state: Option<<AnyRule as Algorithm>::State>,
    axis: Axis,
    columns: Vec<Column>,
    totals: Totals,
    longest_delay: Duration,
    longest_retry_after: Option<Duration>,
    /// The instants at which requests pass, in nanoseconds.
    passed: Vec<u64>,
}

impl<'a> Run<'a> {
    fn new(rule: &'a AnyRule, axis: Axis) -> Self {
        Self {
            rule,
            state: None,
            axis,
            columns: Vec::new(),
            totals: Totals::default(),
            longest_delay: Duration::ZERO,
            longest_retry_after: None,
            passed: Vec::new(),
        }
    }

    fn all(mut self, arrivals: &[u32]) -> Report {
        for at in arrivals {
            self.begin_columns((*at / self.axis.width_ms).saturating_add(1));
            self.request(*at);
        }
        self.begin_columns(self.axis.columns);
        self.count_passed();
        self.report()
    }

    /// Begins columns until there are `count`: looks at what is left then. Looking spends nothing.
    fn begin_columns(&mut self, count: u32) {
        for column in self.columns.len() as u64..count.min(self.axis.columns).into() {
            let look = self.rule.look(
                self.state.as_ref(),
                timestamp(column * u64::from(self.axis.width_ms)),
            );
            self.columns.push(Column {
                remaining: look.remaining().unwrap_or_default(),
                ..Column::default()
            });
        }
    }

    fn request(&mut self, at_ms: u32) {
        let at = timestamp(at_ms.into());
        let decision = self.rule.step(&mut self.state, at, Cost::ONE).decision();
        let one = match decision.verdict() {
            Verdict::Delay(wait) => {
                self.longest_delay = self.longest_delay.max(wait);
                self.passed.push(at.saturating_add(wait).as_nanos());
                Totals {
                    delayed: 1,
                    ..Totals::default()
                }
            }
            _ if decision.is_admitted() => {
                self.passed.push(at.as_nanos());
                Totals {
                    at_once: 1,
                    ..Totals::default()
                }
            }
            _ => {
                // Without a wait, it is as long as can be: a cooled rule may refuse for good.
                let wait = decision.retry_after().unwrap_or(Duration::MAX);
                self.longest_retry_after = self.longest_retry_after.max(Some(wait));
                Totals {
                    refused: 1,
                    ..Totals::default()
                }
            }
        };
        self.totals.add(one);
        if let Some(column) = self.columns.get_mut((at_ms / self.axis.width_ms) as usize) {
            column.arrived.add(one);
        }
    }

    fn count_passed(&mut self) {
        self.passed.sort_unstable();
        let width = self.width();
        for at in &self.passed {
            if let Some(column) = self.columns.get_mut((at / width) as usize) {
                column.passed += 1;
            }
        }
        let mut waiting = 0;
        for column in &mut self.columns {
            waiting += column.arrived.at_once + column.arrived.delayed;
            waiting -= column.passed;
            column.waiting = waiting;
        }
    }

    /// Returns the width of a column in nanoseconds.
    fn width(&self) -> u64 {
        u64::from(self.axis.width_ms) * NANOS_PER_MS
    }

    fn report(self) -> Report {
        let windows = rule::each(self.rule).iter();
        let windows = windows.filter_map(|rule| {
            let quota = rule.look(None, Timestamp::default()).quota()?;
            let spans = Spans::shorter_than(quota.period_nanos(), &self.passed);
            Some(Window {
                rule: rule.to_string(),
                quota,
                most: spans.most(),
                within: spans.ending_in(self.width(), self.axis.columns),
                edge: first_edge(rule),
            })
        });
        Report {
            windows: windows.collect(),
            rule: self.rule.to_string(),
            capacity: self
                .rule
                .look(None, Timestamp::default())
                .limit()
                .unwrap_or_default(),
            may_delay: self.rule.may_delay(),
            totals: self.totals,
            longest_delay: self.longest_delay,
            longest_retry_after: self.longest_retry_after,
            columns: self.columns,
        }
    }
}

impl Totals {
    fn add(&mut self, other: Self) {
        self.at_once += other.at_once;
        self.delayed += other.delayed;
        self.refused += other.refused;
    }
}

/// Returns the first instant at which a fixed window of the calendar begins.
fn first_edge(rule: &AnyRule) -> Option<Duration> {
    match rule {
        AnyRule::FixedWindow(window) => window.fixed_offset(),
        _ => None,
    }
}

fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * NANOS_PER_MS)
}

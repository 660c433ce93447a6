//! The answers to drawn traffic, counted.

use std::time::Duration;

use tollgate::Quota;

/// The time axis of the picture: columns of equal width, from time 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// In milliseconds, at least 1.
    pub width_ms: u32,
    /// The number of columns.
    pub columns: u32,
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The rule, as the crate prints it.
    pub rule: String,
    /// The capacity: the greatest cost that the rule can ever admit.
    pub capacity: u64,
    /// Set if the rule can hold requests back.
    pub may_delay: bool,
    /// The counts of all requests.
    pub totals: Totals,
    /// The longest wait of an admitted request.
    pub longest_delay: Duration,
    /// The longest wait that a refusal returned; `None` without one.
    pub longest_retry_after: Option<Duration>,
    /// One for each rule that is charged.
    pub windows: Vec<Window>,
    /// One for each column of the axis.
    pub columns: Vec<Column>,
}

/// Counts of requests. Their sum is the number of requests that were offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Admitted without a wait.
    pub at_once: u64,
    /// Admitted after a wait.
    pub delayed: u64,
    /// Refused.
    pub refused: u64,
}

/// The most requests that passed within any period of a rule's quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The rule, as the crate prints it.
    pub rule: String,
    /// The quota of the rule.
    pub quota: Quota,
    /// The most requests that passed within any span that is shorter than the period.
    pub most: u64,
    /// The most of them within such a span that ends in each column.
    pub within: Vec<u64>,
    /// The first instant at which a fixed window begins; `None` for other rules.
    pub edge: Option<Duration>,
}

/// The requests of one column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// The requests that arrived in the column.
    pub arrived: Totals,
    /// The requests that passed in the column. Delayed ones may have arrived earlier.
    pub passed: u64,
    /// The requests that are held back when the column ends.
    pub waiting: u64,
    /// The greatest cost that the rule would admit when the column begins.
    pub remaining: u64,
}

//! The results of a suite.

use std::fmt;

use super::Law;

/// The result of a suite that a store has passed.
///
/// # Examples
///
/// ```
/// use tollgate::{AnyRule, store::{Local, LocalBuilder}, time::ManualClock};
/// use tollgate::testing::conformance::{Law, Report, Suite};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let clock = ManualClock::default();
/// let store: Local<AnyRule, _> = LocalBuilder::new().clock(clock.clone()).build();
/// let report: Report = Suite::new(store).clock(clock).only(Law::Limit).run().await.unwrap();
/// assert_eq!(report.kept(), [Law::Limit]);
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub(super) kept: Vec<Law>,
    pub(super) left_out: Vec<Law>,
    pub(super) calls: u64,
}

impl Report {
    /// Returns the laws that were checked and kept.
    pub fn kept(&self) -> &[Law] {
        &self.kept
    }

    /// Returns the laws that were not checked, because they were left out or the settings of the
    /// suite do not suffice.
    pub fn left_out(&self) -> &[Law] {
        &self.left_out
    }

    /// Returns the number of calls of the store.
    pub fn calls(&self) -> u64 {
        self.calls
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} laws kept in {} calls", self.kept.len(), self.calls)?;
        if !self.left_out.is_empty() {
            f.write_str("; left out: ")?;
            names(&self.left_out, f)?;
        }
        Ok(())
    }
}

fn names(laws: &[Law], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (n, law) in laws.iter().enumerate() {
        f.write_str(if n == 0 { "" } else { ", " })?;
        f.write_str(law.name())?;
    }
    Ok(())
}

/// The error of a suite: the laws that a store breaks, each with a description and the calls before
/// it.
///
/// `Debug` prints the text of `Display`, so that `unwrap` in a test shows all of it.
///
/// # Examples
///
/// ```
/// use tollgate::{TokenBucket, store::Local, testing::conformance::{Law, Suite}};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// // There is no way to wait, so a law cannot be checked.
/// let suite = Suite::with_rules(Local::<TokenBucket>::new(), [TokenBucket::per_hour(5)])
///     .only(Law::Wait);
/// let broken = suite.run().await.unwrap_err();
/// assert!(broken.laws().eq([Law::Wait]));
/// # }
/// ```
#[derive(Clone)]
pub struct Broken {
    pub(super) breaches: Vec<Breach>,
    pub(super) report: Report,
}

impl Broken {
    /// Returns the laws that are broken or could not be checked.
    pub fn laws(&self) -> impl Iterator<Item = Law> + '_ {
        self.breaches.iter().map(|breach| breach.law)
    }

    /// Returns the results of the other laws.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checked = self.breaches.len() + self.report.kept.len();
        write!(f, "{} of {checked} laws do not hold", self.breaches.len())?;
        for breach in &self.breaches {
            write!(f, "\n\n{breach}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broken({self})")
    }
}

impl std::error::Error for Broken {}

/// A broken law.
#[derive(Clone)]
pub(super) struct Breach {
    pub(super) law: Law,
    /// The rule as text.
    pub(super) under: String,
    pub(super) what: String,
    /// The last calls.
    pub(super) calls: Vec<String>,
    /// The number of calls before those.
    pub(super) earlier: usize,
    /// The seed of the timeline.
    pub(super) seed: Option<u64>,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  ", self.law)?;
        if !self.under.is_empty() {
            write!(f, "under {}: ", self.under)?;
        }
        f.write_str(&self.what)?;
        if !self.calls.is_empty() {
            f.write_str("\n  after")?;
            if self.earlier > 0 {
                write!(f, " {} earlier calls and", self.earlier)?;
            }
            for call in &self.calls {
                write!(f, "\n    {call}")?;
            }
        }
        if let Some(seed) = self.seed {
            write!(
                f,
                "\n  to repeat this timeline: `.only(Law::Timeline).seed({seed}).timelines(1)`"
            )?;
        }
        Ok(())
    }
}

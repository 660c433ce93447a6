//! What came out.

use std::fmt;

use super::Law;

/// What a store was seen to keep.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub(super) kept: Vec<Law>,
    pub(super) left_out: Vec<Law>,
    pub(super) calls: u64,
}

impl Report {
    /// The laws that were checked, and kept.
    pub fn kept(&self) -> &[Law] {
        &self.kept
    }

    /// The laws that were not checked: left out, or beyond what the suite was told it can do.
    pub fn left_out(&self) -> &[Law] {
        &self.left_out
    }

    /// How many calls of the store it took.
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

/// The laws that a store breaks, each with what happened and the calls that led there.
///
/// `Debug` prints it as `Display` does, so that `unwrap` in a test shows it in full.
#[derive(Clone)]
pub struct Broken {
    pub(super) breaches: Vec<Breach>,
    pub(super) report: Report,
}

impl Broken {
    /// The laws that are broken, or could not be checked.
    pub fn laws(&self) -> impl Iterator<Item = Law> + '_ {
        self.breaches.iter().map(|breach| breach.law)
    }

    /// What was found of the other laws.
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

/// How a law was broken.
#[derive(Clone)]
pub(super) struct Breach {
    pub(super) law: Law,
    /// The rule.
    pub(super) under: String,
    pub(super) what: String,
    /// The last calls.
    pub(super) calls: Vec<String>,
    /// How many calls came before those.
    pub(super) earlier: usize,
    /// What the timeline was made from.
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
                "\n  the same timeline again: `.only(Law::Timeline).seed({seed}).timelines(1)`"
            )?;
        }
        Ok(())
    }
}

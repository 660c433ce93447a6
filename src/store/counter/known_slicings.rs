//! The windows that a reset has to reach, because a reset names no rule.

use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    algorithm::{Counted, Slicing},
    error::Error,
};

/// The most slicings that are remembered.
const MOST: usize = 64;

/// Returns how a rule divides time into slices, as keys meet it.
///
/// # Errors
///
/// Fails if counters cannot run the rule.
pub(super) fn slicing_for_keys<Rule: Counted>(rule: &Rule) -> Result<Slicing, Error> {
    // Spread windows are those of a key: any key tells them from those of another length.
    let of_a_key = rule.for_key(&|| u64::MAX / 2);
    of_a_key.as_ref().unwrap_or(rule).slicing()
}

/// A rule of each slicing under which calls came.
pub(super) struct KnownSlicings<Rule> {
    rules: RwLock<Vec<(Slicing, Rule)>>,
    is_full: AtomicBool,
}

impl<Rule: Counted> KnownSlicings<Rule> {
    pub(super) fn new() -> Self {
        Self {
            rules: RwLock::default(),
            is_full: AtomicBool::new(false),
        }
    }

    /// Remembers a rule if it divides time as no rule before it.
    ///
    /// # Errors
    ///
    /// Fails if counters cannot run the rule.
    pub(super) fn learn(&self, rule: &Rule) -> Result<(), Error> {
        let slicing = slicing_for_keys(rule)?;
        let is_it = |known: &(Slicing, Rule)| known.0 == slicing;
        // Under the lock nothing is left half done.
        let known = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(is_it) {
            return Ok(());
        }
        drop(known);
        let mut known = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() == MOST {
            self.is_full.store(true, Ordering::Relaxed);
        } else if !known.iter().any(is_it) {
            known.push((slicing, rule.clone()));
        }
        Ok(())
    }

    /// Returns the value of `of` for each rule.
    ///
    /// # Errors
    ///
    /// Fails if no rule is known, or not all of them are.
    pub(super) fn each<T>(&self, of: impl Fn(&Rule) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(Error::new(format!(
                "this store was asked for more than {MOST} different windows, and does not know all counters of a key: \
                 expected fewer; give each kind of limit a store of its own"
            )));
        }
        let known = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return Err(Error::new(
                "this store was asked for no rule yet, and does not know the counters of a key: expected one; tell it the \
                 rules by `Counters::learn`",
            ));
        }
        known.iter().map(|(_, rule)| of(rule)).collect()
    }
}

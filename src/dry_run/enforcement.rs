//! The effect of a limit's decisions.
//!
//! Keys are selected (`enforce_for`) by the high bits of their digest, not by a remainder, so the
//! selection is independent of shards by `digest() % n`. The name of the limit is left out: several
//! limits at one percentage are enforced for the same clients.

use super::DryRun;
use crate::key::Key;

/// The effect of a limit's decisions: [`Enforced`], or a [`DryRun`].
#[doc(hidden)]
pub trait Enforcement {
    /// Set if decisions may have no effect.
    // A constant, so that an enforced limit is not asked for each request.
    const MAY_BE_DRY: bool;

    /// Returns the dry run, if the limit is on one.
    fn dry_run(&self) -> Option<&DryRun>;

    /// Returns a dry run for all keys, with the settings of this one.
    fn into_dry_run(self) -> DryRun;

    /// Returns `true` if decisions about this key have no effect.
    fn is_dry(&self, key: &Key) -> bool {
        self.dry_run().is_some_and(|dry_run| dry_run.is_dry(key))
    }
}

/// A limit that refuses and delays requests: the default.
///
/// ```
/// use tollgate::{Enforced, FixedRule, Limit, TokenBucket, Cost, key::Global};
///
/// let limit: Limit<TokenBucket, FixedRule, Global, Cost, Enforced> = Limit::new(TokenBucket::per_second(10));
/// # let _ = limit;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enforced;

impl Enforcement for Enforced {
    const MAY_BE_DRY: bool = false;

    fn dry_run(&self) -> Option<&DryRun> {
        None
    }

    fn into_dry_run(self) -> DryRun {
        DryRun::default()
    }
}

//! Rules that can be divided among nodes.

use crate::{
    algorithm::{AnyRule, Blockable, TokenBucket},
    error::Error,
};

/// A rule that can be divided among nodes, as [`FallbackBuilder::share`](super::FallbackBuilder::share) requires.
///
/// Implemented for [`TokenBucket`], for pairs of such rules, for [`Blockable`] ones, and for [`AnyRule`], where it fails unless the rule is a token
/// bucket. For other rules, pass a function to [`FallbackBuilder::rule`](super::FallbackBuilder::rule).
///
/// ```
/// use tollgate::{TokenBucket, store::Scalable};
///
/// let third = Scalable::try_scaled(&TokenBucket::per_minute(90), 1, 3)?;
/// assert_eq!(third, TokenBucket::per_minute(30));
/// assert!(Scalable::try_scaled(&TokenBucket::per_minute(2), 1, 3).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
// An algorithm that gains a `try_scaled` of its own gains an implementation here, and an arm in that of `AnyRule`.
pub trait Scalable: Sized {
    /// Returns `numerator / denominator` of this rule, rounded so that all shares together admit no more than the rule.
    ///
    /// # Errors
    ///
    /// When there is no such share, for example of a burst of one token, or when the algorithm cannot be divided.
    fn try_scaled(&self, numerator: u64, denominator: u64) -> Result<Self, Error>;
}

impl Scalable for TokenBucket {
    fn try_scaled(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        Self::try_scaled(*self, numerator, denominator)
    }
}

impl<A: Scalable, B: Scalable> Scalable for (A, B) {
    fn try_scaled(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        let first = self.0.try_scaled(numerator, denominator)?;
        Ok((first, self.1.try_scaled(numerator, denominator)?))
    }
}

/// A block is as long on each node.
impl<Rule: Scalable> Scalable for Blockable<Rule> {
    fn try_scaled(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        match self {
            Self::Rule(rule) => rule.try_scaled(numerator, denominator).map(Self::Rule),
            Self::Block(block) => Ok(Self::Block(*block)),
        }
    }
}

impl Scalable for AnyRule {
    fn try_scaled(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        match self {
            Self::TokenBucket(rule) => rule.try_scaled(numerator, denominator).map(Self::from),
            other => Err(Error::new(format!(
                "`{other}` cannot be divided among nodes: expected a token bucket; return the rule of one node \
                 from `.rule(|rule| …)` instead of `.share(…)`"
            ))),
        }
    }
}

//! What one node may admit on its own.

use crate::{
    algorithm::{AnyRule, TokenBucket},
    error::Error,
};

/// A rule of which a node can be given a share: what [`FallBackBuilder::share`](super::FallBackBuilder::share) asks of it.
///
/// A [`TokenBucket`] is one, a pair of such rules, and an [`AnyRule`] where it is a token bucket. For all others
/// [`FallBackBuilder::rule`](super::FallBackBuilder::rule) takes a function.
// An algorithm that gains a `try_scaled` of its own gains an implementation here, and an arm in that of `AnyRule`.
pub trait Scalable: Sized {
    /// `numerator / denominator` of this rule, rounded in favour of the limit.
    ///
    /// # Errors
    ///
    /// When there is no such share, as of a burst of one token; or when it is not known how to take it.
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

impl Scalable for AnyRule {
    fn try_scaled(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        match self {
            Self::TokenBucket(rule) => rule.try_scaled(numerator, denominator).map(Self::from),
            other => Err(Error::new(format!(
                "no share can be taken of `{other}`: expected a token bucket; say what a node may admit on its own \
                 with `.rule(|rule| …)` in place of `.share(…)`"
            ))),
        }
    }
}

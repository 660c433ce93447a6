//! Builder of a fallback.

use std::sync::{Arc, atomic::AtomicU64};

use super::{Fallback, Scalable, stores::Stores};
use crate::{
    error::Error,
    store::{Backend, FailureMode, NeverFails, OnFailure, Store},
};

/// Builder of a [`Fallback`], returned by [`fall_back_to`](crate::store::StoreExt::fall_back_to).
///
/// [`share`](Self::share) or [`rule`](Self::rule) completes it, with the rule under which this node may decide on its own:
///
/// ```
/// use tollgate::{TokenBucket, prelude::*, store::{self, BoxStore}};
///
/// fn limited(remote: BoxStore<TokenBucket, store::Error>, nodes: u64) {
///     let store = remote.fall_back_to(Local::new()).share(1, nodes);
///     let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(store);
/// #   let _ = layer;
/// }
/// # let _: fn(_, _) = limited;
/// ```
#[derive(Clone, Debug)]
#[must_use = "`.share(1, nodes)` or `.rule(…)` makes it a store"]
pub struct FallbackBuilder<S, L> {
    remote: OnFailure<S>,
    local: L,
}

impl<S, L> FallbackBuilder<S, L> {
    pub(in crate::store) fn new(remote: S, local: L) -> Self
    where
        S: Backend,
    {
        let consequence =
            "requests that it cannot decide are decided by the local store, as `fall_back_to` asks";
        let remote = OnFailure::new(remote, FailureMode::Closed, consequence);
        Self { remote, local }
    }

    /// Sets the answer for calls that [lost every race](Fallback#contention) for a key; [`FailureMode::Closed`] by default.
    pub fn when_contended(self, contended: FailureMode) -> Self {
        let remote = self.remote.when_contended(contended);
        Self { remote, ..self }
    }

    /// Creates the store; this node may admit `numerator / denominator` of each rule on its own.
    ///
    /// With n nodes, use `share(1, n)`.
    ///
    /// # Panics
    ///
    /// When [`try_share`](Self::try_share) fails; for literals.
    #[track_caller]
    pub fn share<Rule>(self, numerator: u64, denominator: u64) -> Fallback<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule, Error: NeverFails>,
        Rule: Scalable,
    {
        self.try_share(numerator, denominator)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates the store; this node may admit `numerator / denominator` of each rule on its own.
    ///
    /// While the remote store fails, a request whose rule has [no such share](Scalable::try_scaled) is refused with 503 and
    /// [counted](Fallback::turned_away). For example, a burst of 2 has no share of 1/3.
    ///
    /// # Errors
    ///
    /// When one of the numbers is 0, or the share is above 1.
    pub fn try_share<Rule>(
        self,
        numerator: u64,
        denominator: u64,
    ) -> Result<Fallback<S, L, Rule>, Error>
    where
        S: Store<Rule>,
        L: Store<Rule, Error: NeverFails>,
        Rule: Scalable,
    {
        if numerator == 0 || numerator > denominator {
            return Err(Error::new(format!(
                "a share of {numerator}/{denominator} per node: expected a part of the whole, such as 1/3 with \
                 three nodes; use `.fail_closed()` to admit nothing"
            )));
        }
        Ok(self.rule(move |rule: &Rule| rule.try_scaled(numerator, denominator).ok()))
    }

    /// Creates the store; `share_of` returns the rule under which this node may decide on its own.
    ///
    /// While the remote store fails, a request for which it returns `None` is refused with 503 and
    /// [counted](Fallback::turned_away).
    ///
    /// ```
    /// use tollgate::{TokenBucket, prelude::*};
    /// # use tollgate::store::Fallback;
    ///
    /// # let remote = Local::<TokenBucket>::new();
    /// let store = remote.fall_back_to(Local::new()).rule(|_| Some(TokenBucket::per_second(1)));
    /// # let _: Fallback<_, _, TokenBucket> = store;
    /// ```
    pub fn rule<Rule>(
        self,
        share_of: impl Fn(&Rule) -> Option<Rule> + Send + Sync + 'static,
    ) -> Fallback<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule, Error: NeverFails>,
    {
        Fallback {
            stores: Arc::new(Stores {
                remote: self.remote,
                local: self.local,
                share_of: Box::new(share_of),
                decided: AtomicU64::default(),
                turned_away: AtomicU64::default(),
            }),
        }
    }
}

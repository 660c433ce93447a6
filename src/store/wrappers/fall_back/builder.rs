//! How a store with a fallback is set up.

use std::sync::{Arc, atomic::AtomicU64};

use super::{FallBackTo, Scalable, Shared};
use crate::{
    error::Error,
    store::{Backend, NeverFails, OnFailure, Store, Undecided},
};

/// Sets up a [`FallBackTo`]; it ends with what this node may admit on its own, by [`share`](Self::share) or
/// [`rule`](Self::rule).
#[derive(Clone, Debug)]
#[must_use = "it becomes a store when it is told what this node may admit on its own, by `.share(1, nodes)`"]
pub struct FallBackBuilder<S, L> {
    remote: OnFailure<S>,
    local: L,
}

impl<S, L> FallBackBuilder<S, L> {
    pub(in crate::store) fn new(remote: S, local: L) -> Self
    where
        S: Backend,
    {
        let consequence = "a local store decides, by the share of its `fall_back_to`";
        let remote = OnFailure::new(remote, Undecided::Closed, consequence);
        Self { remote, local }
    }

    /// The same with another answer than [`Undecided::Closed`] to calls whose
    /// [every attempt lost its race](FallBackTo#contention).
    pub fn when_contended(self, contended: Undecided) -> Self {
        let remote = self.remote.when_contended(contended);
        Self { remote, ..self }
    }

    /// The store: this node may admit `numerator / denominator` of each rule on its own.
    ///
    /// Of n nodes, each may admit 1/n.
    ///
    /// # Panics
    ///
    /// Where [`try_share`](Self::try_share) fails; meant for literals.
    #[track_caller]
    pub fn share<Rule>(self, numerator: u64, denominator: u64) -> FallBackTo<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule, Error: NeverFails>,
        Rule: Scalable,
    {
        self.try_share(numerator, denominator)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The store: this node may admit `numerator / denominator` of each rule on its own.
    ///
    /// A request whose rule has [no such share](Scalable::try_scaled), as a burst of 2 has no third, is turned away as
    /// undecided while the remote store fails, and [counted](FallBackTo::turned_away).
    ///
    /// # Errors
    ///
    /// When one of the numbers is 0, or the share is above 1.
    pub fn try_share<Rule>(
        self,
        numerator: u64,
        denominator: u64,
    ) -> Result<FallBackTo<S, L, Rule>, Error>
    where
        S: Store<Rule>,
        L: Store<Rule, Error: NeverFails>,
        Rule: Scalable,
    {
        if numerator == 0 || numerator > denominator {
            return Err(Error::new(format!(
                "a node's share of {numerator}/{denominator}: expected a part of the whole, as 1/3 for each of \
                 three nodes; where nothing may pass, use `.fail_closed()`"
            )));
        }
        Ok(self.rule(move |rule: &Rule| rule.try_scaled(numerator, denominator).ok()))
    }

    /// The store: under a rule, this node may admit on its own what `share_of` says.
    ///
    /// `None` is nothing: such a request is turned away as undecided while the remote store fails, and
    /// [counted](FallBackTo::turned_away).
    ///
    /// ```
    /// use tollgate::{TokenBucket, prelude::*};
    /// # use tollgate::store::FallBackTo;
    ///
    /// # let remote = Local::<TokenBucket>::new();
    /// let store = remote.fall_back_to(Local::new()).rule(|_| Some(TokenBucket::per_second(1)));
    /// # let _: FallBackTo<_, _, TokenBucket> = store;
    /// ```
    pub fn rule<Rule>(
        self,
        share_of: impl Fn(&Rule) -> Option<Rule> + Send + Sync + 'static,
    ) -> FallBackTo<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule, Error: NeverFails>,
    {
        FallBackTo {
            shared: Arc::new(Shared {
                remote: self.remote,
                local: self.local,
                share_of: Box::new(share_of),
                decided: AtomicU64::default(),
                turned_away: AtomicU64::default(),
            }),
        }
    }
}

//! How a store with a fallback is set up.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64},
};

use super::{
    FallBackTo, Scalable,
    debts::Debts,
    shared::{ShareOf, Shared},
};
use crate::{
    error::Error,
    store::{NeverFails, Store, Undecided, failures::Failures},
};

/// Sets up a [`FallBackTo`]; it ends with what this node may admit on its own, by [`share`](Self::share) or
/// [`rule`](Self::rule).
#[derive(Clone, Debug)]
#[must_use = "it becomes a store when it is told what this node may admit on its own, by `.share(1, nodes)`"]
pub struct FallBackBuilder<S, L> {
    store: S,
    local: L,
    capacity: usize,
    per_call: usize,
    contended: Undecided,
}

impl<S, L> FallBackBuilder<S, L> {
    pub(in crate::store) fn new(store: S, local: L) -> Self {
        Self {
            store,
            local,
            capacity: 65_536,
            per_call: 16,
            contended: Undecided::Closed,
        }
    }

    /// The same, remembering what so many keys owe, 65,536 by default; what others owe is lost, and
    /// [counted](FallBackTo::lost).
    ///
    /// Each takes about 350 bytes under a token bucket, as long as it owes.
    pub fn capacity(self, keys: usize) -> Self {
        Self {
            capacity: keys,
            ..self
        }
    }

    /// The same, settling the debts of so many keys with a call, 16 by default; those of the call's own keys in any case.
    pub fn per_call(self, keys: usize) -> Self {
        Self {
            per_call: keys,
            ..self
        }
    }

    /// The same with another answer than [`Undecided::Closed`] to calls whose
    /// [every attempt lost its race](FallBackTo#contention).
    pub fn when_contended(self, contended: Undecided) -> Self {
        Self { contended, ..self }
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
        let share_of: ShareOf<Rule> = Box::new(share_of);
        let failures = Failures::new(
            self.store.address(),
            "a local store decides, by the share of its `fall_back_to`",
        );
        FallBackTo {
            shared: Arc::new(Shared {
                remote: self.store,
                local: self.local,
                share_of,
                debts: Arc::new(Debts::new(self.capacity)),
                per_call: self.per_call,
                contended: self.contended,
                answering: AtomicBool::new(false),
                failures,
                decided: AtomicU64::default(),
                turned_away: AtomicU64::default(),
            }),
        }
    }
}

//! The calls that block one key.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use super::{attempt::Attempt, counters::Counters};
use crate::{
    algorithm::Blocking,
    decision::{Cost, Decision, Decisions},
    key::Key,
    policy::Policy,
    store::{Ask, Progress, Settlement, Steps, StepsFuture, Store},
};

/// The number of times that a block is tried if other writers are faster.
const ATTEMPTS: u32 = 8;

/// The future of a block.
pub(crate) type BlockFuture<Rule, S> = StepsFuture<Blockage<Rule, S>>;

/// Blocks one key: a look, which finds how long it is blocked already, and one charge.
pub struct Blockage<Rule, S> {
    store: Arc<S>,
    /// The policy of blocks.
    policy: Policy,
    key: Key,
    millis: u64,
    /// `true` if a shorter block is replaced.
    extends: bool,
    /// The rule of the charge that is being made.
    charged_by: Option<Rule>,
    tries: u32,
    attempt: Attempt,
    rule: PhantomData<fn() -> Rule>,
}

impl<Rule: Blocking, S: Store<Rule>> Blockage<Rule, S> {
    /// Blocks a key; with `extends`, also one that is blocked for less.
    pub(super) fn new(
        store: Arc<S>,
        (policy, key): (Policy, Key),
        millis: u64,
        extends: bool,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            store,
            policy,
            key,
            millis,
            extends,
            charged_by: None,
            tries: 0,
            attempt: Attempt::new(counters),
            rule: PhantomData,
        }
    }

    /// Looks for how long the key is blocked.
    pub(super) fn look(&mut self) -> Progress<Self> {
        if self.tries == ATTEMPTS {
            return Progress::Finished(Ok(None));
        }
        self.tries += 1;
        self.charged_by = None;
        let rule = Rule::looking_at_blocks();
        // What is charged depends on it, so it is not one that a wrapper remembers.
        let ask = Ask::new(&self.policy, &rule, self.key, Cost::ONE).that_decides();
        Progress::Answer(self.store.look(&[ask]))
    }

    fn wanted(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    /// Charges the time that is missing.
    fn looked(&mut self, look: &Decision) -> Progress<Self> {
        let left = Rule::left_of_block(look);
        if left >= self.wanted() || (!self.extends && !left.is_zero()) {
            self.attempt.skip();
            return Progress::Finished(Ok(Some(left)));
        }
        let (rule, cost) = Rule::blocking(look, self.millis);
        let charge = self
            .store
            .acquire(&[Ask::new(&self.policy, &rule, self.key, cost)]);
        self.charged_by = Some(rule);
        Progress::Answer(charge)
    }

    /// Gives back what another writer has charged since the look.
    fn charged(&mut self, mut decision: Decision, rule: &Rule) -> Progress<Self> {
        if !decision.is_admitted() {
            return self.look();
        }
        self.attempt.succeed();
        let blocked = Progress::Finished(Ok(Some(self.wanted())));
        let excess = Rule::excess_of_block(&decision, self.millis);
        let Some(charge) = decision.take_charge().filter(|_| excess > 0) else {
            return blocked;
        };
        let actual = charge.cost.saturating_sub(excess);
        match Settlement::new(&self.policy, rule, self.key, charge, actual) {
            Ok(settlement) => Progress::Done(self.store.settle(vec![settlement])),
            // The policy has just made the charge.
            Err(_) => blocked,
        }
    }
}

impl<Rule, S> fmt::Debug for Blockage<Rule, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blockage").finish_non_exhaustive()
    }
}

impl<Rule: Blocking, S: Store<Rule>> Steps for Blockage<Rule, S> {
    type Answer = S::Answer;
    type Done = S::Done;
    /// The time for which the key is blocked at least; `None` if it is not.
    type Output = Result<Option<Duration>, S::Error>;

    fn answered(&mut self, answer: Result<Decisions, S::Error>) -> Progress<Self> {
        let decision = match answer {
            Ok(decisions) => decisions.as_slice().first().copied(),
            Err(error) => return Progress::Finished(Err(error)),
        };
        // An undecided call is one of a store that failed, or had no room.
        let Some(decision) = decision.filter(|decision| !decision.is_undecided()) else {
            return Progress::Finished(Ok(None));
        };
        match self.charged_by.take() {
            Some(rule) => self.charged(decision, &rule),
            None => self.looked(&decision),
        }
    }

    /// The excess of a correction that fails stays; the store counts it.
    fn done(&mut self, _: Result<(), S::Error>) -> Progress<Self> {
        Progress::Finished(Ok(Some(self.wanted())))
    }
}

//! What all clones of a store with a fallback share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use smallvec::SmallVec;

use super::{
    batch::{Batch, Item},
    book::Charged,
    debts::Debts,
};
use crate::{
    clock::Timestamp,
    decision::{Charge, Cost},
    key::Key,
    outcome::Policy,
    store::{
        Ask, Check, Decisions, Error, NeverFails, Settlement, Store, Undecided, failures::Failures,
    },
};

/// What a node may admit by itself under a rule, if anything.
pub(super) type ShareOf<Rule> = Box<dyn Fn(&Rule) -> Option<Rule> + Send + Sync>;

pub(super) struct Shared<S, L, Rule> {
    pub(super) remote: S,
    pub(super) local: L,
    pub(super) share_of: ShareOf<Rule>,
    pub(super) debts: Arc<Debts<Rule>>,
    /// How many debts are settled at once.
    pub(super) per_call: usize,
    /// What a call is told whose every attempt lost its race.
    pub(super) contended: Undecided,
    /// Whether the remote store answered when it was last heard of.
    pub(super) answering: AtomicBool,
    pub(super) failures: Failures,
    pub(super) decided: AtomicU64,
    pub(super) turned_away: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    // A count that is read for a report orders nothing.
    counter.fetch_add(1, Ordering::Relaxed);
}

/// An ask that outlives its call.
pub(super) struct Owned<Rule> {
    pub(super) policy: Policy,
    pub(super) rule: Rule,
    pub(super) key: Key,
    pub(super) cost: Cost,
}

impl<Rule> Owned<Rule> {
    pub(super) fn ask(&self) -> Ask<'_, Rule> {
        Ask::new(&self.policy, &self.rule, self.key, self.cost)
    }
}

/// A settlement that outlives its call.
pub(super) struct Correction<Rule> {
    pub(super) policy: Policy,
    rule: Rule,
    key: Key,
    charge: Charge,
    actual: u64,
}

impl<Rule: Clone> Correction<Rule> {
    pub(super) fn of(settlement: &Settlement<'_, Rule>) -> Self {
        Self {
            policy: settlement.policy.clone(),
            rule: settlement.rule.clone(),
            key: settlement.key,
            charge: settlement.charge.duplicate(),
            actual: settlement.actual,
        }
    }
}

impl<S, L, Rule> Shared<S, L, Rule> {
    // Whether the store answers is a guess, which orders nothing.
    pub(super) fn answered(&self) {
        self.answering.store(true, Ordering::Relaxed);
    }

    /// Notes why a call was not answered; tells whether it was contention, which is no failure: the store is there.
    pub(super) fn failed<'a>(
        &self,
        error: impl Into<Error>,
        policies: impl IntoIterator<Item = &'a Policy>,
    ) -> bool {
        let is_contention = self.failures.note(&error.into(), policies);
        if !is_contention {
            self.answering.store(false, Ordering::Relaxed);
        }
        is_contention
    }
}

impl<S, L, Rule> Shared<S, L, Rule>
where
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    /// Cuts debts to what the local store still remembers of them: the rest has been refilled.
    pub(super) fn cut(&self, batch: &mut Batch<Rule>) {
        batch.cut(|item| self.remembered(item));
    }

    /// The units that the local store remembers of a key.
    fn remembered(&self, item: &Item<Rule>) -> u64 {
        let rule = (self.share_of)(&item.rule);
        let look = rule.map(|rule| {
            let ask = Ask::new(&item.policy, &rule, item.key, Cost::ONE);
            self.local.look(&[ask])
        });
        // All of them, where that cannot be told at once.
        let Some(Check::Ready(answer)) = look else {
            return u64::MAX;
        };
        match answer.unwrap_or_else(NeverFails::never).as_slice() {
            [decision] => match (decision.limit(), decision.remaining()) {
                (Some(limit), Some(remaining)) => limit.saturating_sub(remaining),
                _ => u64::MAX,
            },
            _ => u64::MAX,
        }
    }

    /// Notes what the local store charged.
    pub(super) fn note(&self, asks: &[Owned<Rule>], decisions: &Decisions, is_due: bool) {
        count(&self.decided);
        for (ask, decision) in asks.iter().zip(decisions.as_slice()) {
            let Some(charge) = decision.charge() else {
                continue;
            };
            self.debts.charge(&Charged {
                policy: &ask.policy,
                key: &ask.key,
                rule: &ask.rule,
                at: charge.at,
                until: charge.at.saturating_add(decision.reset_after()),
                units: charge.cost,
                is_due,
            });
        }
    }

    /// Corrects here what the remote store could not be told.
    pub(super) fn correct(&self, corrections: &[Correction<Rule>]) -> Check<L::Done> {
        for correction in corrections {
            let Correction {
                policy, rule, key, ..
            } = correction;
            let (cost, actual) = (correction.charge.cost, correction.actual);
            if actual <= cost {
                self.debts.refund(policy, key, cost - actual);
                continue;
            }
            self.debts.charge(&Charged {
                policy,
                key,
                rule,
                at: correction.charge.at,
                // Unknown: it is kept until it is settled.
                until: Timestamp::MAX,
                units: actual - cost,
                is_due: true,
            });
        }
        let rules: SmallVec<[Option<Rule>; 1]> = corrections
            .iter()
            .map(|correction| (self.share_of)(&correction.rule))
            .collect();
        let settlements: Vec<Settlement<'_, Rule>> = corrections
            .iter()
            .zip(&rules)
            .filter_map(|(correction, rule)| {
                Some(Settlement {
                    policy: &correction.policy,
                    rule: rule.as_ref()?,
                    key: correction.key,
                    charge: correction.charge.duplicate(),
                    actual: correction.actual,
                })
            })
            .collect();
        self.local.settle(settlements)
    }
}

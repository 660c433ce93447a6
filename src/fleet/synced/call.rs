//! A call, decided here, by the store, or here after its units were pushed.
//!
//! A new key asks for its state. But one call to the store is under way at a time, and a new key
//! that comes meanwhile would wait for two answers. So the store decides its first call, beside the
//! one under way, and the key asks for its state afterwards. On a Redis on the loopback, that takes
//! a third of the processor time where most keys are called once: their units need not be pushed.
//! Two calls for states at once would cost as much as before, and each push has to wait for the one
//! before it anyway. A call with several asks waits: the store could decide it only after the units
//! of all its keys were pushed.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    keys::{KeyEntry, Shard, ShardSchedule, WaitingCall},
    push::{SyncedParts, is_unreachable},
};
use crate::{
    algorithm::Syncable,
    decision::{Decision, Decisions, Position},
    fleet::{
        keys::Shards,
        shared::{FleetClock, LateStore},
        sync::{Bound, KeyView, ViewOutcome},
        tasks::sweep,
    },
    store::{Ask, OwnedAsks, Settlement, StoreError, ask::policies},
    time::Timestamp,
};

/// The most times that a call waits until its units were pushed, before the store decides it.
const PATIENCE: usize = 4;
/// The most times that it waits for that.
const MOST_WAITS: usize = 64;

/// The outcome of a call, or of one of its asks.
pub(super) enum Outcome<Made, Begun> {
    Decided(Made),
    /// The key has to be pushed or pulled first.
    Wait(WaitingCall),
    Store(Begun),
}

/// The outcome of a call. It fails if the store cannot be reached and the node may not decide, or
/// if the rule is not one by which a node may decide alone.
type CallOutcome<S, Rule, C> = Result<Outcome<Decisions, InStore<S, Rule, C>>, StoreError>;

/// The outcome of an ask: the decision, and `true` if it was made offline; or `true` if the store
/// decides and the call has begun, `false` if this node never admits calls under such a rule.
type AskOutcome = Result<Outcome<(Decision, bool), bool>, StoreError>;

/// A call that the store decides. Nothing is admitted here for its keys until it is dropped.
pub(super) struct InStore<S, Rule: Syncable, C> {
    inner: Arc<SyncedParts<S, Rule, C>>,
    fingerprints: SmallVec<[u64; 1]>,
}

impl<S, Rule: Syncable, C> Drop for InStore<S, Rule, C> {
    fn drop(&mut self) {
        for fingerprint in &self.fingerprints {
            let mut shard = self.inner.keys.table.shard(*fingerprint);
            if let Some(known) = shard.views.end_in_store(*fingerprint) {
                known.behind.waiting.wake(&Ok(()));
            }
        }
    }
}

/// An ask with the rule as its key meets it.
struct KeyedAsk<'a, Rule> {
    ask: Ask<'a, Rule>,
    own: Option<Rule>,
    fingerprint: u64,
}

impl<Rule> KeyedAsk<'_, Rule> {
    fn rule(&self) -> &Rule {
        self.own.as_ref().unwrap_or(self.ask.rule())
    }
}

/// The error of a call that cannot reach the store while this node may not decide.
fn no_part(is_closed: bool) -> StoreError {
    StoreError::unavailable(match is_closed {
        true => {
            "the store cannot be reached, and this node was flushed: expected no more calls after `Synced::flush`; stop taking requests before it"
        }
        false => {
            "the store cannot be reached, and this node has no part of the limit: expected a known number of nodes that is not above the limit; set \
             `SyncConfig::nodes`, or raise the limit"
        }
    })
}

impl<S: LateStore<Rule>, Rule: Syncable, C: FleetClock> SyncedParts<S, Rule, C> {
    fn asked<'a>(&self, ask: &Ask<'a, Rule>) -> KeyedAsk<'a, Rule> {
        let own = ask.rule_for_key();
        let rule = own.as_ref().unwrap_or(ask.rule());
        let fingerprint = self.keys.fingerprint(ask.policy(), ask.key(), rule);
        KeyedAsk {
            ask: *ask,
            own,
            fingerprint,
        }
    }

    /// Decides a call as far as that is possible without the store.
    #[inline]
    pub(super) fn acquire(
        self: &Arc<Self>,
        asks: &[Ask<'_, Rule>],
        must_ask: bool,
    ) -> CallOutcome<S, Rule, C> {
        let now = self.now();
        let [ask] = asks else {
            return self.acquire_all(asks, (now, must_ask));
        };
        let asked = self.asked(ask);
        let mut shard = self.keys.table.shard(asked.fingerprint);
        Ok(
            match self.part(&mut shard, &asked, (now, must_ask), true)? {
                Outcome::Decided((decision, is_offline)) => {
                    shard.count(&decision, is_offline);
                    drop(shard);
                    Outcome::Decided(ask.charged(decision).into())
                }
                Outcome::Wait(waiting) => Outcome::Wait(waiting),
                Outcome::Store(has_begun) => {
                    Outcome::Store(self.in_store(has_begun.then_some(asked.fingerprint)))
                }
            },
        )
    }

    /// Calls that have begun in the store.
    fn in_store(self: &Arc<Self>, begun: impl IntoIterator<Item = u64>) -> InStore<S, Rule, C> {
        InStore {
            inner: Arc::clone(self),
            fingerprints: begun.into_iter().collect(),
        }
    }

    /// Decides one ask as far as that is possible without the store.
    #[inline]
    fn part(
        self: &Arc<Self>,
        shard: &mut Shard<Rule>,
        asked: &KeyedAsk<'_, Rule>,
        (now, must_ask): (Timestamp, bool),
        is_only: bool,
    ) -> AskOutcome {
        let KeyedAsk {
            ask, fingerprint, ..
        } = asked;
        let rule = asked.rule();
        let mut bound = self.bound(shard, rule);
        if !shard.is_syncable() {
            return match rule.check_sync() {
                Err(error) if !self.config.is_exact() => Err(StoreError::unsupported(error)),
                _ => Ok(Outcome::Store(false)),
            };
        }
        if self.is_off() {
            (bound.most, bound.is_closed) = (0, self.is_closed());
        }
        let entry = || KeyEntry::new((ask, rule), now, self.schedule(ask.policy(), ask.key()));
        let found = shard.views.find(*fingerprint, &bound, now, entry);
        let Some((known, is_new)) = found else {
            return Ok(Outcome::Store(true));
        };
        if is_new {
            self.added(known, asked, now, &bound);
            // While another call to the store is under way, the key does not ask for its state.
            if is_only && known.schedule.is_syncing() && !known.view.knows() {
                known.view.begin_in_store();
                return Ok(Outcome::Store(true));
            }
        }
        let call = (ask.cost(), must_ask);
        // Not by `with`: it would copy the decision.
        let tried = known.view.acquire(rule, now, call, &bound);
        known.reschedule(*fingerprint);
        Ok(match tried {
            ViewOutcome::Decided(decision) => {
                // Without a runtime the units stay here until a call has one: the node is never
                // further ahead than it may be.
                let _ = self.serve(&known.schedule);
                Outcome::Decided((decision, known.view.is_offline()))
            }
            ViewOutcome::Sync => Outcome::Wait(known.wait()),
            ViewOutcome::Store => Outcome::Store(true),
            ViewOutcome::Unreachable => return Err(no_part(self.is_closed())),
        })
    }

    /// Begins with a key that was added.
    #[cold]
    fn added(
        &self,
        known: &mut KeyEntry<Rule>,
        asked: &KeyedAsk<'_, Rule>,
        now: Timestamp,
        bound: &Bound,
    ) {
        self.keys.note_kind(asked.rule().state_kind());
        self.keys.table.sweeping.want();
        if known.schedule.is_down() {
            known.with(asked.fingerprint, |view| view.failed(now, true, bound));
        }
    }

    /// Decides several asks: all of them spend, or none.
    fn acquire_all(
        self: &Arc<Self>,
        asks: &[Ask<'_, Rule>],
        (now, must_ask): (Timestamp, bool),
    ) -> CallOutcome<S, Rule, C> {
        let all: SmallVec<[_; 2]> = asks.iter().map(|ask| self.asked(ask)).collect();
        let fingerprints = all.iter().map(|asked| asked.fingerprint);
        let mut shards = self.keys.table.shards(fingerprints);
        let mut all_decided: SmallVec<[(Decision, bool); 2]> = SmallVec::new();
        let mut former: SmallVec<[Option<KeyView<Rule>>; 2]> = SmallVec::new();
        let mut otherwise = None;
        for asked in &all {
            let shard = shards.of(asked.fingerprint);
            let before = shard.views.get(asked.fingerprint);
            former.push(before.map(|known| known.view.clone()));
            match self.part(shard, asked, (now, must_ask), false) {
                Ok(Outcome::Decided(decided)) => all_decided.push(decided),
                part => {
                    otherwise = Some(part);
                    break;
                }
            }
        }
        let mut decisions = all_decided.iter().map(|(decision, _)| decision);
        let is_admitted = decisions.all(Decision::is_admitted);
        if otherwise.is_some() || !is_admitted {
            if let Some(Ok(Outcome::Store(true))) = otherwise
                && let Some(asked) = all.get(former.len() - 1)
            {
                // It begins again with the others.
                let _ = shards
                    .of(asked.fingerprint)
                    .views
                    .end_in_store(asked.fingerprint);
            }
            // The last one first, because two asks may be about one key.
            for (asked, former) in all.iter().zip(former).rev() {
                let shard = shards.of(asked.fingerprint);
                match (shard.views.get(asked.fingerprint), former) {
                    (Some(known), Some(former)) => known.view.undo(former, now),
                    (Some(known), None) if known.behind.waiting.is_empty() => {
                        shard.remove(asked.fingerprint);
                    }
                    _ => {}
                }
            }
        }
        match otherwise {
            Some(Ok(Outcome::Wait(waiting))) => return Ok(Outcome::Wait(waiting)),
            Some(Ok(Outcome::Store(_))) => {
                return Ok(self.begin_in_store(&all, &mut shards, (now, must_ask)));
            }
            Some(Err(error)) => return Err(error),
            Some(Ok(Outcome::Decided(_))) | None => {}
        }
        for (asked, (decision, is_offline)) in all.iter().zip(&mut all_decided) {
            let shard = shards.of(asked.fingerprint);
            if !is_admitted
                && decision.is_admitted()
                && let Some(known) = shard.views.get(asked.fingerprint)
                && let Some(look) = known.view.look(asked.rule(), now)
            {
                *decision = look;
            }
            shard.count(decision, *is_offline);
        }
        drop(shards);
        let decisions: Decisions = all_decided.iter().map(|(decision, _)| *decision).collect();
        Ok(Outcome::Decided(decisions.of_policies(policies(asks))))
    }

    /// Begins a call of several asks that the store decides.
    fn begin_in_store(
        self: &Arc<Self>,
        all: &[KeyedAsk<'_, Rule>],
        shards: &mut Shards<'_, Shard<Rule>>,
        (now, must_ask): (Timestamp, bool),
    ) -> Outcome<Decisions, InStore<S, Rule, C>> {
        let lacks = |asked: &&KeyedAsk<'_, Rule>| {
            let known = shards.of(asked.fingerprint).views.get(asked.fingerprint);
            known.is_some_and(|known| !known.view.may_begin_in_store())
        };
        if let Some(lacking) = all.iter().find(lacks) {
            if must_ask {
                // All of them: none may go on meanwhile and lack room when the others have it.
                let until = now.saturating_add(self.config.period);
                for KeyedAsk { fingerprint, .. } in all {
                    if let Some(known) = shards.of(*fingerprint).views.get(*fingerprint) {
                        known.view.make_way(until);
                    }
                }
            }
            let views = &mut shards.of(lacking.fingerprint).views;
            if let Some(known) = views.get(lacking.fingerprint) {
                known.with(lacking.fingerprint, |view| view.make_due(now));
                return Outcome::Wait(known.wait());
            }
        }
        for KeyedAsk { fingerprint, .. } in all {
            let shard = shards.of(*fingerprint);
            match shard.views.get(*fingerprint) {
                Some(known) => known.with(*fingerprint, KeyView::begin_in_store),
                None => shard.views.begin_in_store(*fingerprint),
            }
        }
        let begun = all.iter().map(|asked| asked.fingerprint);
        Outcome::Store(self.in_store(begun))
    }

    /// Returns how a key stands, if this node knows that.
    pub(super) fn look(&self, ask: &Ask<'_, Rule>) -> Option<Decision> {
        let asked = self.asked(ask);
        let mut shard = self.keys.table.shard(asked.fingerprint);
        let _ = self.bound(&mut shard, asked.rule());
        let is_syncable = shard.is_syncable();
        let known = shard.views.get(asked.fingerprint).filter(|_| is_syncable)?;
        known.view.look(asked.rule(), self.now())
    }

    /// Corrects a charge. Returns the settlement of what the store has to correct.
    pub(super) fn settle<'a>(
        &self,
        settlement: Settlement<'a, Rule>,
    ) -> Option<Settlement<'a, Rule>> {
        let own = settlement.rule_for_key();
        let rule = own.as_ref().unwrap_or(settlement.rule);
        let Settlement { policy, key, .. } = settlement;
        let fingerprint = self.keys.fingerprint(policy, &key, rule);
        let now = self.now();
        let mut shard = self.keys.table.shard(fingerprint);
        let bound = self.bound(&mut shard, rule);
        let (cost, actual) = (settlement.charge.cost, settlement.actual);
        // After a flush nobody may push what is added here.
        let is_here = shard.is_syncable() && (actual <= cost || !self.is_closed());
        let known = shard.views.get(fingerprint);
        if let Some(known) = known.filter(|known| is_here && known.view.knows()) {
            let charge = &settlement.charge;
            let less = known.with(fingerprint, |view| {
                view.settle(rule, charge, actual, now, &bound)
            });
            if less == 0 {
                return None;
            }
            let actual = cost.saturating_sub(less);
            return Some(Settlement {
                actual,
                ..without_position(settlement)
            });
        }
        if bound.most == 0 || !shard.is_syncable() {
            // The store made the charge.
            return Some(settlement);
        }
        Some(without_position(settlement))
    }

    /// Decides a call that waits for the store.
    pub(super) async fn decide(
        self: Arc<Self>,
        asks: OwnedAsks<Rule>,
        mut outcome: CallOutcome<S, Rule, C>,
    ) -> Result<Decisions, StoreError> {
        let mut failure: Option<(Arc<ShardSchedule>, StoreError)> = None;
        // A new key waits first, so most calls need not look whether there is one.
        sweep(&self);
        for waits in 1..=MOST_WAITS {
            match outcome {
                Ok(Outcome::Decided(decisions)) => return Ok(decisions),
                Ok(Outcome::Store(in_store)) => return self.ask_store(asks, in_store).await,
                Err(error) => {
                    let failure = failure.filter(|_| !error.is_unsupported());
                    return Err(failure.map_or(error, |(_, error)| error));
                }
                Ok(Outcome::Wait((answer, schedule))) => {
                    // A key of the call needs the store, and its part of it cannot be reached.
                    let is_down = |(failed, _): &mut (_, _)| {
                        Arc::ptr_eq(failed, &schedule) && schedule.is_down()
                    };
                    if let Some((_, error)) = failure.take_if(is_down) {
                        return self.decide_alone(&asks.to_list(), error);
                    }
                    self.serve(&schedule)?;
                    self.keys.counters.waited.add(1);
                    match answer.await {
                        Ok(Err(error)) if !is_unreachable(&error) || self.is_closed() => {
                            return Err(error);
                        }
                        Ok(Err(error)) => failure = Some((schedule, error)),
                        // A sender that is gone has forgotten the key.
                        Ok(Ok(())) | Err(_) => {}
                    }
                }
            }
            outcome = self.acquire(&asks.to_list(), waits >= PATIENCE);
        }
        Err(failure.map_or_else(StoreError::contended, |(_, error)| error))
    }

    /// Has the store decide a call. If it cannot be reached, this node decides alone.
    pub(super) async fn ask_store(
        self: Arc<Self>,
        asks: OwnedAsks<Rule>,
        in_store: InStore<S, Rule, C>,
    ) -> Result<Decisions, StoreError> {
        let answer = {
            let asks = asks.to_list();
            for ask in &asks {
                self.nodes.count(ask.policy(), &self.store);
            }
            self.keys.counters.in_store.add(1);
            self.store.acquire(&asks)
        };
        let answer = answer.await;
        let fingerprints = in_store.fingerprints.clone();
        drop(in_store);
        self.ask_for_states(&fingerprints);
        if let Ok(decisions) = &answer {
            let decisions = decisions.as_slice().iter();
            decisions.for_each(|answer| self.nodes.note_answer(answer));
        }
        match answer {
            Err(error) if is_unreachable(&error) && !self.is_off() => {
                self.decide_alone(&asks.to_list(), error)
            }
            answer => answer,
        }
    }

    /// Has the states of new keys read, so that their next calls need not wait. While the store is
    /// busy, only those are read that are called again.
    fn ask_for_states(&self, fingerprints: &[u64]) {
        let now = self.now();
        for fingerprint in fingerprints {
            let mut shard = self.keys.table.shard(*fingerprint);
            if let Some(known) = shard.views.get(*fingerprint)
                && known.view.is_new()
                && !known.schedule.is_syncing()
            {
                known.with(*fingerprint, |view| view.make_due(now));
            }
        }
    }

    /// Decides a call that did not reach the store.
    pub(super) fn decide_alone(
        self: &Arc<Self>,
        asks: &[Ask<'_, Rule>],
        error: StoreError,
    ) -> Result<Decisions, StoreError> {
        let now = self.now();
        for ask in asks {
            let asked = self.asked(ask);
            let mut shard = self.keys.table.shard(asked.fingerprint);
            let bound = self.bound(&mut shard, asked.rule());
            if !shard.is_syncable() {
                continue;
            }
            let rule = asked.rule();
            let entry = || KeyEntry::new((ask, rule), now, self.schedule(ask.policy(), ask.key()));
            let known = shard.views.get_or_add(asked.fingerprint, now, entry);
            let Some((known, _)) = known else { continue };
            self.keys.note_kind(rule.state_kind());
            self.keys.table.sweeping.want();
            known.with(asked.fingerprint, |view| view.failed(now, true, &bound));
        }
        let outcome = self.acquire(asks, false);
        sweep(self);
        match outcome {
            Ok(Outcome::Decided(decisions)) => Ok(decisions),
            Err(unsupported) if unsupported.is_unsupported() => Err(unsupported),
            _ => Err(error),
        }
    }
}

/// Takes the position from a charge, because it is one on the time axis of a view, and not of the
/// store.
fn without_position<Rule>(mut settlement: Settlement<'_, Rule>) -> Settlement<'_, Rule> {
    let position = &mut settlement.charge.position;
    // A lease inside knows its own.
    *position =
        position.filter(|position| *position == Position::SEVERAL || position.is_of_lease());
    settlement
}

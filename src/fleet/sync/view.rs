//! A node's view of a key, and the units that it has not pushed to the store.
//!
//! The first call of a key waits for its state. Without that, a node that is started again would
//! admit U once more. Many new keys are asked for by one call. So the price of a key that is called
//! seldom is a wait, as without the wrapper.
//!
//! Kinds of rules of one key are pushed as different nodes. The store keeps the last sequence
//! number of each node and key. Two kinds have deltas of their own under way; if a late one of the
//! first came after a new one of the second, it would be dropped as known.
//!
//! A key whose units the store cannot take in is left to the store, for ten periods. Its unsynced
//! units are dropped and counted, because they would fail as often as they are sent. To decide on
//! alone, as in an outage, would mean that no node hears of the units of the others.
//!
//! A view has a generation, so that an answer to what was sent before a reset does not become
//! that of the view after it, and its units count as dropped only. The order of a reset and
//! of deltas that are under way is not known.
//!
//! A refusal makes a push due at once, but not twice in half a period: a key at its limit is
//! admitted and refused by turns, and each refusal after an admission is a first one.
//!
//! A refund is taken only from a delta that its charge can be part of. Charges that are not later
//! than the last one that was sent are left to the store, because a clock that steps may let them
//! seem later. A charge above the estimate begins a delta if the bucket was full before it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    Bound,
    estimates::{StoreClock, Traffic, remaining},
    offline::OfflineShare,
    schedule::half_periods,
    unsent::{PushState, Unsent},
};
use crate::{
    algorithm::{Step, Syncable},
    decision::{Charge, Cost, Decision},
    time::Timestamp,
};

/// The outcome of a call.
#[derive(Debug)]
pub(crate) enum ViewOutcome {
    Decided(Decision),
    /// The key has to be pushed or pulled before this key can be decided.
    Sync,
    /// The store has to decide the call. It has begun: see [`KeyView::end_in_store`].
    Store,
    /// The store cannot be reached, and this node has no share of the limit.
    Unreachable,
}

/// A node's view of a key under rules of one kind, and the admitted units that are not pushed to
/// the store yet.
///
/// The view is the state that the store returned last, with all units that this node admitted and
/// the store had not taken in. The rule itself decides on it, at the time of the store as this node
/// knows it.
#[derive(Clone)]
pub(crate) struct KeyView<Rule: Syncable> {
    /// That of the bound that came with the rule.
    number: u64,
    state: Option<Rule::State>,
    /// `false` if the store has to be asked before the view can be used.
    is_known: bool,
    clock: StoreClock,
    /// Units that were not sent yet, oldest first.
    fresh: SmallVec<[Unsent<Rule>; 1]>,
    /// The units of both.
    unsynced: u64,
    /// The latest instant of a charge by the clock of the store, as it was estimated.
    charged_at: Timestamp,
    /// `true` if the next unit begins a delta of its own.
    begins_anew: bool,
    /// `true` if the last call was refused.
    is_refusing: bool,
    /// `true` if the key was called since it was sent last.
    is_used: bool,
    is_sending: bool,
    /// `true` if the store decided a call since the key was sent last, which the answer may not
    /// contain.
    is_outdated: bool,
    /// Calls that the store decides at the moment. Nothing is admitted here meanwhile.
    pub(super) in_store: u32,
    /// Until then only calls that have waited long are admitted here, because one of them lacks
    /// room: a busy key would never have pushed enough. A call that is dropped holds up others no
    /// longer than that.
    gives_way_until: Timestamp,
    /// Until then the store decides all calls, because it cannot take in the units of this key.
    left_until: Timestamp,
    is_unreachable: bool,
    pub(super) last_used: Timestamp,
    due: Timestamp,
    /// The time after which it is due by the used part of its limit.
    half_periods: u32,
    /// `true` if a call was refused since the key was sent last.
    has_refused: bool,
    /// Fields that most calls do not read, kept apart so that the others take few cache lines.
    /// It is shared only with a former view that may be restored.
    push: Arc<PushState<Rule>>,
}

/// Deltas of more windows or rules than this are added up, and count as of the later one.
const MOST_DELTAS: usize = 16;

impl<Rule: Syncable> KeyView<Rule> {
    /// A key of which nothing is known.
    pub(crate) fn new(rule: Rule, now: Timestamp) -> Self {
        Self {
            number: u64::MAX,
            state: None,
            is_known: false,
            clock: StoreClock::default(),
            fresh: SmallVec::new(),
            unsynced: 0,
            charged_at: Timestamp::default(),
            begins_anew: true,
            is_refusing: false,
            is_used: false,
            is_sending: false,
            is_outdated: false,
            in_store: 0,
            gives_way_until: Timestamp::default(),
            left_until: Timestamp::default(),
            is_unreachable: false,
            last_used: now,
            due: Timestamp::MAX,
            half_periods: 8,
            has_refused: false,
            push: Arc::new(PushState {
                rule: Arc::new(rule),
                in_flight: Vec::new(),
                sent_until: Timestamp::default(),
                offline: None,
                traffic: Traffic::default(),
                refusal_pushed: None,
            }),
        }
    }

    /// Returns the instant at which the key should be pushed or pulled, by the clock of this node.
    pub(crate) fn due(&self) -> Timestamp {
        self.due
    }

    /// Returns the units that the store may not know yet.
    pub(crate) fn unsynced(&self) -> u64 {
        self.unsynced
    }

    /// Returns the instant of the first unit that the store may not know yet.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        let first = self.push.in_flight.first().or(self.fresh.first());
        first.map(|unsent| unsent.at)
    }

    /// Returns `true` if nothing is lost when the view is dropped.
    pub(crate) fn is_settled(&self) -> bool {
        self.unsynced == 0 && !self.is_sending && self.in_store == 0
    }

    /// Returns `true` if no call has come to the view yet: the store decides the first one.
    pub(crate) fn is_new(&self) -> bool {
        self.number == u64::MAX
    }

    /// Returns `true` if there is a view.
    pub(crate) fn knows(&self) -> bool {
        self.is_known || self.is_offline()
    }

    /// Returns `true` if the store cannot be reached.
    #[inline]
    pub(crate) fn is_offline(&self) -> bool {
        self.is_unreachable
    }

    /// Decides a call, if that is possible without the store. A call that has waited long must ask
    /// the store, instead of waiting again.
    #[inline]
    pub(crate) fn acquire(
        &mut self,
        rule: &Rule,
        now: Timestamp,
        (cost, must_ask): (Cost, bool),
        bound: &Bound,
    ) -> ViewOutcome {
        // The first comparison is cheap, and most calls end there.
        if now < self.last_used && now.saturating_add(bound.period) < self.last_used {
            self.clock_stepped_back(now);
        }
        self.last_used = now;
        self.is_used = true;
        if self.number != bound.number {
            self.come_under(rule, now, bound);
        }
        if self.is_unreachable {
            // Calls that the store may still decide are not waited for.
            return self.acquire_alone(now, cost, bound);
        }
        if now < self.left_until {
            return self.begun_in_store();
        }
        if self.in_store > 0 {
            if must_ask {
                return self.begun_in_store();
            }
            // The caller of the call in the store may have stopped polling it, so this one waits
            // for an answer to the node, too.
            self.make_due(now.saturating_add(bound.period));
            return ViewOutcome::Sync;
        }
        if !self.is_known {
            self.make_due(now);
            return ViewOutcome::Sync;
        }
        let at = self.clock.at(now);
        let gives_way = now < self.gives_way_until && !must_ask;
        if gives_way || self.unsynced.saturating_add(cost.get()) > bound.most {
            return self.refuse_or_ask((now, at), (cost, must_ask), bound);
        }
        let begins = self.begins_at(rule, now, at);
        // A decision is large, so it is copied once.
        let step = rule.step(&mut self.state, at, cost);
        let (Step::Wrote(decision) | Step::Kept(decision)) = &step;
        if decision.is_admitted() {
            self.admitted((now, at), cost, begins);
            if must_ask {
                self.gives_way_until = Timestamp::default();
            }
            if self.unsynced.saturating_mul(2) >= bound.most {
                self.make_due(now);
            } else {
                self.make_due_by_use(decision, now, bound);
            }
        } else {
            self.refused(now, bound);
        }
        ViewOutcome::Decided(*decision)
    }

    /// Forgets instants of before the clock of this node stepped back, which now lie in its future,
    /// and has the store asked for the time.
    #[cold]
    fn clock_stepped_back(&mut self, now: Timestamp) {
        self.push_mut().refusal_pushed = None;
        self.left_until = self.left_until.min(now);
        self.gives_way_until = Timestamp::default();
        self.make_due(now);
    }

    #[cold]
    fn come_under(&mut self, rule: &Rule, now: Timestamp, bound: &Bound) {
        self.number = bound.number;
        if *self.push.rule == *rule {
            return;
        }
        let goes_on = rule.has_units_of(&self.push.rule);
        let at = self.clock.at(now);
        let push = Arc::make_mut(&mut self.push);
        push.rule = Arc::new(rule.clone());
        if let Some(offline) = &mut push.offline {
            offline.come_under((rule, self.state.as_ref()), at);
        }
        // Calls under both rules take turns.
        if !goes_on {
            self.begins_anew = true;
            self.left_until = Timestamp::default();
        }
    }

    /// Returns how the key stands, as this node knows it; `None` if it does not know enough.
    pub(crate) fn look(&self, rule: &Rule, now: Timestamp) -> Option<Decision> {
        if let Some(offline) = &self.push.offline {
            return offline.look(self.clock.at(now));
        }
        let is_known = self.is_known && self.in_store == 0 && !self.is_unreachable;
        is_known.then(|| rule.look(self.state.as_ref(), self.clock.at(now)))
    }

    /// A call for which there is no room before its units were pushed. A refusal needs no room.
    fn refuse_or_ask(
        &mut self,
        (now, at): (Timestamp, Timestamp),
        (cost, must_ask): (Cost, bool),
        bound: &Bound,
    ) -> ViewOutcome {
        let decision = self
            .push
            .rule
            .step(&mut self.state.clone(), at, cost)
            .decision();
        if !decision.is_admitted() {
            self.refused(now, bound);
            return ViewOutcome::Decided(decision);
        }
        self.make_due(now);
        if cost.get() > bound.most && self.unsynced == 0 {
            return self.begun_in_store();
        }
        if must_ask {
            self.gives_way_until = now.saturating_add(bound.period);
        }
        ViewOutcome::Sync
    }

    fn begun_in_store(&mut self) -> ViewOutcome {
        self.begin_in_store();
        ViewOutcome::Store
    }

    /// Decides a call while the store cannot be reached.
    fn acquire_alone(&mut self, now: Timestamp, cost: Cost, bound: &Bound) -> ViewOutcome {
        let at = self.clock.at(now);
        self.make_due(now.saturating_add(bound.period));
        if bound.is_closed {
            return ViewOutcome::Unreachable;
        }
        if self.push.offline.is_none() {
            self.go_offline(at, bound);
        }
        let mut state = self.state.clone();
        let PushState { offline, rule, .. } = Arc::make_mut(&mut self.push);
        let Some(offline) = offline else {
            return ViewOutcome::Unreachable;
        };
        let by_rule = rule.step(&mut state, at, cost).decision();
        if !by_rule.is_admitted() {
            return ViewOutcome::Decided(by_rule);
        }
        let Some(decision) = offline.acquire(at, cost) else {
            return ViewOutcome::Unreachable;
        };
        if decision.is_admitted() {
            let begins = self.begins_at(&self.push.rule, now, at);
            self.state = state;
            self.admitted((now, at), cost, begins);
        }
        ViewOutcome::Decided(decision)
    }

    fn go_offline(&mut self, at: Timestamp, bound: &Bound) {
        let Some(nodes) = bound.nodes else { return };
        let known = (&*self.push.rule, self.state.as_ref());
        let share = OfflineShare::new(known, at, nodes);
        self.push_mut().offline = share.map(Box::new);
    }

    #[cold]
    fn push_mut(&mut self) -> &mut PushState<Rule> {
        Arc::make_mut(&mut self.push)
    }

    /// Returns `true` if a unit of this instant begins a delta.
    ///
    /// So does the unit that follows a full bucket: with the former ones it would be refilled from
    /// their instant on, although nothing was missing meanwhile. The bucket may be full by the
    /// clock of the store before it is by the estimate.
    #[inline]
    fn begins_at(&self, rule: &Rule, now: Timestamp, at: Timestamp) -> bool {
        let Some(last) = self.fresh.last() else {
            return true;
        };
        self.begins_anew
            || !rule.can_merge(last.store_at, at)
            || rule.has_expired(self.state.as_ref(), self.clock.latest(now))
    }

    #[inline]
    fn admitted(&mut self, (now, at): (Timestamp, Timestamp), cost: Cost, begins: bool) {
        self.is_refusing = false;
        self.unsynced = self.unsynced.saturating_add(cost.get());
        self.charged_at = self.charged_at.max(at);
        if let Some(last) = self.fresh.last_mut().filter(|_| !begins) {
            last.units = last.units.saturating_add(cost.get());
            last.last = now;
            return;
        }
        self.begin_delta((now, at), cost);
    }

    #[cold]
    fn begin_delta(&mut self, (now, at): (Timestamp, Timestamp), cost: Cost) {
        self.begins_anew = false;
        self.fresh.push(Unsent {
            rule: Arc::clone(&self.push.rule),
            at: now,
            first: now,
            store_at: at,
            last: now,
            units: cost.get(),
            number: 0,
        });
        if self.fresh.len() > MOST_DELTAS {
            // Later instants are on the side of the limit.
            let oldest = self.fresh.remove(0);
            self.fresh[0].units = self.fresh[0].units.saturating_add(oldest.units);
        }
    }

    fn refused(&mut self, now: Timestamp, bound: &Bound) {
        let wait = bound.period / 2;
        self.has_refused = true;
        if std::mem::replace(&mut self.is_refusing, true) {
            self.make_due(now.saturating_add(wait));
            return;
        }
        // Others may have less room, too: they should know. A key whose calls are admitted and
        // refused by turns is not pushed each time.
        let earliest = self
            .push
            .refusal_pushed
            .map(|pushed| pushed.saturating_add(wait));
        self.make_due(earliest.map_or(now, |earliest| earliest.max(now)));
    }

    /// Notes that the key should be pushed by the time that suits the used part of its limit, if
    /// that is earlier than before.
    #[inline]
    fn make_due_by_use(&mut self, decision: &Decision, now: Timestamp, bound: &Bound) {
        let half_periods = half_periods(decision);
        if self.due == Timestamp::MAX || half_periods < self.half_periods {
            self.half_periods = half_periods;
            self.make_due(now.saturating_add(bound.period * half_periods / 2));
        }
    }

    /// Has the key pushed or pulled by then. What is under way ends first.
    pub(crate) fn make_due(&mut self, due: Timestamp) {
        if !self.is_sending {
            self.due = self.due.min(due);
        }
    }

    /// Takes an admission back that was made just now.
    pub(crate) fn undo(&mut self, former: Self, now: Timestamp) {
        let (due, gives_way_until) = (self.due, self.gives_way_until);
        *self = former;
        (self.last_used, self.is_used, self.due) = (now, true, due);
        // Others wait, although the call had its turn.
        self.gives_way_until = self.gives_way_until.max(gives_way_until);
    }

    /// Corrects a charge. Returns the units that the store has to refund.
    pub(crate) fn settle(
        &mut self,
        rule: &Rule,
        charge: &Charge,
        actual: u64,
        now: Timestamp,
        bound: &Bound,
    ) -> u64 {
        let at = self.clock.at(now);
        let begins = self.begins_at(rule, now, at);
        rule.settle(&mut self.state, charge, at, actual);
        if let Some(more) = actual.checked_sub(charge.cost) {
            if let Some(more) = Cost::new(more) {
                self.admitted((now, at), more, begins);
                self.make_due(now.saturating_add(bound.period));
            }
            return 0;
        }
        // The store need not hear of what it does not know yet. What may have been sent is none of
        // that, although clocks that step may let it seem later.
        let mut less = charge.cost - actual;
        let is_fresh = charge.at > self.push.sent_until;
        for unsent in self.fresh.iter_mut().rev().filter(|_| is_fresh) {
            if rule.can_merge(unsent.store_at, charge.at) && charge.at >= unsent.store_at {
                let taken = unsent.refund(less);
                less -= taken;
                self.unsynced -= taken;
            }
        }
        self.fresh.retain(|unsent| unsent.units > 0);
        less
    }

    /// Begins to push to the store what it does not know, and returns that: nothing if the state
    /// alone is asked for.
    ///
    /// Units that an earlier call sent without getting an answer are sent again, by themselves.
    pub(crate) fn send(
        &mut self,
        now: Timestamp,
        mut number: impl FnMut() -> u64,
    ) -> &[Unsent<Rule>] {
        let push = Arc::make_mut(&mut self.push);
        if std::mem::take(&mut self.has_refused) {
            push.refusal_pushed = Some(now);
        }
        (self.due, self.is_sending, self.is_used) = (Timestamp::MAX, true, false);
        self.is_outdated = self.in_store > 0;
        if push.in_flight.is_empty() {
            push.in_flight.extend(self.fresh.drain(..));
            push.sent_until = self.charged_at;
            self.begins_anew = true;
            for unsent in &mut push.in_flight {
                unsent.number = number();
            }
        }
        &push.in_flight
    }

    /// Returns the rule of the last call.
    pub(crate) fn rule(&self) -> &Rule {
        &self.push.rule
    }

    /// Takes in the state of the key at an instant of the store's clock, which contains all that
    /// was sent. Returns by how many units the view was above it.
    pub(crate) fn answered(
        &mut self,
        (sent, at, now): (Timestamp, Timestamp, Timestamp),
        state: Option<Rule::State>,
        bound: &Bound,
    ) -> u64 {
        self.clock.note(sent, at, now);
        let push = Arc::make_mut(&mut self.push);
        let (at, rule) = (self.clock.at(now), Arc::clone(&push.rule));
        let own: u64 = push.in_flight.drain(..).map(|unsent| unsent.units).sum();
        self.unsynced = self.unsynced.saturating_sub(own);
        let before = remaining(&*rule, self.state.as_ref(), at) + i128::from(self.unsynced);
        let others = match self.is_known {
            true => before - remaining(&*rule, state.as_ref(), at),
            false => 0,
        };
        let others = u64::try_from(others.max(0)).unwrap_or(u64::MAX);
        // If all would have come back without this node, some of what others spent may have, too.
        let limit = rule.look(None, at).limit().unwrap_or(0);
        let shows_all = self.is_known && before + i128::from(own) < i128::from(limit);
        let units = shows_all.then_some([own, others]);
        push.traffic.note(now, units, bound.period);
        push.offline = None;
        self.state = state;
        for unsent in &mut self.fresh {
            // If the clock of this node has stepped back, units of before lie in its future, where
            // a bucket would be full again.
            unsent.store_at = self.clock.at(unsent.first).min(at);
            let at = self.clock.at(unsent.at).min(at);
            let charge = Charge::new(at, 0);
            unsent
                .rule
                .settle(&mut self.state, &charge, at, unsent.units);
        }
        self.is_known = !self.is_outdated;
        (self.is_sending, self.is_unreachable) = (false, false);
        if self.unsynced.saturating_mul(2) >= bound.most && self.unsynced > 0 {
            self.make_due(now);
        } else if self.is_used || self.unsynced > 0 {
            let look = rule.look(self.state.as_ref(), at);
            self.make_due_by_use(&look, now, bound);
        }
        others
    }

    /// Notes that the instant at which the view was due is over.
    pub(crate) fn clear_due(&mut self) {
        self.due = Timestamp::MAX;
    }

    /// Notes that what was sent got no answer. If the store cannot be reached, this node goes on
    /// alone.
    pub(crate) fn failed(&mut self, now: Timestamp, is_unreachable: bool, bound: &Bound) {
        self.is_sending = false;
        if is_unreachable && !self.is_unreachable {
            self.is_unreachable = true;
            self.go_offline(self.clock.at(now), bound);
        }
        if self.unsynced > 0 || self.is_used || !self.is_known {
            self.make_due(now.saturating_add(bound.period));
        }
    }

    /// Leaves all calls to the store until then, because it cannot take in the units of this key.
    /// Returns the units that were not taken in.
    pub(crate) fn leave_to_store(&mut self, until: Timestamp) -> u64 {
        self.fresh.clear();
        let push = Arc::make_mut(&mut self.push);
        push.in_flight.clear();
        (push.sent_until, push.offline) = (self.charged_at, None);
        (self.state, self.is_known, self.is_sending) = (None, false, false);
        self.is_unreachable = false;
        (self.left_until, self.begins_anew) = (until, true);
        std::mem::take(&mut self.unsynced)
    }

    /// Returns `true` if the store may decide a call: it knows all that this node has admitted.
    pub(crate) fn may_begin_in_store(&self) -> bool {
        self.in_store > 0 || self.unsynced == 0
    }

    /// Holds up other calls until then, for one that has waited long to begin in the store.
    pub(crate) fn make_way(&mut self, until: Timestamp) {
        self.gives_way_until = until;
    }

    /// Begins a call that the store decides.
    pub(crate) fn begin_in_store(&mut self) {
        self.in_store += 1;
        self.gives_way_until = Timestamp::default();
    }

    /// Ends a call that the store decided, and that the view does not know.
    pub(crate) fn end_in_store(&mut self) {
        self.in_store = self.in_store.saturating_sub(1);
        self.outdate();
    }

    /// Notes that the state in the store has changed in a way that the view does not know, nor an
    /// answer that is under way.
    pub(crate) fn outdate(&mut self) {
        (self.is_known, self.is_outdated) = (false, true);
    }

    /// Returns how many units of the key this node may add to what others admit while it is cut
    /// off; 0 if it is not, or has no share.
    pub(crate) fn offline_bound(&self) -> u64 {
        self.push
            .offline
            .as_ref()
            .map_or(0, |offline| offline.most())
    }

    /// Returns the share of what all nodes admitted lately that this one admitted, in thousandths;
    /// `None` if it is not known.
    pub(crate) fn share_permille(&self) -> Option<u64> {
        self.push.traffic.share_permille()
    }
}

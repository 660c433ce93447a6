//! A call that the leases cannot decide alone.
//!
//! One that asks for its own cost alone takes the shortest path: the future of the store and a
//! few words, without a copy of its asks and without a task. So a rarely used key costs little more
//! than without leases.
//!
//! Calls of several asks take another path than under synchronisation. Leases spend what is here,
//! ask the store for the rest, and give back after a refusal; views are locked until all asks are
//! decided here, so that they can be put back as they were.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::{sync::oneshot, time::timeout};

use super::{
    keys::Leases,
    lease::{LeaseOutcome, LeaseRequest},
};
use crate::{
    algorithm::Leasable,
    decision::{Decision, Decisions},
    fleet::{
        LeaseConfig,
        keys::Answered,
        lease::limit_as_written,
        shared::{FleetClock, LateStore, Shared, then},
        tasks::sweep,
    },
    key::Key,
    policy::Policy,
    store::{
        Ask, BoxFuture, Check, OwnedAsks, StoreError,
        ask::policies,
        engine::{runtime, runtime_gone},
    },
    time::Timestamp,
};

/// The parts that the clones of the wrapper share.
pub(super) type LeasedParts<S, Rule, C> = Shared<S, Leases<Rule>, LeaseConfig<C>>;

/// The most answers of others that a call waits for, before it asks the store by itself.
const MOST_WAITS: usize = 4;
/// The longest of these waits. The caller of the other call may have stopped polling it, so its
/// answer may never be taken in. It is longer than usual deadlines of stores, so that a slow store
/// is not asked more often.
const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// The waits without an answer that count as one with: of many calls that wait for a slow store,
/// one asks again each time, and the others by themselves only after so many times.
const UNANSWERED: usize = 16;

/// One ask of a call.
enum LeasedAsk<Rule> {
    /// With a request for later calls, which is made once no other limit is known to refuse the
    /// call: one that is refused is no demand.
    Decided(Decision, Option<Box<LeaseRequest<Rule>>>),
    Ask(LeaseRequest<Rule>),
    Wait(Answered),
}

impl<Rule> LeasedAsk<Rule> {
    fn new(ask: &Ask<'_, Rule>, tried: LeaseOutcome<Rule>) -> Self {
        match tried {
            LeaseOutcome::Admitted(parts, prefetch) => {
                Self::Decided(parts.admission(ask.cost()), prefetch)
            }
            LeaseOutcome::Refused(parts, wait) => {
                Self::Decided(parts.refusal(ask.cost(), wait), None)
            }
            LeaseOutcome::Ask(asked) => Self::Ask(asked),
            LeaseOutcome::Wait(receiver) => Self::Wait(receiver),
        }
    }
}

/// A call with the units that it has spent so far. They are refunded when it is dropped, unless
/// it was [finished](Self::finish).
pub(super) struct Call<S: LateStore<Rule>, Rule: Leasable, C: FleetClock> {
    inner: Arc<LeasedParts<S, Rule, C>>,
    asks: OwnedAsks<Rule>,
    parts: SmallVec<[LeasedAsk<Rule>; 1]>,
}

impl<S: LateStore<Rule>, Rule: Leasable, C: FleetClock> LeasedParts<S, Rule, C> {
    /// Decides an ask as far as that is possible without the store.
    #[inline]
    pub(super) fn try_one(
        &self,
        ask: &Ask<'_, Rule>,
        is_again: bool,
    ) -> Result<LeaseOutcome<Rule>, crate::Error> {
        let now = self.now();
        self.keys.acquire(ask, now, is_again, &self.config)
    }

    /// Returns the request of a call for its own cost, beside one that may be under way.
    fn beside(&self, ask: &Ask<'_, Rule>) -> Result<LeaseRequest<Rule>, StoreError> {
        let asked = self.keys.beside(ask, self.now(), &self.config);
        asked.map_err(StoreError::unsupported)
    }

    /// Returns how keys stand in the store, under the limits as they are written.
    pub(super) fn look(
        &self,
        asks: &[Ask<'_, Rule>],
    ) -> Check<BoxFuture<Result<Decisions, StoreError>>> {
        // Blocks are not leased.
        let tightened = asks.iter().map(|ask| match ask.policy().is_of_blocks() {
            true => Ok(ask.rule().clone()),
            false => self.config.tightened(ask.rule()),
        });
        let tightened: Vec<_> = match tightened.collect::<Result<_, _>>() {
            Ok(tightened) => tightened,
            Err(error) => return Check::Ready(Err(StoreError::unsupported(error))),
        };
        let limits: SmallVec<[_; 1]> = asks
            .iter()
            .map(|ask| limit_as_written(ask.rule()))
            .collect();
        let as_written = move |looked: Decisions| -> Decisions {
            let looks = looked.as_slice().iter().zip(limits);
            looks
                .map(|(look, limit)| look.with_limit_as_written(limit))
                .collect()
        };
        let asks: Vec<_> = asks
            .iter()
            .zip(&tightened)
            .map(|(ask, tightened)| Ask::new(ask.policy(), tightened, *ask.key(), ask.cost()))
            .collect();
        then(self.store.look(&asks), |looked| looked.map(as_written))
    }

    /// Asks the store for units that later calls will need.
    pub(super) fn prefetch(
        self: &Arc<Self>,
        ask: &Ask<'_, Rule>,
        prefetch: Box<LeaseRequest<Rule>>,
    ) {
        let Ok(runtime) = runtime() else {
            // Without a runtime nothing can go on behind this call. The next call that lacks units
            // asks.
            self.keys.ended(&prefetch, &Ok(()));
            return;
        };
        let mut in_flight = self.in_flight(ask, *prefetch);
        runtime.spawn(async move {
            let answer = in_flight.send();
            // Nobody waits for the decision.
            let _ = in_flight.answered(answer.await);
        });
    }

    fn in_flight(
        self: &Arc<Self>,
        ask: &Ask<'_, Rule>,
        asked: LeaseRequest<Rule>,
    ) -> InFlight<S, Rule, C> {
        self.nodes.count(ask.policy(), &self.store);
        sweep(self);
        InFlight {
            inner: Arc::clone(self),
            asked,
            is_answered: false,
            owner: (ask.policy().clone(), *ask.key()),
        }
    }

    /// Asks the store for the cost of a call.
    pub(super) fn ask_exactly(
        self: &Arc<Self>,
        ask: &Ask<'_, Rule>,
        asked: LeaseRequest<Rule>,
    ) -> Check<BoxFuture<Result<Decisions, StoreError>>> {
        let mut in_flight = self.in_flight(ask, asked);
        then(in_flight.send(), move |answer| in_flight.answered(answer))
    }

    /// Leaves it to others to ask ahead.
    fn drop_prefetch(&self, prefetch: &mut Option<Box<LeaseRequest<Rule>>>) {
        if let Some(prefetch) = prefetch.take() {
            self.keys.ended(&prefetch, &Ok(()));
        }
    }

    /// Refunds what a part has taken. It is as if the lease had only been looked at.
    fn undo(&self, ask: &Ask<'_, Rule>, part: &mut LeasedAsk<Rule>) {
        match part {
            LeasedAsk::Decided(decision, prefetch) => {
                self.drop_prefetch(prefetch);
                let charge = decision.take_charge();
                if let Some(charge) = charge.filter(|charge| charge.is_of_lease()) {
                    let owner = (ask.policy(), ask.key(), ask.rule());
                    let now = self.now();
                    self.keys
                        .refund(owner, charge.cost, charge.position, now, &self.config);
                    let remaining = decision.remaining().unwrap_or(0);
                    let full_after = decision.full_after();
                    *decision = decision
                        .with_remaining(remaining.saturating_add(charge.cost))
                        .with_full_after(full_after);
                }
            }
            LeasedAsk::Ask(asked) => self.keys.ended(asked, &Ok(())),
            LeasedAsk::Wait(_) => {}
        }
    }
}

impl<S: LateStore<Rule>, Rule: Leasable, C: FleetClock> Call<S, Rule, C> {
    /// Begins a call. If the first ask was tried, `tried` is its outcome.
    pub(super) fn new(
        inner: &Arc<LeasedParts<S, Rule, C>>,
        asks: &[Ask<'_, Rule>],
        mut tried: Option<LeaseOutcome<Rule>>,
    ) -> Result<Self, crate::Error> {
        let mut call = Self {
            inner: Arc::clone(inner),
            asks: OwnedAsks::new(asks),
            parts: SmallVec::new(),
        };
        for ask in asks {
            let tried = match tried.take() {
                Some(tried) => tried,
                None => inner.try_one(ask, false)?,
            };
            call.parts.push(LeasedAsk::new(ask, tried));
        }
        Ok(call)
    }

    /// Returns `true` if all asks are decided, without the store.
    pub(super) fn is_decided(&self) -> bool {
        let is_decided = |part: &LeasedAsk<Rule>| matches!(part, LeasedAsk::Decided(..));
        self.parts.iter().all(is_decided) && !self.is_refused()
    }

    fn is_refused(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| matches!(part, LeasedAsk::Decided(made, _) if !made.is_admitted()))
    }

    /// Returns the decisions. The units stay spent.
    pub(super) fn finish(mut self) -> Decisions {
        self.ask_ahead();
        let decided = |part| match part {
            LeasedAsk::Decided(decision, _) => Some(decision),
            LeasedAsk::Ask(_) | LeasedAsk::Wait(_) => None,
        };
        let decisions: Decisions = self.parts.drain(..).filter_map(decided).collect();
        let asks = self.asks.to_list();
        decisions.of_policies(policies(&asks))
    }

    /// Makes the requests for later calls.
    fn ask_ahead(&mut self) {
        for (ask, part) in self.asks.iter().zip(&mut self.parts) {
            if let LeasedAsk::Decided(_, prefetch) = part
                && let Some(prefetch) = prefetch.take()
            {
                self.inner.prefetch(&ask, prefetch);
            }
        }
    }

    /// Decides the call. A caller that no longer waits takes nothing: what was spent is refunded.
    /// Only a request for more than the call's own cost goes on then, because others wait for its
    /// answer.
    pub(super) async fn decide(mut self) -> Result<Decisions, StoreError> {
        let mut waits = 0;
        while !self.is_refused() {
            let is_waiting = |part: &LeasedAsk<Rule>| matches!(part, LeasedAsk::Wait(_));
            let Some(index) = self.parts.iter().position(is_waiting) else {
                return self.ask_to_the_end().await.map(Self::finish);
            };
            self.let_others_ask()?;
            let is_answered = self.wait(index, waits >= MOST_WAITS * UNANSWERED).await?;
            waits += if is_answered { UNANSWERED } else { 1 };
        }
        self.refuse().await.map(Self::finish)
    }

    /// Asks the store for what is lacking. Then all asks are decided.
    async fn ask_to_the_end(mut self) -> Result<Self, StoreError> {
        self.ask_ahead();
        let mut parts = self.parts.iter();
        let is_prefetch =
            parts.any(|part| matches!(part, LeasedAsk::Ask(asked) if !asked.request.is_exact()));
        let Some(Ok(runtime)) = is_prefetch.then(runtime) else {
            return self.ask().await;
        };
        let (reply, answer) = oneshot::channel();
        runtime.spawn(async move {
            // Dropped here if the caller no longer waits.
            let _ = reply.send(self.ask().await);
        });
        let gone = |_| Err(runtime_gone());
        answer.await.unwrap_or_else(gone)
    }

    /// Leaves it to others to ask for more than a call needs. Whoever waits keeps no request that
    /// others wait for: two calls could wait for each other, each with a request that it has not
    /// sent.
    fn let_others_ask(&mut self) -> Result<(), StoreError> {
        let inner = &self.inner;
        for (ask, part) in self.asks.iter().zip(&mut self.parts) {
            match part {
                LeasedAsk::Ask(asked) if asked.request.holds_others() => {
                    inner.keys.ended(asked, &Ok(()));
                    *asked = inner.beside(&ask)?;
                }
                LeasedAsk::Decided(_, prefetch) => inner.drop_prefetch(prefetch),
                LeasedAsk::Ask(_) | LeasedAsk::Wait(_) => {}
            }
        }
        Ok(())
    }

    /// Waits until another call has its answer, or for the longest wait, and tries again. Returns
    /// `true` if there was an answer.
    async fn wait(&mut self, index: usize, is_last: bool) -> Result<bool, StoreError> {
        let Some(ask) = self.asks.iter().nth(index) else {
            return Ok(true);
        };
        let mut is_answered = true;
        if let LeasedAsk::Wait(answered) = &mut self.parts[index] {
            // Without a runtime there is no timer.
            let answer = match runtime() {
                Ok(_) => timeout(LONGEST_WAIT, &mut *answered).await.ok(),
                Err(_) => None,
            };
            is_answered = match answer {
                Some(Ok(answer)) => answer.map(|()| true)?,
                // The key was forgotten, or the request that it waited for.
                Some(Err(_)) => false,
                None => self.inner.keys.overdue(&ask, answered)?,
            };
        }
        let tried = self
            .inner
            .try_one(&ask, true)
            .map_err(StoreError::unsupported)?;
        let part = match LeasedAsk::new(&ask, tried) {
            LeasedAsk::Wait(_) if is_last => LeasedAsk::Ask(self.inner.beside(&ask)?),
            part => part,
        };
        self.parts[index] = part;
        Ok(is_answered)
    }

    /// Asks the store for all that is lacking, at once.
    async fn ask(mut self) -> Result<Self, StoreError> {
        let answer = {
            let asks = self.asks.iter().zip(&self.parts);
            let lacking = asks.filter_map(|(ask, part)| match part {
                LeasedAsk::Ask(asked) => Some(asked.ask(ask.policy(), ask.key())),
                LeasedAsk::Decided(..) | LeasedAsk::Wait(_) => None,
            });
            let lacking: SmallVec<[_; 1]> = lacking.collect();
            if lacking.is_empty() {
                drop(lacking);
                return Ok(self);
            }
            for ask in &lacking {
                self.inner.nodes.count(ask.policy(), &self.inner.store);
            }
            self.inner.store.acquire(&lacking)
        };
        let answer = answer.await;
        let now = self.inner.now();
        let decisions = match answer {
            Ok(decisions) => decisions,
            Err(error) => {
                self.failed(&error, now);
                return Err(error);
            }
        };
        let is_admitted = decisions.is_admitted();
        let mut decisions = decisions.as_slice().iter();
        let inner = Arc::clone(&self.inner);
        for (ask, part) in self.asks.iter().zip(&mut self.parts) {
            let LeasedAsk::Ask(asked) = part else {
                continue;
            };
            let Some(answer) = decisions.next() else {
                continue;
            };
            inner.nodes.note_answer(answer);
            let decision = if is_admitted || !answer.is_admitted() {
                let owner = (ask.policy(), ask.key());
                inner.keys.answered(asked, owner, *answer, now)
            } else {
                inner.keys.ended(asked, &Ok(()));
                answer.with_limit_as_written(asked.rule.terms.limit)
            };
            *part = LeasedAsk::Decided(decision, None);
        }
        if is_admitted {
            return Ok(self);
        }
        self.refuse().await
    }

    /// Notes that the store has not answered.
    fn failed(&mut self, error: &StoreError, now: Timestamp) {
        let inner = Arc::clone(&self.inner);
        let is_lacking = |part: &&LeasedAsk<Rule>| matches!(part, LeasedAsk::Ask(_));
        // It says something of one key, and callers of the others ask by themselves. After
        // contention they would make more of it.
        let is_of_one = error.is_unsupported() && self.parts.iter().filter(is_lacking).count() > 1;
        for part in &mut self.parts {
            if let LeasedAsk::Ask(asked) = part {
                let result = match is_of_one {
                    true => Ok(()),
                    false => Err(error.duplicate()),
                };
                inner.keys.failed.add(1);
                inner.keys.ended(asked, &result);
                *part = LeasedAsk::Decided(Decision::undecided(false, now, None), None);
            }
        }
    }

    /// Refunds what was spent. The asks that are not refused are answered as by looks: those that a
    /// lease has paid for by what it knows, the others by the store; without numbers if that fails,
    /// because the call is refused all the same.
    async fn refuse(mut self) -> Result<Self, StoreError> {
        let inner = Arc::clone(&self.inner);
        let mut unknown = SmallVec::<[usize; 2]>::new();
        for (index, (ask, part)) in self.asks.iter().zip(&mut self.parts).enumerate() {
            match part {
                LeasedAsk::Decided(decision, _) if !decision.is_admitted() => {}
                LeasedAsk::Decided(decision, _) if decision.charge().is_none() => {}
                _ => {
                    let is_known = matches!(part, LeasedAsk::Decided(..));
                    inner.undo(&ask, part);
                    let owner = (ask.policy(), ask.key(), ask.rule());
                    inner.keys.forget_call(owner, ask.cost(), is_known);
                    if !is_known {
                        unknown.push(index);
                    }
                }
            }
        }
        if unknown.is_empty() {
            return Ok(self);
        }
        let looked = {
            let asks = self.asks.to_vec();
            let asks: Vec<_> = unknown.iter().map(|index| asks[*index]).collect();
            inner.look(&asks)
        };
        let looked = looked.await.unwrap_or_else(|_| {
            let no_look = Decision::undecided(true, inner.now(), None);
            Decisions::repeat(no_look, unknown.len())
        });
        for (index, look) in unknown.into_iter().zip(looked.as_slice()) {
            self.parts[index] = LeasedAsk::Decided(*look, None);
        }
        Ok(self)
    }
}

impl<S: LateStore<Rule>, Rule: Leasable, C: FleetClock> Drop for Call<S, Rule, C> {
    fn drop(&mut self) {
        for (ask, part) in self.asks.iter().zip(&mut self.parts) {
            self.inner.undo(&ask, part);
        }
        sweep(&self.inner);
    }
}

/// A request under way. If it ends without an answer, with its caller or runtime or by a panic of
/// the store, others can ask.
struct InFlight<S, Rule: Leasable, C> {
    inner: Arc<LeasedParts<S, Rule, C>>,
    asked: LeaseRequest<Rule>,
    is_answered: bool,
    owner: (Policy, Key),
}

impl<S, Rule: Leasable, C> Drop for InFlight<S, Rule, C> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.inner.keys.ended(&self.asked, &Ok(()));
        }
    }
}

impl<S: LateStore<Rule>, Rule: Leasable, C: FleetClock> InFlight<S, Rule, C> {
    fn send(&self) -> Check<S::Answer> {
        let (policy, key) = &self.owner;
        self.inner.store.acquire(&[self.asked.ask(policy, key)])
    }

    fn answered(&mut self, answer: Result<Decisions, StoreError>) -> Result<Decisions, StoreError> {
        self.is_answered = true;
        let (leases, asked) = (&self.inner.keys, &self.asked);
        match &answer {
            Err(error) => {
                leases.failed.add(1);
                leases.ended(asked, &Err(error.duplicate()));
            }
            Ok(decisions) => match decisions.as_slice() {
                [decision] => {
                    let now = self.inner.now();
                    self.inner.nodes.note_answer(decision);
                    let (policy, key) = &self.owner;
                    let decision = leases.answered(asked, (policy, key), *decision, now);
                    return Ok(decision.of_policy(policy.digest()).into());
                }
                _ => leases.ended(asked, &Ok(())),
            },
        }
        answer
    }
}

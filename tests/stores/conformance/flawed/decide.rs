//! The decisions of a store that may be broken.

use std::{num::NonZeroU64, slice, sync::atomic::Ordering, time::Duration};

use tokio::task::yield_now;
use tollgate::{
    AnyRule, Cost, Decision, Quota, Timestamp, Verdict,
    algorithm::Algorithm,
    store::{StoreError, driver::Decisions},
};

use super::{Entry, Flaw, Flawed, Owned};

type AnyState = <AnyRule as Algorithm>::State;

impl Flawed {
    pub(super) async fn decide(self, asks: Vec<Owned>) -> Result<Decisions, StoreError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        yield_now().await;
        if self.blocked.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.is_faulty.load(Ordering::SeqCst) {
            return self.meet_fault(&asks);
        }
        match self.flaw {
            Flaw::FailsOnce if call == 33 => Err(StoreError::contended()),
            Flaw::Panics if call % 50 == 49 => panic!("a store that panics"),
            Flaw::SettlesBack => Ok(self.one_after_the_other(&asks).await),
            Flaw::LosesUpdates => Ok(self.read_and_write(&asks).await),
            _ => Ok(self.at_once(&asks)),
        }
    }

    fn meet_fault(&self, asks: &[Owned]) -> Result<Decisions, StoreError> {
        self.was_faulty.store(true, Ordering::SeqCst);
        match self.flaw {
            Flaw::ChargesFaultsTwice => {
                self.at_once(asks);
                self.at_once(asks);
            }
            Flaw::InventsNumbers => {
                let undecided = Verdict::Undecided { admitted: true };
                let undecided = Decision::new(undecided, self.now(), 0);
                return Ok(undecided
                    .with_limit(NonZeroU64::MIN, Quota::per_second(1))
                    .into());
            }
            _ => {}
        }
        Err(StoreError::unavailable("a fault"))
    }

    /// Charges all asks or none, as a correct store.
    pub(super) fn at_once(&self, asks: &[Owned]) -> Decisions {
        let _turn = self.turn();
        let mut before: Vec<(Entry, Option<AnyState>)> = Vec::new();
        let mut decisions = Vec::new();
        for ask in asks {
            let place = self.place(&ask.policy, &ask.key, &ask.rule);
            let known = self.recall(&place, &ask.rule);
            let earlier = before.iter().find(|(other, _)| *other == place);
            let mut state = match earlier {
                Some((_, state)) if self.has(Flaw::DecidesOnOneState) => state.clone(),
                _ => known.clone(),
            };
            let decision = self.step(&mut state, ask);
            if decision.is_admitted() || !self.has(Flaw::ForgetsFirstSight) {
                self.keep(place.clone(), state, &ask.rule);
            }
            before.push((place, known));
            decisions.push(decision);
        }
        let all = decisions.iter().all(Decision::is_admitted);
        if asks.len() > 1 && !all && !self.has(Flaw::KeepsEarlierAsks) {
            for (ask, (place, state)) in asks.iter().zip(before).rev() {
                self.keep(place, state, &ask.rule);
            }
            if !self.has(Flaw::ChargesWhereOthersRefuse) {
                self.update_looks(asks, &mut decisions);
            }
        }
        if self.has(Flaw::AnswersInReverse) {
            decisions.reverse();
        }
        decisions.into_iter().collect()
    }

    fn update_looks(&self, asks: &[Owned], decisions: &mut [Decision]) {
        for (ask, decision) in asks.iter().zip(decisions) {
            if decision.is_admitted() {
                let state = self.recall(&self.place(&ask.policy, &ask.key, &ask.rule), &ask.rule);
                let rule = self.own(&ask.rule, &ask.key);
                *decision = self.report(rule.look(state.as_ref(), self.now()));
            }
        }
    }

    /// Charges one ask after the other, and settles the earlier ones back if a later one is
    /// refused.
    async fn one_after_the_other(&self, asks: &[Owned]) -> Decisions {
        let mut decisions: Vec<Decision> = Vec::new();
        for ask in asks {
            let one = self.at_once(slice::from_ref(ask));
            decisions.extend(one.as_slice());
            yield_now().await;
        }
        if !decisions.iter().all(Decision::is_admitted) {
            let _turn = self.turn();
            for (ask, decision) in asks.iter().zip(&decisions) {
                let Some(charge) = { *decision }.take_charge() else {
                    continue;
                };
                let (place, rule) = (
                    self.place(&ask.policy, &ask.key, &ask.rule),
                    self.own(&ask.rule, &ask.key),
                );
                let state = self.recall(&place, &rule);
                self.correct(place, &rule, charge, 0, state);
            }
            self.update_looks(asks, &mut decisions);
        }
        decisions.into_iter().collect()
    }

    /// Reads the state, and writes it a little later.
    async fn read_and_write(&self, asks: &[Owned]) -> Decisions {
        let mut decisions = Vec::new();
        for ask in asks {
            let place = self.place(&ask.policy, &ask.key, &ask.rule);
            let mut state = self.recall(&place, &ask.rule);
            yield_now().await;
            decisions.push(self.step(&mut state, ask));
            self.keep(place, state, &ask.rule);
        }
        decisions.into_iter().collect()
    }

    fn step(&self, state: &mut Option<AnyState>, ask: &Owned) -> Decision {
        let (rule, now) = (self.own(&ask.rule, &ask.key), self.now());
        let left = rule.look(state.as_ref(), now).remaining().unwrap();
        let cost = match self.flaw {
            Flaw::ForgetsCost => Cost::ONE,
            Flaw::AdmitsOneLess if left == ask.cost.get() => Cost::new(left + 1).unwrap(),
            Flaw::AdmitsOneMore if left == 0 && ask.cost == Cost::ONE => {
                let place = self.place(&ask.policy, &ask.key, &ask.rule);
                if self.favoured.lock().unwrap().insert(place) {
                    return allowed(&rule, now);
                }
                ask.cost
            }
            _ => ask.cost,
        };
        let place = self.place(&ask.policy, &ask.key, &ask.rule);
        if self.has(Flaw::RemembersRefusalsOfKeys)
            && let Some((refusal, end)) = self.refused.lock().unwrap().get(&place)
            && now < *end
        {
            return *refusal;
        }
        let decision = rule.step(state, now, cost).decision();
        match self.flaw {
            Flaw::RemembersRefusalsOfKeys if !decision.is_admitted() => {
                let end = now.saturating_add(decision.retry_after().unwrap_or_default());
                self.refused.lock().unwrap().insert(place, (decision, end));
            }
            Flaw::ChargesRefusals if !decision.is_admitted() => {
                for _ in 0..cost.get().min(20) {
                    rule.step(state, now, Cost::ONE);
                }
            }
            Flaw::OversizeClears if decision.retry_after().is_none() => *state = None,
            _ => {}
        }
        self.report(decision)
    }

    /// Returns the answer as a store with this flaw gives it.
    pub(super) fn report(&self, decision: Decision) -> Decision {
        let retry = |change: fn(Duration) -> Duration| {
            decision.with_retry_after(decision.retry_after().map(change))
        };
        match self.flaw {
            Flaw::CountsUp => {
                let limit = decision.limit().unwrap();
                decision.with_remaining(limit - decision.remaining().unwrap())
            }
            Flaw::RoundsWaitsUp => in_micros(decision, u128::div_ceil),
            Flaw::RoundsWaitsDown => in_micros(decision, |nanos, micro| nanos / micro),
            Flaw::RetryTooEarly => retry(|wait| wait / 2),
            Flaw::RetryTooLate => retry(|wait| wait + Duration::from_nanos(1)),
            Flaw::OversizeIsToldAWait if decision.retry_after().is_none() => {
                decision.with_retry_after(Some(Duration::from_secs(1)))
            }
            _ => decision,
        }
    }
}

/// Rounds waits to whole microseconds.
fn in_micros(decision: Decision, divide: fn(u128, u128) -> u128) -> Decision {
    let round = |wait: Duration| Duration::from_micros(divide(wait.as_nanos(), 1_000) as u64);
    decision
        .with_retry_after(decision.retry_after().map(round))
        .with_reset_after(round(decision.reset_after()))
        .with_more_after(round(decision.more_after()))
}

/// Returns a decision that no rule makes.
fn allowed(rule: &AnyRule, now: Timestamp) -> Decision {
    let look = rule.look(None, now);
    let decision = Decision::new(Verdict::Allow, now, 1);
    match (look.limit().and_then(NonZeroU64::new), look.quota()) {
        (Some(limit), Some(quota)) => decision.with_limit(limit, quota),
        // Calls in flight have no quota.
        _ => decision,
    }
}

//! One budget, and who may spend of it now.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    algorithm::Algorithm,
    decision::{Cost, Decision},
    time::{Clock, SystemClock, Timestamp},
};

/// One rule and one budget, for workers that pull when they may.
///
/// Clones share the budget. What is spent is always spent for work that goes on at once: a rule that would
/// [delay](crate::Verdict::Delay) a cost is asked again later, or waited for, and charged only then.
///
/// # Who waits comes first
///
/// With the feature `tokio`, tasks can wait for the budget (`until_ready`). They are served in the order in which
/// they came, whatever they spend, and as long as one of them waits, [`can_do_work`](Self::can_do_work) and
/// [`spend`](Self::spend) let nobody overtake it.
///
/// ```
/// use tollgate::{Cost, Timestamp, TokenBucket, pace::Pacer};
///
/// let pacer = Pacer::new(TokenBucket::per_second(10));
/// let noon = Timestamp::from_nanos(43_200_000_000_000);
///
/// assert!(pacer.can_do_work(noon));
/// assert!(pacer.spend(noon, Cost::new(9).unwrap()).is_some());
/// assert!(!pacer.can_do_work(noon));
///
/// let wait = pacer.look(noon).retry_after().unwrap();
/// assert!(pacer.can_do_work(noon.saturating_add(wait)));
/// ```
#[doc(alias("throttle", "traffic shaping"))]
pub struct Pacer<A: Algorithm, C = SystemClock> {
    shared: Arc<Shared<A, C>>,
}

struct Shared<A: Algorithm, C> {
    rule: A,
    clock: C,
    state: Mutex<Option<A::State>>,
    /// Held by the first of those who wait; it is given on in the order of arrival. Nobody else spends then.
    #[cfg(feature = "tokio")]
    line: tokio::sync::Mutex<()>,
}

impl<A: Algorithm> Pacer<A> {
    /// An unused budget under `rule`, by the [`SystemClock`].
    pub fn new(rule: A) -> Self {
        Self::with_clock(rule, SystemClock::new())
    }
}

impl<A: Algorithm, C: Clock> Pacer<A, C> {
    /// An unused budget under `rule`, by another clock.
    pub fn with_clock(rule: A, clock: C) -> Self {
        Self {
            shared: Arc::new(Shared {
                rule,
                clock,
                state: Mutex::new(None),
                #[cfg(feature = "tokio")]
                line: tokio::sync::Mutex::default(),
            }),
        }
    }
}

impl<A: Algorithm, C> Pacer<A, C> {
    /// Spends one unit and says `true`, if that may be done at `now` without waiting.
    ///
    /// `false` spends nothing. Reads no clock: the time is what the caller says.
    pub fn can_do_work(&self, now: Timestamp) -> bool {
        self.spend(now, Cost::ONE).is_some()
    }

    /// Spends `cost`, if that may be done at `now` without waiting; `None` spends nothing.
    ///
    /// The decision tells what remains, and the class of the admission. Reads no clock.
    pub fn spend(&self, now: Timestamp, cost: Cost) -> Option<Decision> {
        let mut state = self.state();
        // Who takes the head of the line from here on has to wait for the state.
        if self.is_awaited() {
            return None;
        }
        let decision = self.spend_at_once(&mut state, now, cost);
        (decision.is_admitted() && !is_delayed(&decision)).then_some(decision)
    }

    /// How the budget stands at `now`. Changes nothing, and reads no clock.
    ///
    /// `retry_after` is the wait after which [`can_do_work`](Self::can_do_work) says `true`, if nobody else comes or
    /// waits already. What a rule would delay is told as a refusal; what `remaining` tells then may be spent only
    /// after a wait.
    #[doc(alias("peek", "dry run"))]
    pub fn look(&self, now: Timestamp) -> Decision {
        let look = self.shared.rule.look(self.state().as_ref(), now);
        if is_delayed(&look) {
            look.without_delay()
        } else {
            look
        }
    }

    /// The rule.
    pub fn rule(&self) -> &A {
        &self.shared.rule
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.shared.clock
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Option<A::State>> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Spends `cost` if it need not wait; otherwise the decision says how long, and nothing is spent.
    pub(super) fn spend_at_once(
        &self,
        state: &mut Option<A::State>,
        now: Timestamp,
        cost: Cost,
    ) -> Decision {
        let rule = &self.shared.rule;
        // A state can be as long as a log, so it is copied only where the step may answer with a delay: a look tells
        // that of one unit. Settling back would do without a copy, but not exactly under all rules.
        let may_delay = cost > Cost::ONE || is_delayed(&rule.look(state.as_ref(), now));
        let before = may_delay.then(|| state.clone());
        let decision = rule.step(state, now, cost).decision();
        if let Some(before) = before.filter(|_| is_delayed(&decision)) {
            *state = before;
        }
        decision
    }

    #[cfg(feature = "tokio")]
    fn is_awaited(&self) -> bool {
        self.shared.line.try_lock().is_err()
    }

    #[cfg(not(feature = "tokio"))]
    fn is_awaited(&self) -> bool {
        false
    }

    /// Waits to be the first in line, until the guard is dropped.
    #[cfg(feature = "tokio")]
    pub(super) async fn head_of_line(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.shared.line.lock().await
    }
}

/// How long to wait for what is admitted, but not at once.
pub(super) fn delay(decision: &Decision) -> Option<Duration> {
    decision.delay().filter(|wait| !wait.is_zero())
}

fn is_delayed(decision: &Decision) -> bool {
    delay(decision).is_some()
}

impl<A: Algorithm, C> Clone for Pacer<A, C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<A: Algorithm + fmt::Debug, C> fmt::Debug for Pacer<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer")
            .field("rule", &self.shared.rule)
            .finish_non_exhaustive()
    }
}

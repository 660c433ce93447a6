//! A small algorithm and a small store, written like those of a user of the traits.

use std::{
    convert::Infallible,
    future::Future,
    num::NonZeroU64,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate::{
    Charge, Cost, Decision, Outcome, Policy, Quota, Timestamp, Verdict,
    algorithm::{Algorithm, Step},
    key::Key,
    respond::{Cause, Refusal, Respond},
    store::{
        self, Backend, Store,
        driver::{Ask, Check, Decisions, OwnedAsks, Settlement, Transact, Transaction},
    },
    time::Clock,
};

use super::map_store::MapStore;

/// Admits this many units in each second of the calendar. More may wait for the next second.
#[derive(Clone, Debug)]
pub struct PerSecond {
    pub limit: NonZeroU64,
    pub waits: bool,
}

pub const SECOND: u64 = 1_000_000_000;

impl PerSecond {
    pub fn new(limit: u64) -> Self {
        Self {
            limit: NonZeroU64::new(limit).unwrap(),
            waits: false,
        }
    }

    pub fn waiting(limit: u64) -> Self {
        Self {
            waits: true,
            ..Self::new(limit)
        }
    }

    fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64, count: u64) -> Decision {
        let left = Duration::from_nanos(SECOND - now.as_nanos() % SECOND);
        let retry = match verdict {
            Verdict::Refuse if cost > self.limit.get() => None,
            Verdict::Refuse => Some(left),
            _ => Some(Duration::ZERO),
        };
        Decision::new(verdict, now, cost)
            .with_limit(self.limit, Quota::per_second(self.limit.get()))
            .with_remaining(self.limit.get().saturating_sub(count))
            .with_retry_after(retry)
            .with_reset_after(left)
            .with_more_after(left)
    }

    /// Returns the count of the second that contains `now`, and the number of that second.
    fn count(&self, state: Option<&(u64, u64)>, now: Timestamp) -> (u64, u64) {
        let second = now.as_nanos() / SECOND;
        match state {
            Some((of, count)) if *of >= second => (*of, *count),
            _ => (second, 0),
        }
    }
}

impl Algorithm for PerSecond {
    type State = (u64, u64);

    fn step(&self, state: &mut Option<(u64, u64)>, now: Timestamp, cost: Cost) -> Step {
        let (second, count) = self.count(state.as_ref(), now);
        let cost = cost.get();
        if count.saturating_add(cost) <= self.limit.get() {
            *state = Some((second, count + cost));
            return Step::Wrote(self.answer(Verdict::Allow, now, cost, count + cost));
        }
        if self.waits && cost <= self.limit.get() {
            *state = Some((second, count + cost));
            let wait = Duration::from_nanos(SECOND - now.as_nanos() % SECOND);
            return Step::Wrote(self.answer(Verdict::Delay(wait), now, cost, count + cost));
        }
        Step::Kept(self.answer(Verdict::Refuse, now, cost, count))
    }

    fn look(&self, state: Option<&(u64, u64)>, now: Timestamp) -> Decision {
        let (_, count) = self.count(state, now);
        let verdict = if count < self.limit.get() || self.waits {
            Verdict::Allow
        } else {
            Verdict::Refuse
        };
        let look = self.answer(verdict, now, 0, count);
        if self.waits {
            look.with_remaining(self.limit.get())
        } else {
            look
        }
    }

    fn settle(&self, state: &mut Option<(u64, u64)>, charge: &Charge, _: Timestamp, actual: u64) {
        if let Some((second, count)) = state {
            // Never corrects a window that was not charged.
            if charge.at.as_nanos() / SECOND == *second {
                *count = count.saturating_sub(charge.cost).saturating_add(actual);
            }
        }
    }

    fn may_delay(&self) -> bool {
        self.waits
    }

    fn forgettable_at(&self, (second, _): &(u64, u64)) -> Timestamp {
        Timestamp::from_nanos((second + 1).saturating_mul(SECOND))
    }
}

/// A store like one on a network: it answers when its gate is open, and can fail.
pub struct Remote<A: Algorithm> {
    states: MapStore<A>,
    pub now: Arc<AtomicU64>,
    pub failing: Arc<AtomicBool>,
    pub settled: Arc<AtomicU64>,
    pub gate: Arc<tokio::sync::Semaphore>,
}

impl<A: Algorithm> Clone for Remote<A> {
    fn clone(&self) -> Self {
        Self {
            states: self.states.clone(),
            now: self.now.clone(),
            failing: self.failing.clone(),
            settled: self.settled.clone(),
            gate: self.gate.clone(),
        }
    }
}

impl<A: Algorithm> Remote<A> {
    /// Returns a store that answers at the first poll.
    pub fn open() -> Self {
        Self::with_permits(tokio::sync::Semaphore::MAX_PERMITS)
    }

    /// Returns a store whose answers wait for `gate.add_permits(…)`.
    pub fn shut() -> Self {
        Self::with_permits(0)
    }

    fn with_permits(permits: usize) -> Self {
        Self {
            states: MapStore::default(),
            now: Arc::new(AtomicU64::new(1_800_000_000 * SECOND)),
            failing: Arc::default(),
            settled: Arc::default(),
            gate: Arc::new(tokio::sync::Semaphore::new(permits)),
        }
    }

    pub fn keys(&self) -> usize {
        self.states.0.lock().unwrap().len()
    }
}

impl<A: Algorithm> Clock for Remote<A> {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now.load(Ordering::SeqCst))
    }
}

type Later<T> = Pin<Box<dyn Future<Output = Result<T, store::StoreError>> + Send>>;

impl<A: Algorithm> Backend for Remote<A> {
    type Error = store::StoreError;
}

impl<A> Store<A> for Remote<A>
where
    A: Algorithm,
{
    type Answer = Later<Decisions>;
    type Done = Later<()>;

    fn acquire(&self, asks: &[Ask<'_, A>]) -> Check<Self::Answer> {
        let (store, asks) = (self.clone(), OwnedAsks::new(asks));
        Check::Pending(Box::pin(async move {
            store.gate.acquire().await.unwrap().forget();
            if store.failing.load(Ordering::SeqCst) {
                return Err(store::StoreError::timeout());
            }
            let asks = asks.to_vec();
            let transaction = Transaction::acquire(&asks, &store);
            store.states.transact(transaction)
        }))
    }

    fn look(&self, asks: &[Ask<'_, A>]) -> Check<Self::Answer> {
        Check::Ready(self.states.transact(Transaction::look(asks, self)))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, A>>) -> Check<Self::Done> {
        let count = settlements.len() as u64;
        self.settled.fetch_add(count, Ordering::SeqCst);
        let transaction = Transaction::settle(settlements, self);
        Check::Ready(self.states.transact(transaction).map(drop))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        Check::Ready(self.states.reset(policy, key))
    }
}

/// Responds in text, and puts the outcome into the request.
#[derive(Clone, Debug)]
pub struct InWords;

#[derive(Debug, Default)]
pub struct Call {
    pub key: Option<&'static str>,
    pub cost: u64,
    pub outcome: Option<Outcome>,
}

impl Call {
    pub fn of(key: &'static str) -> Self {
        Self {
            key: Some(key),
            cost: 1,
            outcome: None,
        }
    }
}

impl Respond<Call, String, Infallible> for InWords {
    type Annotation = u64;

    fn wants_outcome(&self) -> bool {
        true
    }

    fn admit(&self, call: &mut Call, outcome: Outcome) -> u64 {
        let remaining = outcome
            .nearest()
            .and_then(|(_, decision)| decision.remaining());
        call.outcome = Some(outcome);
        remaining.unwrap_or(u64::MAX)
    }

    fn annotate(remaining: u64, response: &mut String) {
        response.push_str(&format!(", {remaining} left"));
    }

    fn refuse(&self, _: Call, refusal: Refusal) -> Result<String, Infallible> {
        Ok(match refusal.cause() {
            Cause::Limit => format!("refused: {:?}", refusal.retry_after()),
            Cause::Undecided => "undecided".into(),
            Cause::MissingKey(missing) => format!("no key: {}", missing.detail()),
            _ => unreachable!("no other cause"),
        })
    }
}

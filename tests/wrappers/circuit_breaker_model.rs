//! Compares a circuit breaker with its documented table, implemented a second time, one for each
//! shard of a store.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
    time::Duration,
};

use proptest::prelude::*;
use tokio::sync::oneshot;
use tollgate::{
    Policy, Timestamp, TokenBucket,
    key::Key,
    store::{
        Backend, CircuitBreakerConfig, CircuitState, Store, StoreError, StoreExt,
        driver::{Ask, Check, Decisions, Never, Settlement},
    },
    time::{Clock, ManualClock},
};

use crate::fakes::Asked;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
enum Event {
    /// In thousandths of the first pause.
    Pass(u64),
    /// A call about the client of a shard.
    Begin(prop::sample::Index),
    /// Ends one of the calls in flight, by its index among them.
    End(prop::sample::Index, End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Answer,
    Fail,
    Contend,
    /// The server takes no writes.
    Unwritten,
    Drop,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let end = prop_oneof![
        3 => Just(End::Answer),
        6 => Just(End::Fail),
        1 => Just(End::Contend),
        1 => Just(End::Unwritten),
        2 => Just(End::Drop),
    ];
    let event = prop_oneof![
        3 => (1..3000_u64).prop_map(Event::Pass),
        6 => any::<prop::sample::Index>().prop_map(Event::Begin),
        6 => (any::<prop::sample::Index>(), end).prop_map(|(which, end)| Event::End(which, end)),
    ];
    prop::collection::vec(event, 1..200)
}

/// The table in the documentation, implemented a second time. It cannot predict the length of a
/// pause, so it accepts any answer within the documented range.
struct Model {
    failures: u32,
    in_a_row: u32,
    /// `None` while it is closed.
    opened: Option<(Timestamp, Duration)>,
    period: Duration,
    /// The instant at which the last probe in flight began.
    probing: Option<Timestamp>,
    /// The number of state changes so far, and of answers after failures.
    era: u32,
}

impl Model {
    /// Returns whether a call at this instant may be admitted, and whether it may be rejected.
    fn may(&self, now: Timestamp) -> (bool, bool) {
        match self.opened {
            None => (true, false),
            Some(_) if self.is_probing(now) => (false, true),
            Some((at, longest)) => {
                let since = now.saturating_since(at);
                (since >= longest / 2, since < longest)
            }
        }
    }

    /// Returns `true` while others wait for a probe: for the length of the next pause.
    fn is_probing(&self, now: Timestamp) -> bool {
        let since = self.probing.map(|began| now.saturating_since(began));
        since.is_some_and(|since| since < self.period)
    }

    fn open(&mut self, now: Timestamp) {
        self.opened = Some((now, self.period));
        self.period = (self.period * 2).min(LONGEST);
        self.probing = None;
        self.era += 1;
    }

    /// `begun` is the era in which the call began, and the failures in a row at that time.
    fn end(&mut self, begun: (u32, u32), end: End, now: Timestamp) {
        if begun.0 != self.era {
            return;
        }
        let is_answer = matches!(end, End::Answer | End::Contend | End::Unwritten);
        match (self.opened, end) {
            (None, _) if is_answer => {
                self.era += u32::from(self.in_a_row > 0);
                self.in_a_row = 0;
            }
            // It waited together with a call that has failed.
            (None, End::Fail) if begun.1 != self.in_a_row => {}
            (None, End::Fail) => {
                self.in_a_row += 1;
                if self.in_a_row == self.failures {
                    self.open(now);
                }
            }
            (None, _) => {}
            (Some(_), _) if is_answer => {
                (self.opened, self.in_a_row, self.probing) = (None, 0, None);
                self.period = FIRST;
                self.era += 1;
            }
            (Some(_), End::Fail) => self.open(now),
            (Some(_), _) => self.probing = None,
        }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Decisions, StoreError>> + Send>>;

/// A store whose calls end when the test ends them.
#[derive(Clone, Default)]
struct ByHand(Arc<Mutex<Vec<oneshot::Sender<End>>>>);

/// The clients and their shards.
const CLIENTS: [(&str, u32); 3] = [("a", 0), ("b", 5461), ("c", 10_923)];

impl Backend for ByHand {
    type Error = StoreError;

    fn shard(&self, _: &Policy, key: &Key) -> u32 {
        let found = CLIENTS
            .iter()
            .find(|(client, _)| Key::from(*client) == *key);
        found.map_or(0, |(_, shard)| *shard)
    }
}

impl Store<TokenBucket> for ByHand {
    type Answer = Answer;
    type Done = Never<Result<(), StoreError>>;

    fn acquire(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Answer> {
        let (sender, end) = oneshot::channel();
        self.0.lock().unwrap().push(sender);
        Check::Pending(Box::pin(async move {
            match end.await.unwrap() {
                End::Fail => Err(StoreError::timeout()),
                End::Contend => Err(StoreError::contended()),
                End::Unwritten => Err(StoreError::unwritten("full")),
                End::Answer | End::Drop => Ok(Decisions::default()),
            }
        }))
    }
    fn look(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Answer> {
        self.acquire(asks)
    }
    fn settle(&self, _: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
    fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
}

proptest! {
    #[test]
    fn it_follows_its_documented_table(
        failures in 1..5_u32,
        shards in 1..=CLIENTS.len(),
        seed: u64,
        events in events(),
    ) {
        let (clock, by_hand) = (ManualClock::default(), ByHand::default());
        let settings = CircuitBreakerConfig::new().failures(failures).open_for(FIRST, LONGEST).seed(seed);
        let store = by_hand.clone().circuit_breaker(settings.clock(clock.clone()));
        let model = || Model { failures, in_a_row: 0, opened: None, period: FIRST, probing: None, era: 0 };
        let mut models: Vec<_> = (0..shards).map(|_| model()).collect();
        let mut calls = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        let asked = Asked::of(TokenBucket::per_hour(1));
        for event in events {
            match event {
                Event::Pass(thousandths) => clock.advance(FIRST * thousandths as u32 / 1000),
                Event::Begin(which) => {
                    let shard = which.index(shards);
                    let model = &mut models[shard];
                    let (may_pass, may_not) = model.may(clock.now());
                    match store.acquire(&[asked.ask(CLIENTS[shard].0, 1)]) {
                        Check::Ready(result) => {
                            prop_assert!(may_not);
                            prop_assert!(result.unwrap_err().is_unavailable());
                        }
                        Check::Pending(call) => {
                            prop_assert!(may_pass);
                            model.probing = model.opened.map(|_| clock.now());
                            let end_it = by_hand.0.lock().unwrap().pop().unwrap();
                            calls.push((shard, (model.era, model.in_a_row), Box::pin(call), end_it));
                        }
                    }
                }
                Event::End(which, end) if !calls.is_empty() => {
                    let (shard, begun, mut call, end_it) = calls.swap_remove(which.index(calls.len()));
                    if end != End::Drop {
                        end_it.send(end).unwrap();
                        prop_assert!(call.as_mut().poll(&mut cx).is_ready());
                    }
                    drop(call);
                    models[shard].end(begun, end, clock.now());
                }
                Event::End(..) => {}
            }
            // The state of the worst shard.
            let state = store.state();
            let mut open = models.iter().filter(|model| model.opened.is_some()).peekable();
            prop_assert_eq!(state == CircuitState::Closed, open.peek().is_none());
            if open.peek().is_some() && open.all(|model| model.is_probing(clock.now())) {
                prop_assert_eq!(state, CircuitState::HalfOpen);
            }
        }
    }
}

//! Compares a store that remembers its refusals with a twin that receives every call.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use proptest::prelude::*;
use tollgate::{
    Decision, Policy, TokenBucket,
    algorithm::Algorithm,
    key::Key,
    store::{
        Backend, Store, StoreExt,
        driver::{Ask, Check, Decisions, Never, Settlement},
    },
    time::{Clock, ManualClock},
};

use crate::fakes::{Asked, at_once, only};

/// A plain map that forgets nothing. A `Local` may forget keys depending on its seed, if rules
/// change.
#[derive(Clone)]
struct Plain {
    states: Arc<Mutex<HashMap<Key, <TokenBucket as Algorithm>::State>>>,
    clock: ManualClock,
}

impl Plain {
    fn new(clock: &ManualClock) -> Self {
        Self {
            states: Arc::default(),
            clock: clock.clone(),
        }
    }

    /// Changes the state of a key. There is one policy.
    fn change<T>(
        &self,
        key: &Key,
        change: impl FnOnce(&mut Option<<TokenBucket as Algorithm>::State>) -> T,
    ) -> T {
        let mut states = self.states.lock().unwrap();
        let mut state = states.remove(key);
        let result = change(&mut state);
        states.extend(state.map(|state| (*key, state)));
        result
    }
}

impl Backend for Plain {
    type Error = Infallible;
}

impl Store<TokenBucket> for Plain {
    type Answer = Never<Result<Decisions, Infallible>>;
    type Done = Never<Result<(), Infallible>>;

    fn acquire(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        let step = |ask: &Ask<'_, TokenBucket>| {
            self.change(ask.key(), |state| {
                ask.rule()
                    .step(state, self.clock.now(), ask.cost())
                    .decision()
            })
        };
        Check::Ready(Ok(asks.iter().map(step).collect()))
    }
    fn look(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        let look = |ask: &Ask<'_, TokenBucket>| {
            self.change(ask.key(), |state| {
                ask.rule().look(state.as_ref(), self.clock.now())
            })
        };
        Check::Ready(Ok(asks.iter().map(look).collect()))
    }
    fn settle(&self, settlements: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
        for it in settlements {
            self.change(it.key(), |state| {
                it.rule()
                    .settle(state, it.charge(), self.clock.now(), it.actual());
            });
        }
        Check::Ready(Ok(()))
    }
    fn reset(&self, _: &Policy, key: &Key) -> Check<Self::Done> {
        self.change(key, |state| *state = None);
        Check::Ready(Ok(()))
    }
}

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Call { key: u64, units: u64, rule: usize },
    Settle(prop::sample::Index, u64),
    Reset(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..4_000_000_000_u64).prop_map(Event::Pass),
        16 => (0..6_u64, 1..9_u64, prop_oneof![5 => Just(0_usize), 1 => Just(1)])
            .prop_map(|(key, units, rule)| Event::Call { key, units, rule }),
        1 => (any::<prop::sample::Index>(), 0..9_u64).prop_map(|(which, actual)| Event::Settle(which, actual)),
        1 => (0..6_u64).prop_map(Event::Reset),
    ];
    prop::collection::vec(event, 1..150)
}

/// Asserts that both decisions agree, as far as a remembered refusal can.
fn assert_agree(
    here: &Decision,
    there: &Decision,
    capacity: u64,
    units: u64,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(here.verdict(), there.verdict());
    prop_assert_eq!(here.limit(), there.limit());
    prop_assert_eq!(here.at(), there.at());
    if here.is_admitted() {
        prop_assert_eq!(here, there);
    } else if units > capacity {
        prop_assert_eq!(here.retry_after(), None);
    } else {
        // A cost above the refused one gets the wait of the refused one.
        prop_assert!(here.retry_after().is_some_and(|wait| !wait.is_zero()));
        prop_assert!(here.retry_after() <= there.retry_after());
        // Recorded at the refusal, and at most the current value.
        prop_assert!(here.remaining() <= there.remaining());
        prop_assert_eq!(here.reset_after(), there.reset_after());
    }
    Ok(())
}

proptest! {
    /// Unless another process refunds units, remembered refusals change no decision: a twin that
    /// receives every call decides alike.
    #[test]
    fn no_call_is_refused_that_the_store_would_admit(
        capacity in prop_oneof![Just(0_usize), Just(2), Just(100)], events in events(),
    ) {
        let clock = ManualClock::default();
        let twin = Plain::new(&clock);
        let store = Plain::new(&clock).remember_refusals().capacity(capacity).clock(clock.clone());
        let rules = [Asked::of(TokenBucket::per_second(1).burst(6)), Asked::of(TokenBucket::per_second(2).burst(7))];
        let mut charges = Vec::new();
        for event in events {
            match event {
                Event::Pass(nanos) => clock.advance(Duration::from_nanos(nanos)),
                Event::Call { key, units, rule } => {
                    let asked = &rules[rule];
                    let here = only(at_once(store.acquire(&[asked.ask(key, units)])));
                    let there = only(at_once(twin.acquire(&[asked.ask(key, units)])));
                    assert_agree(&here, &there, asked.rule.capacity(), units)?;
                    charges.extend({ there }.take_charge().map(|_| (rule, key, there)));
                }
                Event::Settle(which, actual) if !charges.is_empty() => {
                    let (rule, key, decision) = charges.swap_remove(which.index(charges.len()));
                    at_once(store.settle(vec![rules[rule].settlement(key, &decision, actual)]));
                    at_once(twin.settle(vec![rules[rule].settlement(key, &decision, actual)]));
                }
                Event::Settle(..) => {}
                Event::Reset(key) => {
                    at_once(store.reset(&rules[0].policy, &key.into()));
                    at_once(twin.reset(&rules[0].policy, &key.into()));
                }
            }
            prop_assert!(store.len() <= capacity);
        }
    }

    /// For an equal cost, the remembered refusal is exact to the nanosecond.
    #[test]
    fn an_equal_cost_gets_the_answer_of_the_store(
        (spent, units) in (1..=6_u64).prop_flat_map(|spent| (Just(spent), 7 - spent..=6)),
        steps in prop::collection::vec(0..800_000_000_u64, 1..20),
    ) {
        let clock = ManualClock::default();
        let plain = Plain::new(&clock);
        let store = plain.clone().remember_refusals().clock(clock.clone());
        let asked = Asked::of(TokenBucket::per_second(3).burst(6));
        at_once(store.acquire(&[asked.ask("a", spent)]));
        for step in steps {
            let before = only(at_once(plain.look(&[asked.ask("a", 1)])));
            let here = only(at_once(store.acquire(&[asked.ask("a", units)])));
            if here.is_admitted() {
                break;
            }
            let there = only(at_once(plain.acquire(&[asked.ask("a", units)])));
            prop_assert_eq!(here.retry_after(), there.retry_after());
            prop_assert_eq!(here.reset_after(), before.reset_after());
            clock.advance(Duration::from_nanos(step));
        }
        prop_assert!(store.remembered() >= 1);
    }
}

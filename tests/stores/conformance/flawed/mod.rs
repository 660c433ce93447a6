//! A plain store that answers asynchronously, and can be broken in one way at a time.

mod decide;
mod flaw;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::yield_now;
use tollgate::{
    AnyRule, Charge, Cost, Decision, Policy, Timestamp,
    algorithm::{Algorithm, StateKind},
    future::{BoxFuture, SyncFuture},
    key::Key,
    store::{
        Backend, Store, StoreError,
        driver::{
            Ask, Batch, Check, Decisions, Delta, FleetStore, NodeCounts, Pulled, Renewed,
            Settlement,
        },
    },
    time::{Clock, ManualClock},
};

type AnyState = <AnyRule as Algorithm>::State;

pub(super) use self::flaw::Flaw;

/// The policy, the key, and the state kind.
type Entry = (String, String, StateKind);

/// The stored state of a key.
#[derive(Clone)]
struct Known {
    state: AnyState,
    written_at: Timestamp,
    by: Option<AnyRule>,
}

#[derive(Clone)]
pub(super) struct Flawed {
    flaw: Flaw,
    states: Arc<Mutex<HashMap<Entry, Known>>>,
    /// Held during a decision.
    turn: Arc<Mutex<()>>,
    clock: ManualClock,
    calls: Arc<AtomicU64>,
    blocked: Arc<AtomicBool>,
    /// The nodes of each policy and period.
    counted: Arc<Mutex<HashMap<(String, u64), u64>>>,
    /// The last number of each key and node.
    synced: Arc<Mutex<HashMap<(Entry, u64), u64>>>,
    /// The keys that were admitted once too often.
    favoured: Arc<Mutex<HashSet<Entry>>>,
    /// The last refusal of each key, and its end.
    refused: Arc<Mutex<HashMap<Entry, (Decision, Timestamp)>>>,
    pub(super) is_faulty: Arc<AtomicBool>,
    was_faulty: Arc<AtomicBool>,
}

struct Owned {
    policy: Policy,
    rule: AnyRule,
    key: Key,
    cost: Cost,
}

impl Flawed {
    pub(super) fn new(clock: &ManualClock, flaw: Flaw) -> Self {
        Self {
            flaw,
            states: Arc::default(),
            turn: Arc::default(),
            clock: clock.clone(),
            calls: Arc::default(),
            blocked: Arc::default(),
            counted: Arc::default(),
            synced: Arc::default(),
            favoured: Arc::default(),
            refused: Arc::default(),
            is_faulty: Arc::default(),
            was_faulty: Arc::default(),
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap()
    }

    fn now(&self) -> Timestamp {
        match self.flaw {
            Flaw::TimeStands => Timestamp::from_nanos(1_767_225_600_000_000_000),
            _ => self.clock.now(),
        }
    }

    fn place(&self, policy: &Policy, key: &Key, rule: &AnyRule) -> Entry {
        let (policy, key) = self.names(policy, key);
        let kind = match self.flaw {
            Flaw::OneKindAtATime => StateKind::default(),
            _ => rule.state_kind(),
        };
        (policy, key, kind)
    }

    fn names(&self, policy: &Policy, key: &Key) -> (String, String) {
        // `Key(text 7)`: the kind and the content.
        let content = format!("{:?}", key.labelled());
        let content = match self.flaw {
            Flaw::MixesKinds => content.split_once(' ').map_or("", |(_, rest)| rest).into(),
            Flaw::CutsKeys => content.chars().take(40).collect(),
            _ => content,
        };
        match self.flaw {
            Flaw::MixesPolicies => (String::new(), content),
            Flaw::JoinsNames => {
                let content = content.trim_start_matches("Key(text ");
                (String::new(), format!("{policy}:{content}"))
            }
            Flaw::TellsUnitsApart => (format!("{policy} {:?}", policy.unit()), content),
            _ => (policy.name().into(), content),
        }
    }

    fn own(&self, rule: &AnyRule, key: &Key) -> AnyRule {
        let own = rule
            .for_key(&|| key.digest())
            .filter(|_| !self.has(Flaw::IgnoresTheKeysOwnRule));
        own.unwrap_or_else(|| rule.clone())
    }

    fn recall(&self, place: &Entry, rule: &AnyRule) -> Option<AnyState> {
        let known = self.states.lock().unwrap().get(place).cloned()?;
        let now = self.now();
        let is_lost = match self.flaw {
            Flaw::ForgetsTooEarly => {
                let left = rule.forgettable_at(&known.state).saturating_since(now);
                (1..3_000_000).contains(&left.as_nanos())
            }
            Flaw::MintsAsTheClockStepsBack => now < known.written_at,
            Flaw::MintsOnChange => known.by.as_ref() != Some(rule),
            Flaw::OneKindAtATime => known
                .by
                .is_some_and(|by| by.state_kind() != rule.state_kind()),
            _ => false,
        };
        (!is_lost).then_some(known.state)
    }

    fn keep(&self, place: Entry, state: Option<AnyState>, by: &AnyRule) {
        let mut states = self.states.lock().unwrap();
        match state {
            Some(state) => states.insert(
                place,
                Known {
                    state,
                    written_at: self.now(),
                    by: Some(by.clone()),
                },
            ),
            None => states.remove(&place),
        };
    }

    fn correct(
        &self,
        place: Entry,
        rule: &AnyRule,
        mut charge: Charge,
        actual: u64,
        mut state: Option<AnyState>,
    ) {
        match self.flaw {
            Flaw::RefundMints => charge.cost *= 2,
            Flaw::RefundOfTheForgottenMints if state.is_none() && actual == 0 => {
                charge.cost += 1;
                rule.settle(&mut state, &charge, self.now(), charge.cost + 1);
            }
            _ => {}
        }
        rule.settle(&mut state, &charge, self.now(), actual);
        self.keep(place, state, rule);
    }

    async fn move_charge(&self, place: Entry, rule: &AnyRule, mut charge: Charge, actual: u64) {
        let delay = charge.delay.unwrap_or_default();
        // A charge at the first instant lies nowhere.
        let nowhere = |charge: &Charge| {
            let to = charge.at.as_nanos() + delay.as_nanos() as u64;
            let charge = Charge::new(Timestamp::default(), charge.cost);
            charge.with_delay(Some(Duration::from_nanos(to)))
        };
        match self.flaw {
            Flaw::RenewsNothing => return,
            Flaw::RenewsTwice => charge = nowhere(&charge),
            Flaw::RenewsForGood => {
                charge = charge.with_delay(Some(delay + Duration::from_secs(1 << 30)));
            }
            Flaw::RenewsInTwoSteps => {
                let again = nowhere(&charge);
                {
                    let _turn = self.turn();
                    let state = self.recall(&place, rule);
                    self.correct(place.clone(), rule, charge, 0, state);
                }
                // Tasks that take turns would all come before the first one, or after it.
                yield_now().await;
                yield_now().await;
                charge = again;
            }
            _ => {}
        }
        let _turn = self.turn();
        let state = self.recall(&place, rule);
        self.correct(place, rule, charge, actual, state);
    }

    /// Does what this store does when a call is dropped early.
    fn dropped(&self, asks: &[Owned]) {
        match self.flaw {
            Flaw::ChargesDroppedTwice => {
                self.at_once(asks);
                self.at_once(asks);
            }
            Flaw::DroppedBlocks => self.blocked.store(true, Ordering::SeqCst),
            _ => {}
        }
    }
}

/// Notifies the store when a call is dropped early.
struct Guard(Option<(Flawed, Vec<Owned>)>);

impl Guard {
    fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((store, asks)) = self.0.take() {
            store.dropped(&asks);
        }
    }
}

fn owned(asks: &[Ask<'_, AnyRule>]) -> Vec<Owned> {
    let owned = |ask: &Ask<'_, AnyRule>| Owned {
        policy: ask.policy().clone(),
        rule: ask.rule().clone(),
        key: *ask.key(),
        cost: ask.cost(),
    };
    asks.iter().map(owned).collect()
}

impl Backend for Flawed {
    type Error = StoreError;
}

impl Store<AnyRule> for Flawed {
    type Answer = BoxFuture<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    fn acquire(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        let (store, asks, again) = (self.clone(), owned(asks), owned(asks));
        let mut guard = Guard(Some((self.clone(), again)));
        Check::Pending(Box::pin(async move {
            let answer = store.decide(asks).await;
            guard.ended();
            answer
        }))
    }

    fn look(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        let was_faulty = self.was_faulty.load(Ordering::SeqCst) && self.has(Flaw::StaysFaulty);
        if self.is_faulty.load(Ordering::SeqCst) || was_faulty {
            return Check::Ready(Err(StoreError::unavailable("a fault")));
        }
        let look = |ask: Owned| {
            let rule = self.own(&ask.rule, &ask.key);
            let place = self.place(&ask.policy, &ask.key, &rule);
            let mut state = self.recall(&place, &rule);
            if self.has(Flaw::LookSpends) {
                rule.step(&mut state, self.now(), Cost::ONE);
                self.keep(place, state.clone(), &rule);
            }
            if self.has(Flaw::LookIsStale) {
                state = None;
            }
            self.report(rule.look(state.as_ref(), self.now()))
        };
        Check::Ready(Ok(owned(asks).into_iter().map(look).collect()))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, AnyRule>>) -> Check<Self::Done> {
        if self.has(Flaw::LosesSettlements) {
            return Check::Ready(Ok(()));
        }
        let store = self.clone();
        let settlements: Vec<_> = settlements
            .into_iter()
            .map(|it| {
                let rule = self.own(it.rule(), it.key());
                let (place, actual) = (self.place(it.policy(), it.key(), &rule), it.actual());
                (place, rule, it.into_charge(), actual)
            })
            .collect();
        Check::Pending(Box::pin(async move {
            for (place, rule, charge, actual) in settlements {
                if store.has(Flaw::LosesRefunds) {
                    let stale = store.recall(&place, &rule);
                    yield_now().await;
                    store.correct(place, &rule, charge, actual, stale);
                } else {
                    let _turn = store.turn();
                    let state = store.recall(&place, &rule);
                    store.correct(place, &rule, charge, actual, state);
                }
            }
            Ok(())
        }))
    }

    fn renew(&self, renewal: Settlement<'_, AnyRule>) -> BoxFuture<Renewed> {
        let (store, rule, actual) = (self.clone(), renewal.rule().clone(), renewal.actual());
        let place = self.place(renewal.policy(), renewal.key(), &rule);
        let charge = renewal.into_charge();
        Box::pin(async move {
            if store.is_faulty.load(Ordering::SeqCst) {
                return match store.flaw {
                    Flaw::ClaimsLostRenewals => Renewed::Made,
                    _ => Renewed::Unknown,
                };
            }
            yield_now().await;
            store.move_charge(place, &rule, charge, actual).await;
            match store.flaw {
                Flaw::DeniesRenewals => Renewed::NotMade,
                _ => Renewed::Made,
            }
        })
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let names = self.names(policy, key);
        let mut states = self.states.lock().unwrap();
        let is_of = |place: &Entry| (&place.0, &place.1) == (&names.0, &names.1);
        match self.flaw {
            Flaw::ResetDoesNothing => {}
            Flaw::ResetsAllPolicies => states.retain(|(_, other, _), _| *other != names.1),
            Flaw::ResetsOneKind => {
                let of_it = states.iter().filter(|(place, _)| is_of(place));
                let last = of_it.max_by_key(|(place, known)| (known.written_at, place.2));
                if let Some(last) = last.map(|(place, _)| place.clone()) {
                    states.remove(&last);
                }
            }
            _ => states.retain(|place, _| !is_of(place)),
        }
        Check::Ready(Ok(()))
    }

    fn fleet(&self) -> Option<&dyn FleetStore<AnyRule, Error = Self::Error>> {
        Some(self)
    }
}

impl FleetStore<AnyRule> for Flawed {
    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<BoxFuture<Result<NodeCounts, StoreError>>> {
        let store = self.clone();
        let under = |period| (policy.name().to_owned(), period);
        let (current, previous) = (under(period), under(period - 1));
        Some(Box::pin(async move {
            let read =
                |counted: &HashMap<_, u64>, under: &_| counted.get(under).copied().unwrap_or(0);
            let found = read(&store.counted.lock().unwrap(), &current);
            if store.has(Flaw::LosesNodes) {
                yield_now().await;
            }
            let mut counted = store.counted.lock().unwrap();
            counted.insert(current.clone(), found + 1);
            Ok(NodeCounts {
                current: found + 1,
                previous: read(&counted, &previous),
            })
        }))
    }

    fn sync(&self, deltas: &[Delta<'_, AnyRule>]) -> Option<SyncFuture<AnyRule, StoreError>> {
        let deltas: Vec<_> = deltas
            .iter()
            .map(|it| {
                let rule = self.own(it.rule(), it.key());
                let place = self.place(it.policy(), it.key(), &rule);
                (place, rule, it.batch(), it.age(), it.units())
            })
            .collect();
        let store = self.clone();
        Some(Box::pin(async move {
            let mut all = Vec::new();
            for (place, rule, batch, age, units) in deltas {
                let at = store.now().saturating_sub(age);
                let Batch { node, number } = batch;
                let name = (place.clone(), node);
                let known = store.synced.lock().unwrap().get(&name).copied();
                if store.has(Flaw::RacesDeltas) {
                    yield_now().await;
                }
                let is_new =
                    known.is_none_or(|known| known < number) || store.has(Flaw::RepeatsDeltas);
                let before = store.recall(&place, &rule);
                if units > 0 && is_new {
                    store.synced.lock().unwrap().insert(name, number);
                    let as_of = match store.flaw {
                        Flaw::DeltasComeNow => store.now(),
                        _ => at,
                    };
                    let mut state = before.clone();
                    rule.settle(&mut state, &Charge::new(at, 0), as_of, units);
                    store.keep(place.clone(), state, &rule);
                }
                all.push(Ok(Pulled {
                    at: store.now(),
                    state: match store.flaw {
                        Flaw::DeltasAnswerEarly => before,
                        _ => store.recall(&place, &rule),
                    },
                }));
            }
            if store.has(Flaw::DeltasAnswerInReverse) {
                all.reverse();
            }
            Ok(all)
        }))
    }
}

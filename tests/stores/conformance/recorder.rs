//! A store that writes down what it is asked, and random calls of it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use support::Random;
use tollgate::{
    AnyRule, Cost, Policy,
    algorithm::Algorithm,
    key::Key,
    store::{
        Backend, Store, StoreError,
        driver::{Ask, Check, Settlement, Transactional},
    },
    time::ManualClock,
};

use super::rules::{RULES, rule};
use crate::common::map_store::MapStore;

pub(crate) type States<R> = Arc<Transactional<MapStore<R>>>;

pub(crate) fn states<R: Algorithm>(clock: &ManualClock) -> States<R> {
    Arc::new(Transactional::with_clock(
        MapStore::default(),
        clock.clone(),
    ))
}

/// Writes down what it is asked, and passes it on.
#[derive(Clone)]
pub(crate) struct Recorder {
    states: States<AnyRule>,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self {
            states: states(clock),
            asked: Arc::default(),
        }
    }

    fn note(&self, what: &str, asks: &[Ask<'_, AnyRule>]) {
        let each = asks.iter().map(|ask| {
            let (policy, key) = (ask.policy().name(), ask.key().digest());
            format!("{policy} {} {key} {}", ask.rule(), ask.cost().get())
        });
        let each: Vec<_> = each.collect();
        self.push(format!("{what} {each:?}"));
    }

    fn push(&self, line: String) {
        self.asked.lock().unwrap().push(line);
    }
}

impl Backend for Recorder {
    type Error = StoreError;
}

impl Store<AnyRule> for Recorder {
    type Answer = <States<AnyRule> as Store<AnyRule>>::Answer;
    type Done = <States<AnyRule> as Store<AnyRule>>::Done;

    fn acquire(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        self.note("acquire", asks);
        self.states.acquire(asks)
    }

    fn look(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        self.note("look", asks);
        self.states.look(asks)
    }

    fn settle(&self, settlements: Vec<Settlement<'_, AnyRule>>) -> Check<Self::Done> {
        self.push(format!("settle {settlements:?}"));
        self.states.settle(settlements)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.push(format!("reset {} {}", policy.name(), key.digest()));
        self.states.reset(policy, key)
    }

    fn fits(&self, rule: &AnyRule) -> Result<(), tollgate::Error> {
        // Not recorded: no server is asked.
        self.states.fits(rule)
    }
}

/// Makes random calls. Returns the answers, and the charges of two of three admissions are settled.
pub(crate) async fn calls<S>(store: &S, clock: &ManualClock, seed: u64) -> Vec<String>
where
    S: Store<AnyRule, Error = StoreError>,
{
    let rules = RULES.map(rule);
    let policies = ["one", "other"].map(Policy::new);
    let mut random = Random::new(seed);
    let mut answers = Vec::new();
    for _ in 0..200 {
        clock.advance(Duration::from_millis(random.below(400_000)));
        let asks: Vec<_> = (0..=random.below(2))
            .map(|_| {
                let policy = &policies[random.below(2) as usize];
                let rule = &rules[random.below(rules.len() as u64) as usize];
                let cost = Cost::new(random.below(5) + 1).unwrap();
                Ask::new(policy, rule, random.below(3).into(), cost)
            })
            .collect();
        let (policy, key) = (asks[0].policy(), *asks[0].key());
        match random.below(8) {
            0 => answers.push(format!("{:?}", store.look(&asks).await)),
            1 => answers.push(format!("{:?}", store.reset(policy, &key).await)),
            2 => answers.push(format!("{:?}", store.fits(asks[0].rule()))),
            _ => {
                let decisions = store.acquire(&asks).await.unwrap();
                answers.push(format!("{decisions:?}"));
                let mut first = decisions.as_slice()[0];
                let actual = random.below(7);
                if actual < 4
                    && let Some(charge) = first.take_charge()
                {
                    let rule = asks[0].rule();
                    let settlement = Settlement::new(policy, rule, key, charge, actual).unwrap();
                    answers.push(format!("{:?}", store.settle(vec![settlement]).await));
                }
            }
        }
    }
    answers
}

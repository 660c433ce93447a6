//! Leases: without a hold they are the wrapped store, and with one they keep the laws that do not tell how much one node admits.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use support::Random;
use tollgate::{
    AnyRule, Cost, Policy,
    algorithm::Algorithm,
    key::Key,
    store::{Ask, Backend, Check, Error, LeaseConfig, Settlement, Store, StoreExt, Transactional},
    testing::conformance::{Law, Suite},
    time::ManualClock,
};

use super::{
    common::MapStore,
    rules::{RULES, rule},
    turns::InTurns,
};

type States<R> = Arc<Transactional<MapStore<R>, ManualClock>>;

fn states<R: Algorithm>(clock: &ManualClock) -> States<R> {
    Arc::new(Transactional::with_clock(
        MapStore::default(),
        clock.clone(),
    ))
}

fn off(clock: &ManualClock) -> LeaseConfig<ManualClock> {
    let config = LeaseConfig::new().hold(Duration::ZERO);
    config.clock(clock.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_of_zero_keeps_all_laws() {
    let clock = ManualClock::default();
    let store = states::<AnyRule>(&clock).leased(off(&clock));
    let suite = Suite::new(store.clone())
        .clock(clock)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn);
    let report = suite.run().await.unwrap();
    assert_eq!(report.left_out(), [Law::Fault]);
    assert_eq!(report.kept().len(), Law::ALL.len() - 1);
    assert_eq!(store.stats(), Default::default());
}

/// A node admits less than the rule, because the store runs a stricter one and a node pauses, and what remains is an estimate. So the
/// laws that compare each decision with that of the rule do not apply. Those that count do: never a unit too many, on any rule that can
/// be leased, also with two nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_hold_no_law_finds_a_unit_too_many() {
    for rules in [
        ["token-bucket 100/1s", "token-bucket 70/1m burst=40"],
        ["fixed-window 50/1s", "fixed-window 20/1d"],
        ["sliding-window 40/1s slices=4", "sliding-window 20/1d"],
        ["sliding-log 30/1s", "sliding-log 60/1m"],
        [
            "token-bucket 100/1s & fixed-window 90/1m",
            "fixed-window 20/1d",
        ],
    ] {
        for nodes in 1..=2 {
            let clock = ManualClock::default();
            let states = states::<AnyRule>(&clock);
            let hold = LeaseConfig::new().hold(Duration::from_millis(50)).seed(1);
            let node = || states.clone().leased(hold.clone().clock(clock.clone()));
            let first = node();
            let second = if nodes == 1 { first.clone() } else { node() };
            let rules = rules.map(|rule| rule.parse::<AnyRule>().unwrap());
            let suite = Suite::with_rules(InTurns::new(first.clone(), second), rules)
                .clock(clock.clone())
                .sleep(tokio::time::sleep)
                .spawn(tokio::spawn)
                // As much too little as there is, and nothing too much.
                .tolerance(100, 0);
            // A reset drops the leases of one node, and others may still spend theirs.
            let suite = if nodes == 1 {
                suite
            } else {
                suite.without(Law::Reset)
            };
            let report = suite.run().await.unwrap();
            for law in [Law::Limit, Law::Never, Law::Keys, Law::Race, Law::Cancel] {
                assert!(report.kept().contains(&law), "{law:?}: {report}");
            }
            assert_eq!(report.kept().contains(&Law::Reset), nodes == 1);
            let stats = first.stats();
            assert!(stats.from_leases > 20, "{stats:?}");
        }
    }
}

/// Writes down what it is asked, and passes it on.
#[derive(Clone)]
struct Recorder {
    states: States<AnyRule>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn new(clock: &ManualClock) -> Self {
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
    type Error = Error;
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
        self.push(format!("fits {rule}"));
        self.states.fits(rule)
    }
}

/// Makes random calls. Returns the answers, and the charges of two of three admissions are settled.
async fn calls<S>(store: &S, clock: &ManualClock, seed: u64) -> Vec<String>
where
    S: Store<AnyRule, Error = Error>,
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

/// Without a hold, the wrapped store is asked the same as without the wrapper, and the answers are its own.
#[tokio::test]
async fn a_hold_of_zero_is_the_wrapped_store_call_for_call() {
    for seed in 0..50 {
        let clocks = [(); 2].map(|()| ManualClock::default());
        let [bare, wrapped] = clocks.each_ref().map(Recorder::new);
        let leased = wrapped.clone().leased(off(&clocks[1]));
        let expected = calls(&bare, &clocks[0], seed).await;
        assert_eq!(calls(&leased, &clocks[1], seed).await, expected);
        let asked = |store: &Recorder| store.asked.lock().unwrap().clone();
        assert_eq!(asked(&wrapped), asked(&bare), "seed {seed}");
        assert!(asked(&bare).len() >= 200);
    }
}

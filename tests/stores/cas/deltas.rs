//! Deltas of nodes that decide by themselves, on a store that loses races and answers.

use std::time::Duration;

use support::{
    Random,
    value::{states, value_of},
};
use tollgate::{
    AnyRule, Policy,
    algorithm::Algorithm,
    key::Key,
    store::{
        Store, StoreError, StoreExt,
        driver::{
            Ask, Batch, CasStore, CasStoreBuilder, CompareAndSwap, Delta, FleetStore, Loaded, Swap,
            Swapped,
        },
    },
    time::ManualClock,
};

use super::memory::{Memory, Ways, driver};

const KEYS: u64 = 5;
const NODES: u64 = 4;
/// Far more than all nodes send.
const RULES: [&str; 3] = [
    "token-bucket 1000000/1d",
    "sliding-window 1000000/1h slices=4",
    "token-bucket 1000000/1d & fixed-window 900000/1h",
];

type Swaps = CasStore<Memory, AnyRule>;

fn key(n: u64) -> Key {
    Key::from(format!("k{n}").as_str())
}

/// Sends deltas until they are answered, as a node does that cannot know whether they arrived.
async fn send(store: &Swaps, deltas: &[Delta<'_, AnyRule>]) {
    for _ in 0..1000 {
        let answer = store.sync(deltas).unwrap().await;
        if answer.is_ok_and(|each| each.iter().all(Result::is_ok)) {
            return;
        }
    }
    panic!("a store that fails one time in six never answers");
}

/// Adds units to all keys, in numbered deltas that it repeats at random. Returns how many units it
/// sent to each key.
async fn node(store: Swaps, rule: AnyRule, node: u64) -> Vec<u64> {
    let (api, mut random) = (Policy::new("api"), Random::new(node));
    let mut sums = vec![0; KEYS as usize];
    let mut sent: Vec<(u64, u64, u64)> = Vec::new();
    for number in 1..=60 {
        let (n, units) = (random.below(KEYS), random.below(20));
        sums[n as usize] += units;
        sent.push((n, number, units));
        // The new one, beside one of any age.
        let old = sent[random.below(sent.len() as u64) as usize];
        let delta = |(n, number, units)| {
            Delta::new(
                &api,
                &rule,
                key(n),
                Batch { node, number },
                (Duration::ZERO, units),
            )
        };
        send(&store, &[delta((n, number, units)), delta(old)]).await;
    }
    sums
}

async fn spent(store: &Swaps, rule: &AnyRule, n: u64) -> u64 {
    let api = Policy::new("api");
    let ask = Ask::new(&api, rule, key(n), tollgate::Cost::ONE);
    for _ in 0..1000 {
        let looked = match store.look(&[ask]) {
            tollgate::store::driver::Check::Ready(looked) => looked,
            tollgate::store::driver::Check::Pending(looked) => looked.await,
        };
        if let Ok(looked) = looked {
            let decision = looked.as_slice()[0];
            return decision.limit().unwrap() - decision.remaining().unwrap();
        }
    }
    panic!("a store that fails one time in six never answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_unit_is_added_once_however_often_it_is_sent() {
    for (seed, rule) in RULES.iter().enumerate() {
        let rule: AnyRule = rule.parse().unwrap();
        let clock = ManualClock::default();
        let ways = Ways {
            versions: true,
            found: true,
            gives_way: true,
            loses: 5,
            fails: 6,
            ..Ways::default()
        };
        let memory = Memory::new(clock.clone(), ways);
        let nodes: Vec<_> = (0..NODES)
            .map(|n| {
                let store: Swaps = driver(memory.node(seed as u64 * NODES + n));
                tokio::spawn(node(store, rule.clone(), n))
            })
            .collect();
        let mut sums = vec![0; KEYS as usize];
        for node in nodes {
            let sent = node.await.unwrap();
            sums.iter_mut()
                .zip(sent)
                .for_each(|(sum, sent)| *sum += sent);
        }
        let store: Swaps = driver(memory);
        for (n, sum) in (0..).zip(sums) {
            assert_eq!(spent(&store, &rule, n).await, sum, "{rule}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_come_and_go_fill_no_value() {
    let rule: AnyRule = RULES[0].parse().unwrap();
    let clock = ManualClock::default();
    let store: Swaps = driver(Memory::new(clock.clone(), Ways::default()));
    let api = Policy::new("api");
    for node in 0..1000 {
        // As large as a node's number can be.
        let batch = Batch {
            node: (1 << 53) - 1 - node,
            number: (1 << 53) - 1,
        };
        let delta = Delta::new(&api, &rule, key(0), batch, (Duration::ZERO, 1));
        let synced = store.sync(&[delta]).unwrap().await.unwrap();
        assert!(synced[0].is_ok(), "{synced:?}");
    }
    let [name] = &store.data().keys()[..] else {
        panic!("one key has one value");
    };
    let (_, value, _) = store.data().get(name).unwrap();
    assert!(value.len() < 2200, "{} bytes", value.len());
    assert_eq!(spent(&store, &rule, 0).await, 1000);
}

/// A value that a newer program wrote is not touched, and fails the deltas of its key alone.
#[tokio::test(start_paused = true)]
async fn a_newer_value_is_an_error_of_its_key() {
    let rule: AnyRule = RULES[0].parse().unwrap();
    let clock = ManualClock::default();
    let store: Swaps = driver(Memory::new(clock.clone(), Ways::default()));
    let api = Policy::new("api");
    let delta = |n, number| {
        let batch = Batch { node: 1, number };
        Delta::new(&api, &rule, key(n), batch, (Duration::ZERO, 1))
    };
    let synced = store.sync(&[delta(0, 1)]).unwrap().await.unwrap();
    assert!(synced[0].is_ok(), "{synced:?}");
    let name = store.data().keys().remove(0);
    let (_, mut value, _) = store.data().get(&name).unwrap();
    value[0] += 1;
    store.data().put(&name, &value);
    let deltas = [delta(1, 1), delta(0, 2), delta(2, 1)];
    let synced = store.sync(&deltas).unwrap().await.unwrap();
    let [first, newer, last] = &synced[..] else {
        panic!("each delta has a result: {synced:?}");
    };
    assert!(first.is_ok() && last.is_ok(), "{synced:?}");
    let error = newer.as_ref().unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert_eq!(store.data().get(&name).unwrap().1, value);
    for n in [1, 2] {
        assert_eq!(spent(&store, &rule, n).await, 1);
    }
}

/// A state that a newer program wrote fails the deltas of its kind alone.
#[tokio::test(start_paused = true)]
async fn a_newer_state_is_an_error_of_its_kind() {
    let rules = [RULES[0], RULES[1]].map(|rule| rule.parse::<AnyRule>().unwrap());
    let clock = ManualClock::default();
    let store: Swaps = driver(Memory::new(clock.clone(), Ways::default()));
    let api = Policy::new("api");
    let delta = |rule, node, number| {
        let batch = Batch { node, number };
        Delta::new(&api, rule, key(0), batch, (Duration::ZERO, 1))
    };
    let synced = store
        .sync(&[delta(&rules[0], 1, 1)])
        .unwrap()
        .await
        .unwrap();
    assert!(synced[0].is_ok(), "{synced:?}");
    let name = store.data().keys().remove(0);
    let (_, value, _) = store.data().get(&name).unwrap();
    let kind = rules[0].state_kind().as_u64();
    let mut all = states(&value);
    let state = all.iter_mut().find(|state| state.kind == kind).unwrap();
    // A token bucket has two versions.
    state.bytes[0] += 2;
    store.data().put(&name, &value_of(&all));
    let deltas = [delta(&rules[0], 1, 2), delta(&rules[1], 2, 1)];
    let synced = store.sync(&deltas).unwrap().await.unwrap();
    let error = synced[0].as_ref().unwrap_err();
    assert!(error.is_unsupported() && synced[1].is_ok(), "{synced:?}");
    assert_eq!(spent(&store, &rules[1], 0).await, 1);
}

/// A store in which other processes always win the race for one key.
struct OneIsContended {
    memory: Memory,
    key: String,
}

impl CompareAndSwap for OneIsContended {
    type Version = u64;

    async fn load(&self, key: &[u8]) -> Result<Loaded<u64>, StoreError> {
        self.memory.load(key).await
    }

    async fn swap(&self, key: &[u8], swap: Swap<'_, u64>) -> Result<Swapped<u64>, StoreError> {
        if String::from_utf8_lossy(key).contains(&self.key) {
            return self.memory.load(key).await.map(|_| Swapped::Lost(None));
        }
        self.memory.swap(key, swap).await
    }
}

/// A contended key fails alone, and early enough that the others are answered within a usual
/// deadline.
#[tokio::test(start_paused = true)]
async fn a_contended_key_fails_alone() {
    let rule: AnyRule = RULES[0].parse().unwrap();
    let ways = Ways {
        delay: Some(Duration::from_millis(2)),
        ..Ways::default()
    };
    let clock = ManualClock::default();
    let data = OneIsContended {
        memory: Memory::new(clock.clone(), ways),
        key: "busy".to_owned(),
    };
    let store: CasStore<_, AnyRule> = CasStoreBuilder::new(data).clock(clock).seed(1).build();
    let api = Policy::new("api");
    let named = |n: u64| match n {
        100 => Key::from("busy").labelled(),
        n => key(n),
    };
    let batch = Batch { node: 1, number: 1 };
    let deltas: Vec<_> = (0..256)
        .map(|n| Delta::new(&api, &rule, named(n), batch, (Duration::ZERO, 1)))
        .collect();
    let in_time = store.clone().timeout(Duration::from_millis(100));
    let synced = in_time.sync(&deltas).unwrap().await.unwrap();
    for (n, result) in synced.iter().enumerate() {
        match result {
            Ok(_) => assert_ne!(n, 100),
            Err(error) => assert!(n == 100 && error.is_contended(), "{n}: {error}"),
        }
    }
    assert_eq!((synced.len(), store.stats().contended), (256, 1));
}

/// An open circuit, for one, asks for a synchronisation that it never awaits.
#[tokio::test]
async fn a_synchronisation_that_is_dropped_begins_nothing() {
    let memory = Memory::new(ManualClock::default(), Ways::default());
    let store: Swaps = driver(memory.node(1));
    let (policy, rule) = (Policy::new("api"), RULES[0].parse().unwrap());
    let batch = Batch { node: 1, number: 1 };
    let delta = |n| Delta::new(&policy, &rule, key(n), batch, (Duration::ZERO, 1));
    let deltas: Vec<_> = (0..KEYS).map(delta).collect();
    drop(store.sync(&deltas).unwrap());
    tokio::task::yield_now().await;
    assert_eq!(store.stats().loads, 0);
    send(&store, &deltas).await;
    assert_eq!(store.stats().loads, KEYS);
}

//! Deltas of nodes that decide by themselves, on a store that loses races and answers.

use std::time::Duration;

use support::Random;
use tollgate::{
    AnyRule, Policy,
    key::Key,
    store::{Ask, Batch, Delta, Optimistic, Store},
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

type Swaps = Optimistic<Memory, AnyRule, ManualClock>;

fn key(n: u64) -> Key {
    Key::from(format!("k{n}").as_str())
}

/// Sends deltas until they are answered, as a node does that cannot know whether they arrived.
async fn send(store: &Swaps, deltas: &[Delta<'_, AnyRule>]) {
    for _ in 0..1000 {
        if store.sync(deltas).unwrap().await.is_ok() {
            return;
        }
    }
    panic!("a store that fails one time in six never answers");
}

/// Adds units to all keys, in numbered deltas that it repeats at random. Returns how many units it sent to each key.
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
            tollgate::store::Check::Ready(looked) => looked,
            tollgate::store::Check::Pending(looked) => looked.await,
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
        store.sync(&[delta]).unwrap().await.unwrap();
    }
    let [name] = &store.data().keys()[..] else {
        panic!("one key has one value");
    };
    let (_, value, _) = store.data().get(name).unwrap();
    assert!(value.len() < 2200, "{} bytes", value.len());
    assert_eq!(spent(&store, &rule, 0).await, 1000);
}

/// A value that a newer program wrote is not touched.
#[tokio::test(start_paused = true)]
async fn a_newer_value_is_an_error() {
    let rule: AnyRule = RULES[0].parse().unwrap();
    let clock = ManualClock::default();
    let store: Swaps = driver(Memory::new(clock.clone(), Ways::default()));
    let api = Policy::new("api");
    let delta = |number| {
        let batch = Batch { node: 1, number };
        Delta::new(&api, &rule, key(0), batch, (Duration::ZERO, 1))
    };
    store.sync(&[delta(1)]).unwrap().await.unwrap();
    let name = store.data().keys().remove(0);
    let (_, mut value, _) = store.data().get(&name).unwrap();
    value[0] += 1;
    store.data().put(&name, &value);
    let error = store.sync(&[delta(2)]).unwrap().await.unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert_eq!(store.data().get(&name).unwrap().1, value);
}

//! Rules of several kinds under one key, as while two releases run: at most a burst of each kind is
//! admitted.

use std::{future::IntoFuture, time::Duration};

use futures_util::future::join_all;
use tollgate::{
    AnyRule, Cost, FixedWindow, TokenBucket,
    algorithm::Scripted,
    key::Key,
    store::{
        Redis, Store,
        driver::{Ask, Settlement},
    },
};

use super::{policy, servers};

/// One rule of each kind that restores nothing while a test runs, and the units that it admits.
const RULES: [(&str, u64); 11] = [
    ("token-bucket 1/1d burst=5", 5),
    ("token-bucket 1/1d initial=4 burst=9 keep=1d", 4),
    ("leaky-bucket 1/1d queue=6", 7),
    ("fixed-window 8/365d", 8),
    ("sliding-window 9/365d", 9),
    ("sliding-log 3/1d", 3),
    ("cascade 3/1d > 4/1d", 7),
    ("three-color 3/1d peak=6/1d", 6),
    ("warm-up-spaced 1/1h over=5h", 3),
    ("token-bucket 4/1d & sliding-log 6/1d", 4),
    ("sliding-log 6/1d & token-bucket 4/1d", 4),
];

/// Returns `true` if the rules read each other's states.
fn are_of_one_kind(one: &str, other: &str) -> bool {
    let names = |rule: &str| -> Vec<String> {
        let names = rule.split(" & ").filter_map(|rule| rule.split(' ').next());
        names.map(str::to_owned).collect()
    };
    names(one) == names(other)
}

async fn is_admitted<Rule>(store: &Redis<Rule>, rule: &Rule, key: Key) -> bool
where
    Rule: Scripted,
{
    let ask = Ask::new(policy(), rule, key, Cost::ONE);
    store.acquire(&[ask]).await.unwrap().is_admitted()
}

#[tokio::test]
async fn two_releases_with_rules_of_different_kinds_admit_a_burst_of_each_at_most() {
    let server = servers::Redis::start();
    let url = server.url();
    let (old, new) = (
        Redis::connect(&url).await.unwrap(),
        Redis::connect(&url).await.unwrap(),
    );
    let mut client = 0_u64;
    for (n, (one, first)) in RULES.iter().enumerate() {
        for (other, second) in &RULES[..n] {
            if are_of_one_kind(one, other) {
                continue;
            }
            let rules = [one, other].map(|rule| rule.parse::<AnyRule>().unwrap());
            let releases = [(&old, &rules[0]), (&new, &rules[1])];
            for callers in [1, 16] {
                client += 1;
                let key = Key::from(client);
                let mut admitted = [0, 0];
                for turn in 0..40_usize {
                    // Alternating, and in irregular order.
                    let release = if turn < 20 {
                        turn % 2
                    } else {
                        turn * turn % 7 % 2
                    };
                    let (store, rule) = releases[release];
                    let calls = (0..callers).map(|_| is_admitted(store, rule, key));
                    let calls = join_all(calls).await;
                    admitted[release] += calls.into_iter().filter(|admitted| *admitted).count();
                }
                let limits = [*first as usize, *second as usize];
                assert_eq!(admitted, limits, "{one} and {other}, {callers} callers");
            }
        }
    }
    let healed = old.stats().healed + new.stats().healed;
    assert_eq!(healed, 0, "a state of another kind is not damaged");
}

#[tokio::test]
async fn stores_of_different_rules_admit_a_burst_of_each_at_most() {
    let server = servers::Redis::start();
    let buckets: Redis<TokenBucket> = Redis::connect(server.url()).await.unwrap();
    let windows: Redis<FixedWindow> = Redis::connect(server.url()).await.unwrap();
    let bucket = "token-bucket 1/1d burst=5".parse().unwrap();
    let window = "fixed-window 8/365d".parse().unwrap();
    for begins in [0, 1] {
        let key = Key::from(begins);
        let mut admitted = [0, 0];
        for turn in begins..begins + 40 {
            if turn % 2 == 0 {
                admitted[0] += u64::from(is_admitted(&buckets, &bucket, key).await);
            } else {
                admitted[1] += u64::from(is_admitted(&windows, &window, key).await);
            }
        }
        assert_eq!(admitted, [5, 8]);
    }
}

/// All kinds under one key are removed.
#[tokio::test]
async fn a_reset_clears_every_kind() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let key = Key::from(7_u64);
    let mut kinds = RULES.to_vec();
    kinds.dedup_by(|one, other| are_of_one_kind(one.0, other.0));
    let rules = kinds
        .iter()
        .map(|(rule, _)| rule.parse::<AnyRule>().unwrap());
    let rules: Vec<_> = rules.collect();
    for _ in 0..2 {
        for (rule, (text, limit)) in rules.iter().zip(&kinds) {
            let mut admitted = 0;
            while is_admitted(&store, rule, key).await {
                admitted += 1;
            }
            assert_eq!(admitted, *limit, "{text}");
        }
        for rule in rules.iter().rev() {
            assert!(!is_admitted(&store, rule, key).await, "{rule}");
        }
        // A reset with any rule clears all, because the call names no rule.
        store.reset(policy(), &key).await.unwrap();
        assert!(server.keys().is_empty());
    }
}

#[tokio::test]
async fn a_state_that_no_longer_matters_is_removed_by_the_next_write() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let key = Key::from(7_u64);
    for (long, short) in [
        ("token-bucket 1/1h burst=50", "fixed-window 8/200ms"),
        ("fixed-window 50/365d", "token-bucket 8/200ms"),
    ] {
        let [long, short] = [long, short].map(|rule| rule.parse::<AnyRule>().unwrap());
        let size = || server.command(&[&b"STRLEN"[..], &server.keys()[0]]);
        assert!(is_admitted(&store, &long, key).await);
        let alone: u64 = size().parse().unwrap();
        assert!(is_admitted(&store, &short, key).await);
        let both: u64 = size().parse().unwrap();
        assert!(both > alone, "{both}");
        // Its window is over or its bucket full, so the next write removes it.
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(is_admitted(&store, &long, key).await);
        let left: u64 = size().parse().unwrap();
        assert!(left <= alone.max(32), "{left}, {alone}, {both}");
        store.reset(policy(), &key).await.unwrap();
    }
}

/// A longer rule, and a shorter one of the same kind that forgets within a second.
const LONG_AND_SHORT: [(&str, &str); 7] = [
    ("token-bucket 1/1s burst=100", "token-bucket 1/1s burst=1"),
    ("token-bucket 1/1s burst=100", "token-bucket 10/1s burst=1"),
    (
        "token-bucket 1/1m initial=99 burst=100 keep=1h",
        "token-bucket 1/1s burst=1",
    ),
    ("leaky-bucket 1/1s queue=99", "leaky-bucket 1/1s queue=0"),
    ("sliding-log 100/1h", "sliding-log 100/1s"),
    ("cascade 100/1h > 99/1m", "cascade 100/1s > 99/1s"),
    (
        "three-color 1/1s burst=99 peak=2/1s peak-burst=99",
        "three-color 1/1s burst=1 peak=2/1s peak-burst=1",
    ),
];

/// Alone, among calls of other kinds, in one request with the longer rule, and by a refund.
#[tokio::test]
async fn a_shorter_rule_forgets_no_debt_of_a_longer_one() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let other: AnyRule = "fixed-window 8/365d".parse().unwrap();
    let mut keys = Vec::new();
    for (n, (long, short)) in LONG_AND_SHORT.iter().enumerate() {
        let [long, short] = [long, short].map(|rule| rule.parse::<AnyRule>().unwrap());
        for way in 0..5_u64 {
            let key = Key::from(10 * n as u64 + way);
            let ask = |rule, cost| Ask::new(policy(), rule, key, Cost::new(cost).unwrap());
            let at_once = [ask(&long, 90), ask(&short, 1)];
            match way {
                0 => drop(store.acquire(&at_once).await.unwrap()),
                1 => {
                    let calls = at_once.map(|ask| store.acquire(&[ask]).into_future());
                    drop(join_all(calls).await);
                }
                2 => {
                    drop(store.acquire(&[ask(&other, 1)]).await.unwrap());
                    for ask in at_once {
                        drop(store.acquire(&[ask]).await.unwrap());
                    }
                }
                3 => {
                    drop(store.acquire(&[ask(&long, 90)]).await.unwrap());
                    let answer = store.acquire(&[ask(&short, 1)]).await.unwrap();
                    let mut decision = answer.as_slice()[0];
                    let charge = decision.take_charge();
                    if let Some(charge) = charge {
                        let settled = Settlement::new(policy(), &short, key, charge, 0).unwrap();
                        store.settle(vec![settled]).await.unwrap();
                    }
                }
                _ => {
                    for ask in at_once {
                        drop(store.acquire(&[ask]).await.unwrap());
                    }
                }
            }
            let left = store.look(&[ask(&long, 1)]).await.unwrap().as_slice()[0].remaining();
            keys.push((long.clone(), key, way, left.unwrap()));
        }
    }
    // By then, the shorter ones have forgotten.
    tokio::time::sleep(Duration::from_millis(3500)).await;
    for (rule, key, way, before) in keys {
        let ask = Ask::new(policy(), &rule, key, Cost::ONE);
        let left = store.look(&[ask]).await.unwrap().as_slice()[0]
            .remaining()
            .unwrap();
        assert!(
            left <= before + 12,
            "{rule}, way {way}: {left} left, {before} before"
        );
    }
}

/// A client that chooses the endpoint chooses the rule. However it mixes a longer and a shorter
/// rule, and pauses until keys are forgotten, it gets no more than what both admit alone.
#[tokio::test]
async fn nobody_gains_by_choosing_the_rule() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let other: AnyRule = "fixed-window 1000000/365d".parse().unwrap();
    // Units a second, and bursts.
    let pairs = [
        (100, 2000, 20),
        (100, 200, 100),
        (100, 120, 100),
        (1000, 5000, 500),
    ];
    let client = async |(n, (rate, long, short)): (usize, (u64, u64, u64)), seed: u64| {
        let (way, number) = (seed % 3, 100 * n as u64 + seed);
        let mut random = support::Random::new(number);
        let rules = [long, short].map(|burst| {
            let rule = match way {
                // Decided by the driver.
                2 => format!("leaky-bucket {rate}/1s queue={}", burst - 1),
                _ => format!("token-bucket {rate}/1s burst={burst}"),
            };
            rule.parse::<AnyRule>().unwrap()
        });
        let key = Key::from(number);
        let ask = |rule, cost| Ask::new(policy(), rule, key, Cost::new(cost).unwrap());
        let mut admitted = 0;
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < Duration::from_secs(8) {
            let index = random.below(2) as usize;
            let most_of = [long, short][index];
            let cost = 1.max(most_of / 2 + random.below(most_of / 2));
            if way == 1 && random.below(4) == 0 {
                drop(store.acquire(&[ask(&other, 1)]).await.unwrap());
            }
            let answer = store.acquire(&[ask(&rules[index], cost)]).await.unwrap();
            admitted += if answer.is_admitted() { cost } else { 0 };
            let pause = random.below(if seed.is_multiple_of(2) { 3000 } else { 600 });
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        let seconds = begun.elapsed().as_secs() + 1;
        let limit = long + short + 2 * seconds * rate;
        assert!(
            admitted <= limit,
            "{rules:?}, way {way}: {admitted} of {limit}"
        );
        admitted * 100 / limit
    };
    let seeds = pairs
        .into_iter()
        .enumerate()
        .flat_map(|pair| (0..30).map(move |seed| (pair, seed)));
    let most = join_all(seeds.map(|(pair, seed)| client(pair, seed)))
        .await
        .into_iter()
        .max();
    assert!(most > Some(50), "{most:?} % of the limit");
}

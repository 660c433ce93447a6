//! What else concerns states in the server: settlements, expiry, and rules that do not fit.

use tollgate::{
    AnyRule, Cost, Policy, Timestamp,
    algorithm::Algorithm,
    key::Key,
    store::{Ask, Redis, Settlement, Store},
};

use super::{
    memory::told,
    servers::{self, Reply},
};

/// Rules under which nothing comes back while a test runs.
const SLOW: [&str; 11] = [
    "token-bucket 10/1h",
    "token-bucket 7/1d burst=9 initial=12 keep=1h",
    "leaky-bucket 7/1h queue=9",
    "fixed-window 10/365d from=first-call",
    "sliding-window 10/365d slices=5",
    "sliding-log 10/1d",
    "cascade 7/1h > 9/1d initial=8 > 3/1h",
    "three-color 7/1d peak=10/1h",
    "three-color 7/1h burst=2 peak=10/1h",
    "token-bucket 10/1h & leaky-bucket 7/1h queue=9",
    "cascade 7/1h > 9/1d & three-color 7/1d peak=10/1h",
];

#[tokio::test]
async fn what_is_settled_is_back() {
    let redis = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(redis.url()).await.unwrap();
    for text in SLOW {
        let (rule, policy, key): (AnyRule, _, _) = (
            text.parse().unwrap(),
            Policy::new(text),
            Key::from("client"),
        );
        let ask = |units| [Ask::new(&policy, &rule, key, Cost::new(units).unwrap())];
        let look = async || store.look(&ask(1)).await.unwrap().as_slice()[0];
        let before = look().await;
        let decision = store.acquire(&ask(4)).await.unwrap().as_slice()[0];
        assert!(look().await.reset_after() > before.reset_after(), "{text}");
        let charge = decision.charge().unwrap();
        let settlement = Settlement {
            policy: &policy,
            rule: &rule,
            key,
            charge,
            actual: 0,
        };
        store.settle(&[settlement]).await.unwrap();
        let after = look().await;
        assert_eq!(after.remaining(), before.remaining(), "{text}");
        // A key that does not begin at rest has been seen now.
        if !text.contains("initial") {
            assert_eq!(after.reset_after(), before.reset_after(), "{text}");
        }
    }
}

enum Op {
    Spend(u64),
    /// Corrects the charge of that number to so many units.
    Settle(usize, u64),
}

/// Also of places in the middle of a queue, which the program carries along.
#[tokio::test]
async fn settlements_are_those_of_memory() {
    use Op::{Settle, Spend};
    let redis = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(redis.url()).await.unwrap();
    for text in SLOW {
        let (rule, policy, key): (AnyRule, _, _) = (
            text.parse().unwrap(),
            Policy::new(text),
            Key::from("client"),
        );
        let (mut state, mut charges) = (None, Vec::new());
        let ops = [
            Spend(1),
            Spend(2),
            Spend(1),
            Spend(1),
            Settle(1, 0),
            Spend(1),
            Settle(4, 0),
            Settle(3, 0),
            Settle(2, 0),
            Settle(0, 3),
            Spend(2),
            Settle(5, 1),
            Settle(0, 0),
            Spend(1),
        ];
        for (n, op) in ops.into_iter().enumerate() {
            match op {
                Spend(units) => {
                    let cost = Cost::new(units).unwrap();
                    let ask = Ask::new(&policy, &rule, key, cost);
                    let decision = store.acquire(&[ask]).await.unwrap().as_slice()[0];
                    let expected = rule.step(&mut state, decision.at(), cost).decision();
                    assert_eq!(
                        told(&decision).spent,
                        told(&expected).spent,
                        "{text}, operation {n}"
                    );
                    charges.push(
                        decision
                            .charge()
                            .unwrap_or_else(|| panic!("{text}, operation {n}: {decision:?}")),
                    );
                }
                Settle(charge, actual) => {
                    let charge = charges[charge];
                    let settlement = Settlement {
                        policy: &policy,
                        rule: &rule,
                        key,
                        charge,
                        actual,
                    };
                    store.settle(&[settlement]).await.unwrap();
                    let now = store
                        .look(&[Ask::new(&policy, &rule, key, Cost::ONE)])
                        .await
                        .unwrap()
                        .as_slice()[0]
                        .at();
                    rule.settle(&mut state, &charge, now, actual);
                }
            }
            let look = store
                .look(&[Ask::new(&policy, &rule, key, Cost::ONE)])
                .await
                .unwrap()
                .as_slice()[0];
            let expected = rule.look(state.as_ref(), look.at());
            assert_eq!(
                look.remaining(),
                expected.remaining(),
                "{text}, operation {n}: {look:?}, {state:?}"
            );
            assert_eq!(look.class(), expected.class(), "{text}, operation {n}");
        }
    }
}

/// A time that was told does not pass in the server: such states are kept a minute longer.
#[tokio::test]
async fn states_expire_when_they_say_no_more() {
    let redis = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(redis.url()).await.unwrap();
    let at = Timestamp::from_nanos(1_767_235_685_123_456_000);
    for text in SLOW {
        let (rule, policy): (AnyRule, _) = (text.parse().unwrap(), Policy::new("limit"));
        // Above the burst of a marker, of which the peak bucket is the later one then.
        let (mut state, cost) = (None, Cost::new(3).unwrap());
        assert!(rule.step(&mut state, at, cost).decision().is_admitted());
        let until = rule.forgettable_at(&state.unwrap());
        store
            .acquire_at(at, &[Ask::new(&policy, &rule, Key::from("client"), cost)])
            .await
            .unwrap();
        let keys = redis.keys();
        let [key] = &keys[..] else {
            panic!("{text}: {keys:?}")
        };
        let Reply::Number(left) = redis.reply(&[b"PTTL", &key[..]]) else {
            panic!("{text}")
        };
        let expected = (until.as_nanos() - at.as_nanos()).div_ceil(1_000_000) as i64;
        assert!(
            (expected..=expected + 60_000).contains(&left),
            "{text}: {left} of {expected} ms"
        );
        assert_eq!(redis.reply(&[&b"DEL"[..], key]), Reply::Number(1));
    }
}

#[tokio::test]
async fn rules_beyond_the_numbers_of_a_script_are_errors() {
    let redis = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(redis.url()).await.unwrap();
    for (text, problem) in [
        ("token-bucket 99999999/1s burst=1", "does not fit"),
        ("leaky-bucket 1/365d queue=999", "does not fit"),
        ("leaky-bucket 99999999/1s queue=3", "does not fit"),
        ("leaky-bucket 10/1s max-wait=1500ns", "whole microseconds"),
        ("cascade 1/1s > 1/365d burst=999", "does not fit"),
        ("three-color 1/365d burst=999 peak=1/1s", "does not fit"),
        (
            "token-bucket 1/1s initial=3 keep=1500ns",
            "whole microseconds",
        ),
        ("cascade 1/1s initial=3 keep=1500ns", "whole microseconds"),
    ] {
        let (rule, policy): (AnyRule, _) = (text.parse().unwrap(), Policy::new("limit"));
        let ask = Ask::new(&policy, &rule, Key::from("client"), Cost::ONE);
        let error = store.acquire(&[ask]).await.unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert!(
            source.is_some_and(|source| source.contains(problem)),
            "{text}: {error:?}"
        );
    }
    assert!(redis.keys().is_empty());
}

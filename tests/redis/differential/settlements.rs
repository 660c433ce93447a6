//! Further properties of states in the server: settlements, expiry, and rules that do not fit.

use tollgate::{
    AnyRule, Charge, Cost, Policy, Timestamp,
    algorithm::{Algorithm, Scripted},
    key::Key,
    store::{
        Redis, Store,
        driver::{Ask, Settlement},
    },
};

use super::{
    memory::in_micros,
    servers::{self, Reply},
};

/// Rules that restore nothing while a test runs.
const SLOW: [&str; 14] = [
    "token-bucket 10/1h",
    "token-bucket 7/1d burst=9 initial=12 keep=1h",
    "leaky-bucket 7/1h queue=9",
    "fixed-window 10/365d from=first-call",
    "sliding-window 10/365d slices=5",
    "sliding-log 10/1d",
    "cascade 7/1h > 9/1d initial=8 > 3/1h",
    "three-color 7/1d peak=10/1h",
    "three-color 7/1h burst=2 peak=10/1h",
    "warm-up 60/1s over=10h",
    "warm-up-spaced 1/1h over=20h max-wait=100h",
    "in-flight 24 lease=1d",
    "token-bucket 10/1h & leaky-bucket 7/1h queue=9",
    "cascade 7/1h > 9/1d & three-color 7/1d peak=10/1h",
];

#[tokio::test]
async fn settled_units_are_refunded() {
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
        let charge = { decision }.take_charge().unwrap();
        let settlement = Settlement::new(&policy, &rule, key, charge, 0).unwrap();
        store.settle(vec![settlement]).await.unwrap();
        let after = look().await;
        assert_eq!(after.remaining(), before.remaining(), "{text}");
        // A key that does not start at rest is known now, and a call that is not delayed has
        // departed.
        if !text.contains("initial") && !text.contains("spaced") {
            assert_eq!(after.reset_after(), before.reset_after(), "{text}");
        }
    }
}

enum Op {
    Spend(u64),
    /// Settles the charge with this number to this many units.
    Settle(usize, u64),
}

/// Includes positions in the middle of a queue, which the program keeps in the state.
#[tokio::test]
async fn settlements_equal_those_of_memory() {
    settlements_are_equal(|charge| charge).await;
}

/// As leases correct their charges.
#[tokio::test]
async fn settlements_of_last_charges_equal_those_of_memory() {
    settlements_are_equal(Charge::if_last).await;
}

async fn settlements_are_equal(with: fn(Charge) -> Charge) {
    use Op::{Settle, Spend};
    let redis = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(redis.url()).await.unwrap();
    for text in SLOW {
        let (rule, policy, key): (AnyRule, _, _) = (
            text.parse().unwrap(),
            Policy::new(text),
            Key::from("client"),
        );
        let own = rule.in_script().unwrap_or_else(|| rule.clone());
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
                    let expected = own.step(&mut state, decision.at(), cost).decision();
                    assert_eq!(
                        in_micros(&decision).spent,
                        in_micros(&expected).spent,
                        "{text}, operation {n}"
                    );
                    assert!(
                        decision.is_admitted(),
                        "{text}, operation {n}: {decision:?}"
                    );
                    charges.push((decision, expected));
                }
                Settle(charge, actual) => {
                    // Positions are those of each side: they differ by what a script rounds.
                    let (mut charged, mut ours) = charges[charge];
                    let ours = with(ours.take_charge().unwrap());
                    let charge = with(charged.take_charge().unwrap());
                    let settlement = Settlement::new(&policy, &rule, key, charge, actual).unwrap();
                    store.settle(vec![settlement]).await.unwrap();
                    let now = store
                        .look(&[Ask::new(&policy, &rule, key, Cost::ONE)])
                        .await
                        .unwrap()
                        .as_slice()[0]
                        .at();
                    own.settle(&mut state, &ours, now, actual);
                }
            }
            let look = store
                .look(&[Ask::new(&policy, &rule, key, Cost::ONE)])
                .await
                .unwrap()
                .as_slice()[0];
            let expected = own.look(state.as_ref(), look.at());
            assert_eq!(
                look.remaining(),
                expected.remaining(),
                "{text}, operation {n}: {look:?}, {state:?}"
            );
            assert_eq!(look.class(), expected.class(), "{text}, operation {n}");
            if text.starts_with("warm-up") {
                // The look includes the warmth of the key and the length of its queue.
                assert_eq!(
                    in_micros(&look),
                    in_micros(&expected),
                    "{text}, operation {n}"
                );
            }
        }
    }
}

/// The time of these calls is given and does not pass in the server, so their states are kept a
/// minute longer.
#[tokio::test]
async fn states_expire_when_they_no_longer_matter() {
    let redis = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(redis.url()).await.unwrap();
    let at = Timestamp::from_nanos(1_767_235_685_123_456_000);
    for text in SLOW {
        let (rule, policy): (AnyRule, _) = (text.parse().unwrap(), Policy::new("limit"));
        // Above the burst of a marker, so that its peak bucket fills last.
        let (mut state, cost) = (None, Cost::new(3).unwrap());
        assert!(rule.step(&mut state, at, cost).decision().is_admitted());
        let until = rule.forgettable_at(&state.unwrap());
        store
            .acquire_at(at, &[Ask::new(&policy, &rule, Key::from("client"), cost)])
            .await
            .unwrap();
        let expected = (until.as_nanos() - at.as_nanos()).div_ceil(1_000_000) as i64;
        // A log is kept for a second longer.
        for key in redis.keys() {
            let Reply::Number(left) = redis.reply(&[&b"PTTL"[..], &key[..]]) else {
                panic!("{text}")
            };
            assert!(
                (expected..=expected + 61_000).contains(&left),
                "{text}: {left} of {expected} ms"
            );
        }
        redis.command(&["FLUSHALL"]);
    }
}

#[test]
fn usual_warm_ups_fit() {
    for text in [
        "warm-up 3/1s",
        "warm-up 200/1s",
        "warm-up 1000/1s cold=2.5",
        "warm-up 99999/1m over=1m",
        "warm-up 1000000/1h over=1h cold=10",
        "warm-up-spaced 2/1s over=4s",
        "warm-up-spaced 200/1s cold=2.5",
        "warm-up-spaced 99999/1s over=1m max-wait=1s",
        "warm-up-spaced 100/1m",
        "warm-up-spaced 1000000/1h over=1h cold=10",
        "warm-up-spaced 1/1h over=1d",
    ] {
        let rule: AnyRule = text.parse().unwrap();
        let mut parts = Vec::new();
        rule.rule_parts(&mut parts).unwrap();
        assert_eq!(parts.len(), 1, "{text}");
        assert!(
            parts[0]
                .iter()
                .all(|number| number.unsigned_abs() < 1 << 53),
            "{text}"
        );
    }
}

/// As in memory, the position of the call that was queued last is free again.
#[tokio::test]
async fn the_last_position_of_a_queue_is_refunded_to_the_tick() {
    let redis = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(redis.url()).await.unwrap();
    for text in [
        "warm-up-spaced 7/1h over=5h max-wait=50h",
        "warm-up-spaced 7/13h over=9h cold=2.5 max-wait=90h",
    ] {
        let (rule, policy, key): (AnyRule, _, _) = (
            text.parse().unwrap(),
            Policy::new(text),
            Key::from("client"),
        );
        let ask = |units| [Ask::new(&policy, &rule, key, Cost::new(units).unwrap())];
        // The time until the key is as if unused.
        let rests = async || {
            let look = store.look(&ask(1)).await.unwrap().as_slice()[0];
            look.at().saturating_add(look.reset_after())
        };
        let departs = |charge: &Charge| charge.at.saturating_add(charge.delay.unwrap());
        let spend = async |units| {
            let decisions = store.acquire(&ask(units)).await.unwrap();
            { decisions.as_slice()[0] }.take_charge().unwrap()
        };
        spend(2).await;
        spend(1).await;
        let before = rests().await;
        let charge = spend(3).await;
        assert!(rests().await > before, "{text}");
        let departed = departs(&charge);
        let settlement = Settlement::new(&policy, &rule, key, charge, 0).unwrap();
        store.settle(vec![settlement]).await.unwrap();
        assert_eq!(rests().await, before, "{text}");
        assert_eq!(departs(&spend(1).await), departed, "{text}");
    }
}

#[tokio::test]
async fn rules_that_do_not_fit_a_scripts_numbers_are_errors() {
    let redis = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(redis.url()).await.unwrap();
    for (text, problem) in [
        ("token-bucket 1/86400000000001ns burst=999", "does not fit"),
        ("token-bucket 2/86400000000006ns burst=999", "does not fit"),
        ("leaky-bucket 1/86400000000001ns queue=999", "does not fit"),
        ("leaky-bucket 10/1s max-wait=1500ns", "whole microseconds"),
        (
            "cascade 1/1s > 1/86400000000001ns burst=999",
            "does not fit",
        ),
        (
            "three-color 1/86400000000001ns burst=999 peak=1/1s",
            "does not fit",
        ),
        (
            "token-bucket 1/1s initial=3 keep=1500ns",
            "whole microseconds",
        ),
        ("cascade 1/1s initial=3 keep=1500ns", "whole microseconds"),
        ("warm-up 999983/7s over=77777777ns cold=9.999", "2^51"),
        ("warm-up-spaced 1/365d", "2^51 ns"),
        ("warm-up-spaced 2/1s over=365d", "2^51 ns"),
        ("warm-up-spaced 2/1s max-wait=365d", "2^51 ns"),
        ("warm-up-spaced 2/1s & warm-up-spaced 1/365d", "2^51 ns"),
    ] {
        let (rule, policy): (AnyRule, _) = (text.parse().unwrap(), Policy::new("limit"));
        let ask = Ask::new(&policy, &rule, Key::from("client"), Cost::ONE);
        let error = store.acquire(&[ask]).await.unwrap_err();
        assert!(error.to_string().contains(problem), "{text}: {error}");
    }
    assert!(redis.keys().is_empty());
}

//! Grants of units ahead of their use: how many, by which program, and on a server that rejects
//! writes.

use futures_util::future::join_all;
use tollgate::{
    AnyRule, Charge, Cost, Decision,
    key::Key,
    store::{
        Redis, Store, StoreError,
        driver::{Ask, Settlement},
    },
};

use super::{only, policy, servers};

const RULES: [&str; 5] = [
    "token-bucket 1/1d burst=100",
    "fixed-window 100/365d",
    "sliding-window 100/365d",
    "sliding-log 100/1d",
    "token-bucket 1/1d burst=200 & sliding-log 100/1d",
];

fn ask(rule: &AnyRule, client: u64, cost: u64) -> Ask<'_, AnyRule> {
    let cost = Cost::new(cost).unwrap();
    Ask::new(policy(), rule, Key::from(client), cost)
}

fn charge(decision: &Decision) -> Option<Charge> {
    { *decision }.take_charge()
}

async fn grant(store: &Redis<AnyRule>, ask: Ask<'_, AnyRule>) -> Result<u64, StoreError> {
    let decision = only(store.acquire(&[ask]).await?);
    Ok(charge(&decision).map_or(0, |charge| charge.cost))
}

#[tokio::test]
async fn a_grant_is_a_quarter_of_what_remains_and_at_least_the_cost() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    for (client, rule) in (0..).zip(RULES) {
        let rule: AnyRule = rule.parse().unwrap();
        for (cost, up_to, granted) in [
            (1, 10, 10),
            (1, 50, 22),
            (20, 18, 20),
            (3, u64::MAX, 12),
            (30, 1000, 30),
            (7, 1000, 0),
            (1, 1000, 1),
        ] {
            let found = grant(&store, ask(&rule, client, cost).up_to(up_to)).await;
            assert_eq!(found.unwrap(), granted, "{rule}: {cost} up to {up_to}");
        }
        let look = only(store.look(&[ask(&rule, client, 1)]).await.unwrap());
        assert_eq!(look.remaining(), Some(5), "{rule}");
    }
    assert_eq!(store.stats().healed, 0);
}

#[tokio::test]
async fn a_grant_is_settled_as_any_charge() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    for (client, rule) in (0..).zip(RULES) {
        let rule: AnyRule = rule.parse().unwrap();
        let asks = [ask(&rule, client, 1).up_to(20)];
        let granted = only(store.acquire(&asks).await.unwrap());
        let granted = charge(&granted).unwrap();
        let settlement = Settlement::new(policy(), &rule, Key::from(client), granted, 3).unwrap();
        store.settle(vec![settlement]).await.unwrap();
        let look = only(store.look(&asks).await.unwrap());
        assert_eq!(look.remaining(), Some(97), "{rule}");
    }
}

/// The units of a queue and of classes cannot be spent later.
#[tokio::test]
async fn other_rules_grant_the_cost_alone() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    for (client, rule) in (0..).zip([
        "leaky-bucket 1/1s queue=100",
        "warm-up 1000/1s",
        "warm-up-spaced 100/1s max-wait=1h",
        "cascade 1/1d burst=100",
        "three-color 1/1d burst=100 peak=1/1d peak-burst=200",
        "token-bucket 1/1d burst=100 & cascade 1/1d burst=100",
    ]) {
        let rule: AnyRule = rule.parse().unwrap();
        let found = grant(&store, ask(&rule, client, 2).up_to(20)).await;
        assert_eq!(found.unwrap(), 2, "{rule}");
    }
}

/// Those of one batch are granted one after the other, and all of them are charged.
#[tokio::test]
async fn grants_beside_calls_never_exceed_the_limit() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    for (client, rule) in (0..).zip(RULES) {
        let rule: AnyRule = rule.parse().unwrap();
        let calls = (0..150_u64).map(|n| {
            let units = if n % 3 == 0 { n } else { 0 };
            grant(&store, ask(&rule, client, 1).up_to(units))
        });
        let granted = join_all(calls).await;
        let sum: u64 = granted.into_iter().map(Result::unwrap).sum();
        assert_eq!(sum, 100, "{rule}");
    }
    let stats = store.stats();
    assert!(stats.requests < stats.calls / 4, "{stats:?}");
}

/// Asks of one call are granted together or not at all.
#[tokio::test]
async fn a_refused_ask_takes_back_the_grants_beside_it() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let [much, little] =
        ["fixed-window 100/365d", "sliding-log 3/1d"].map(|rule| rule.parse::<AnyRule>().unwrap());
    let other = tollgate::Policy::new("other");
    let call = |cost: u64| {
        let little = Ask::new(&other, &little, Key::from(1), Cost::new(cost).unwrap());
        store.acquire(&[ask(&much, 1, 1).up_to(20), little])
    };
    assert!(!call(4).await.unwrap().is_admitted());
    let look = only(store.look(&[ask(&much, 1, 1)]).await.unwrap());
    assert_eq!(look.remaining(), Some(100));
    let decisions = call(3).await.unwrap();
    let charged = decisions.as_slice().iter().map(charge);
    let charged: Vec<_> = charged.map(|charge| charge.unwrap().cost).collect();
    assert_eq!(charged, [20, 3]);
}

/// As any call: refusals are answered, admissions are errors, and nothing is charged.
#[tokio::test]
async fn a_grant_that_cannot_be_written_is_an_error() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    for rule in RULES {
        let rule: AnyRule = rule.parse().unwrap();
        let (used_up, fresh) = (0, 1);
        grant(&store, ask(&rule, used_up, 100)).await.unwrap();
        for (name, without, with, code) in [
            ("maxmemory", "0", "1", "OOM"),
            ("min-replicas-to-write", "0", "1", "NOREPLICAS"),
        ] {
            server.command(&["CONFIG", "SET", name, with]);
            let asks = [used_up, fresh, fresh].map(|client| ask(&rule, client, 1).up_to(20));
            let calls = join_all(asks.map(|ask| grant(&store, ask))).await;
            server.command(&["CONFIG", "SET", name, without]);
            assert_eq!(*calls[0].as_ref().unwrap(), 0, "{rule}");
            for call in &calls[1..] {
                let why = call.as_ref().unwrap_err().to_string();
                assert!(why.contains(code), "{rule}: {why}");
            }
        }
        assert_eq!(
            grant(&store, ask(&rule, fresh, 1).up_to(20)).await.unwrap(),
            20
        );
        server.command(&["FLUSHALL"]);
    }
}

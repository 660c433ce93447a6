//! A server that rejects writes, such as a full one. Exhausted clients are refused, also in one
//! batch with clients that would be admitted.

use std::time::Duration;

use futures_util::future::{join, join_all};
use tollgate::{
    AnyRule, Cost, Decision, Policy,
    key::Key,
    store::{
        Redis, Store, StoreError,
        driver::{Ask, Settlement},
    },
};

use super::{only, policy, servers};

/// Rules of both kinds of programs: buckets that start full, and everything else.
const RULES: [&str; 4] = [
    "token-bucket 1/1d burst=5",
    "fixed-window 5/365d",
    "token-bucket 1/1d burst=5 & sliding-log 5/1d",
    "sliding-log 5/1d",
];

/// An exhausted client, and one with units left.
const USED_UP: u64 = 1_000;
const HALF: u64 = 1_001;

async fn call(store: &Redis<AnyRule>, rule: &AnyRule, client: u64) -> Result<bool, StoreError> {
    let ask = Ask::new(policy(), rule, Key::from(client), Cost::ONE);
    let decisions = store.acquire(&[ask]).await?;
    Ok(decisions.is_admitted())
}

/// Makes many concurrent calls, which are batched: of the exhausted client, of the other one, and
/// of new clients.
async fn assert_only_refusals(store: &Redis<AnyRule>, rule: &AnyRule, code: &str) {
    for others in [0, 1, 3, 30] {
        let clients = (0..others).flat_map(|newcomer| [newcomer, USED_UP, HALF, HALF, HALF]);
        let clients: Vec<_> = clients.chain([USED_UP]).collect();
        let calls = clients.iter().map(|client| call(store, rule, *client));
        for (client, result) in clients.iter().zip(join_all(calls).await) {
            match result {
                Ok(admitted) => assert!(*client == USED_UP && !admitted, "{rule}: {client}"),
                Err(error) => {
                    assert_ne!(*client, USED_UP, "{rule}: {error}");
                    let why = error.to_string();
                    assert!(why.contains(code), "{rule}: {why}");
                }
            }
        }
    }
    // Several asks in one call are refused if one of them is, whatever the others would be.
    let other = Policy::new("other");
    for (client, is_refused) in [(USED_UP, true), (HALF, false)] {
        let asks = [&other, policy()];
        let asks = asks.map(|policy| Ask::new(policy, rule, Key::from(client), Cost::ONE));
        let result = store.acquire(&asks).await;
        assert_eq!(result.is_ok(), is_refused, "{rule}: {result:?}");
        assert!(!result.is_ok_and(|decisions| decisions.is_admitted()));
    }
}

async fn with_clients(store: &Redis<AnyRule>, rule: &AnyRule) {
    for (client, calls) in [(USED_UP, 6), (HALF, 3)] {
        for _ in 0..calls {
            call(store, rule, client).await.unwrap();
        }
    }
}

/// Asserts that `HALF` has its units, once writes are accepted again.
async fn assert_nothing_was_spent(store: &Redis<AnyRule>, rule: &AnyRule) {
    for (client, left) in [(USED_UP, 0), (HALF, 2), (0, 5)] {
        let mut admitted = 0;
        while call(store, rule, client).await.unwrap() {
            admitted += 1;
        }
        assert_eq!(admitted, left, "{rule}: {client}");
    }
}

#[tokio::test]
async fn refusals_are_answered_beside_failing_admissions() {
    let config = |name: &'static str, without: &'static str, with: &'static str, code| {
        (name, without, with, code)
    };
    for (name, without, with, code) in [
        config("maxmemory", "0", "1", "OOM"),
        config("min-replicas-to-write", "0", "1", "NOREPLICAS"),
    ] {
        let server = servers::Redis::start();
        let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
        for rule in RULES {
            let rule: AnyRule = rule.parse().unwrap();
            with_clients(&store, &rule).await;
            server.command(&["CONFIG", "SET", name, with]);
            assert_only_refusals(&store, &rule, code).await;
            server.command(&["CONFIG", "SET", name, without]);
            assert_nothing_was_spent(&store, &rule).await;
            server.command(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn a_replica_refuses_exhausted_clients_and_charges_nothing() {
    let (master, server) = (servers::Redis::start(), servers::Redis::start());
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let [bucket, window] = [RULES[0], RULES[1]].map(|rule| rule.parse::<AnyRule>().unwrap());
    for rule in [bucket, window] {
        // Its master has states of the same clients.
        let of_master: Redis<AnyRule> = Redis::connect(master.url()).await.unwrap();
        with_clients(&of_master, &rule).await;
        server.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        server.wait_for_info(
            "replication",
            "master_link_status",
            "up",
            Duration::from_secs(20),
        );
        assert_only_refusals(&store, &rule, "READONLY").await;
        server.command(&["REPLICAOF", "NO", "ONE"]);
        assert_nothing_was_spent(&store, &rule).await;
        for of_both in [&server, &master] {
            of_both.command(&["FLUSHALL"]);
        }
    }
}

/// Alone, and batched with calls: no settlement counts as made unless it was written.
#[tokio::test]
async fn settlements_that_cannot_be_written_are_errors_and_counted() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let mut unsettled = 0;
    for rule in RULES {
        let rule: AnyRule = rule.parse().unwrap();
        let ask = || Ask::new(policy(), &rule, Key::from(HALF), Cost::ONE);
        let mut charged = Vec::new();
        for _ in 0..3 {
            charged.push(only(store.acquire(&[ask()]).await.unwrap()));
        }
        let settle = |mut charged: Decision| {
            let charge = charged.take_charge().unwrap();
            let key = Key::from(HALF);
            let settlement = Settlement::new(policy(), &rule, key, charge, 0).unwrap();
            store.settle(vec![settlement])
        };
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let lone = settle(charged.remove(0)).await;
        let newcomer = call(&store, &rule, 0);
        let (beside, newcomer) = join(settle(charged.remove(0)).into_future(), newcomer).await;
        for failed in [lone, beside, newcomer.map(drop)] {
            let why = failed.unwrap_err().to_string();
            assert!(why.contains("OOM"), "{rule}: {why}");
        }
        unsettled += 2;
        assert_eq!(store.stats().unsettled, unsettled, "{rule}");
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        let left = only(store.look(&[ask()]).await.unwrap()).remaining();
        assert_eq!(left, Some(2), "{rule}");
        settle(charged.remove(0)).await.unwrap();
        let left = only(store.look(&[ask()]).await.unwrap()).remaining();
        assert_eq!(left, Some(3), "{rule}");
        server.command(&["FLUSHALL"]);
    }
    assert_eq!(store.stats().unsettled, unsettled);
}

/// A settlement that cannot be written, in either direction, in one request with a call of its
/// client: only a refund leaves a refusal true.
#[tokio::test]
async fn a_settlement_that_is_not_written_refuses_no_call() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    for rule in RULES {
        let rule: AnyRule = rule.parse().unwrap();
        let acquire = async |cost| {
            let cost = Cost::new(cost).unwrap();
            let ask = Ask::new(policy(), &rule, Key::from(HALF), cost);
            store.acquire(&[ask]).await.map(only)
        };
        for (cost, actual, asked) in [(5, 3, 3), (1, 5, 1), (4, 4, 2)] {
            let mut decision = acquire(cost).await.unwrap();
            let charge = decision.take_charge().unwrap();
            let key = Key::from(HALF);
            let settlement = Settlement::new(policy(), &rule, key, charge, actual).unwrap();
            server.command(&["CONFIG", "SET", "maxmemory", "1"]);
            let settled = store.settle(vec![settlement]).into_future();
            let requests = store.stats().requests;
            let (_, answer) = join(settled, acquire(asked)).await;
            assert_eq!(store.stats().requests, requests + 1);
            server.command(&["CONFIG", "SET", "maxmemory", "0"]);
            let about = format!("{rule}: {cost} to {actual}");
            match answer {
                Ok(decision) => assert!(actual <= cost && !decision.is_admitted(), "{about}"),
                Err(error) => assert!(
                    actual > cost && error.to_string().contains("OOM"),
                    "{about}: {error}"
                ),
            }
            server.command(&["FLUSHALL"]);
        }
    }
}

//! Settlements: applied however busy a key is, and counted if they fail.

mod counted;

use std::{sync::Arc, time::Duration};

use tollgate::{
    AnyRule, Cost, Decision, Policy, Timestamp, TokenBucket,
    algorithm::Algorithm,
    key::Key,
    store::{
        Redis, Store,
        driver::{Ask, Settlement},
    },
};

use super::{acquire_many, at_once, look, only, policy, servers, store};

/// Rules that restore nothing while a test runs, with the most units of its cost that a settled
/// call leaves behind. A position in the middle of a queue is refunded as a whole or not at all.
const SLOW: [(&str, u64); 9] = [
    ("token-bucket 1/1h burst=100000", 2),
    ("leaky-bucket 1/1d queue=100", 0),
    ("fixed-window 100000/365d from=first-call", 2),
    ("sliding-window 50000/1d", 2),
    ("sliding-log 2000/365d", 2),
    ("cascade 1/1h burst=90000 > 1/1d burst=1000", 2),
    ("three-color 1/1d burst=1000 peak=2/1h peak-burst=90000", 2),
    (
        "token-bucket 1/1h burst=100000 & sliding-window 50000/1d",
        2,
    ),
    (
        "cascade 1/1h burst=90000 & three-color 1/1h burst=90000 peak=2/1h peak-burst=90000",
        2,
    ),
];

/// The number of callers of each store, and the charges that each of them makes and settles.
const CALLERS: u64 = 12;
const CHARGES: u64 = 24;

/// A key, a rule and a store.
#[derive(Clone)]
struct Client {
    store: Redis<AnyRule>,
    rule: Arc<AnyRule>,
}

impl Client {
    async fn decide(&self, cost: u64) -> Decision {
        let ask = Ask::new(
            policy(),
            &*self.rule,
            Key::from(7_u64),
            Cost::new(cost).unwrap(),
        );
        only(self.store.acquire(&[ask]).await.unwrap())
    }

    async fn remaining(&self) -> u64 {
        let ask = Ask::new(policy(), &*self.rule, Key::from(7_u64), Cost::ONE);
        let look = only(self.store.look(&[ask]).await.unwrap());
        look.remaining().unwrap()
    }

    fn settle(
        &self,
        mut decision: Decision,
        actual: u64,
    ) -> impl Future<Output = Result<(), tollgate::store::StoreError>> + use<> {
        let charge = decision.take_charge().unwrap();
        let key = Key::from(7_u64);
        let settlement = Settlement::new(policy(), &*self.rule, key, charge, actual).unwrap();
        self.store.settle(vec![settlement]).into_future()
    }

    /// Makes charges and settles most of the cost. Awaits every other settlement and drops the
    /// rest. Returns the actual cost.
    async fn work(self, caller: u64, most: u64) -> u64 {
        let mut spent = 0;
        for n in 0..CHARGES {
            let decision = self.decide(2).await;
            if !decision.is_admitted() {
                continue;
            }
            let actual = if (n + caller).is_multiple_of(4) {
                most / 2
            } else {
                0
            };
            spent += actual;
            let done = self.settle(decision, actual);
            if n % 2 == 0 {
                done.await.unwrap();
            } else {
                drop(done);
            }
        }
        spent
    }
}

/// Of three hundred waiting requests every other one is closed, and then the rest: more places than
/// are remembered. The script keeps those that the rule keeps in memory, in a value that stays
/// small.
#[tokio::test]
async fn clients_that_hang_up_leave_the_places_that_they_leave_in_memory() {
    let server = servers::Redis::start();
    let rule: Arc<AnyRule> = Arc::new("leaky-bucket 1/1h queue=300".parse().unwrap());
    let client = Client {
        store: Redis::connect(server.url()).await.unwrap(),
        rule: Arc::clone(&rule),
    };
    // So slow that the time of the test is less than a place.
    let (now, mut state) = (Timestamp::from_nanos(1_000_000_000), None);
    let (mut theirs, mut ours, mut forgotten) = (Vec::new(), Vec::new(), 0);
    for _ in 0..=300 {
        theirs.push(Some(client.decide(1).await));
        ours.push(rule.step(&mut state, now, Cost::ONE).decision());
    }
    for call in (1..=300).step_by(2).chain((2..=300).rev().step_by(2)) {
        client
            .settle(theirs[call].take().unwrap(), 0)
            .await
            .unwrap();
        let charge = ours[call].take_charge().unwrap();
        forgotten += u64::from(rule.forgets(state.as_ref(), &charge, now, 0));
        rule.settle(&mut state, &charge, now, 0);
        assert_eq!(client.store.stats().unsettled, forgotten, "after {call}");
        let left = rule.look(state.as_ref(), now).remaining().unwrap();
        assert_eq!(client.remaining().await, left, "after {call}");
        let name = server.keys().pop().unwrap();
        let length: u64 = server.command(&[&b"STRLEN"[..], &name]).parse().unwrap();
        assert!(length < 650, "{length} bytes");
    }
    assert!(forgotten > 100, "{forgotten}");
}

/// Two processes that only admit and settle, over a network with a delay of two milliseconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_settlements_on_a_busy_key_are_applied() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    proxy.delay(Duration::from_millis(1));
    for (text, most) in SLOW {
        let rule: Arc<AnyRule> = Arc::new(text.parse().unwrap());
        let mut clients = Vec::new();
        for _ in 0..2 {
            let url = format!("redis://{}", proxy.address());
            let store = Redis::connect(url).await.unwrap();
            let rule = Arc::clone(&rule);
            clients.push(Client { store, rule });
        }
        // After a charge that stays, none of the charges to be settled has begun to be refilled.
        assert!(clients[0].decide(9).await.is_admitted(), "{text}");
        let before = clients[0].remaining().await;
        let tasks: Vec<_> = (0..2 * CALLERS)
            .map(|n| tokio::spawn(clients[n as usize % 2].clone().work(n, most)))
            .collect();
        let mut spent = 0;
        for task in tasks {
            spent += task.await.unwrap();
        }
        assert!(spent > 0 || most == 0, "{text}");
        // Rules of several buckets store no position in a charge. Each refund loses the refill
        // since its charge, less than a unit in all.
        let is_exact = !text.contains("cascade") && !text.contains("three-color");
        let expected = before - spent;
        let is_expected = |left| left == expected || !is_exact && left + 1 == expected;
        for _ in 0..500 {
            if is_expected(clients[0].remaining().await) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let left = clients[0].remaining().await;
        assert!(is_expected(left), "{text}: {left} of {expected}");
        for client in &clients {
            let stats = client.store.stats();
            assert_eq!(stats.unsettled, 0, "{text}");
            // Calls were batched.
            assert!(stats.requests < stats.calls, "{text}: {stats:?}");
        }
        server.command(&["FLUSHALL"]);
    }
}

async fn charge_of(store: &Redis<TokenBucket>, rule: &TokenBucket, key: Key) -> Decision {
    acquire_many(store, rule, key, 3).await.unwrap()
}

fn settlement(rule: &TokenBucket, key: Key, mut decision: Decision) -> Settlement<'_, TokenBucket> {
    Settlement::new(policy(), rule, key, decision.take_charge().unwrap(), 0).unwrap()
}

async fn remaining(store: &Redis<TokenBucket>, rule: &TokenBucket, key: Key) -> u64 {
    look(store, rule, key).await.unwrap().remaining().unwrap()
}

#[tokio::test]
async fn a_dropped_settlement_is_sent() {
    let server = servers::Redis::start();
    let (store, rule, key) = (store(server.url()).await, at_once(10), Key::from(7_u64));
    let decision = charge_of(&store, &rule, key).await;
    drop(store.settle(vec![settlement(&rule, key, decision)]));
    for _ in 0..500 {
        if remaining(&store, &rule, key).await == 10 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(remaining(&store, &rule, key).await, 10);
    assert_eq!(store.stats().unsettled, 0);
}

/// A settlement without an effect is not written, and the expiry stays. A settlement that empties a
/// state removes the key.
#[tokio::test]
async fn a_settlement_that_changes_nothing_writes_nothing() {
    let server = servers::Redis::start();
    let writes = || server.info("persistence", "rdb_changes_since_last_save");
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    for (text, _) in SLOW {
        let rule = Arc::new(text.parse().unwrap());
        let client = Client {
            store: store.clone(),
            rule,
        };
        let decisions = [client.decide(2).await, client.decide(2).await];
        let before = writes();
        client.settle(decisions[0], 2).await.unwrap();
        assert_eq!(writes(), before, "{text}");
        client.settle(decisions[1], 0).await.unwrap();
        assert_ne!(writes(), before, "{text}");
        store.reset(policy(), &Key::from(7_u64)).await.unwrap();
        let before = writes();
        // The key is unknown afterwards.
        client.settle(decisions[0], 0).await.unwrap();
        assert_eq!(writes(), before, "{text}");
        assert!(server.keys().is_empty(), "{text}");
    }
}

/// More settlements than fit into one request, on as many keys. One has a rule that does not fit
/// into a script.
#[tokio::test]
async fn a_failing_settlement_does_not_affect_others() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let (rule, misfit): (AnyRule, AnyRule) = (
        at_once(10).into(),
        "token-bucket 1/86400000000001ns burst=999".parse().unwrap(),
    );
    let ask = |n: u64| Ask::new(policy(), &rule, Key::from(n), Cost::new(3).unwrap());
    let mut settlements = Vec::new();
    for n in 0..300 {
        let mut decision = only(store.acquire(&[ask(n)]).await.unwrap());
        let rule = if n == 150 { &misfit } else { &rule };
        let charge = decision.take_charge().unwrap();
        settlements.push(Settlement::new(policy(), rule, Key::from(n), charge, 0).unwrap());
    }
    let before = store.stats().requests;
    let error = store.settle(settlements).await.unwrap_err();
    assert!(error.to_string().contains("does not fit"), "{error}");
    assert_eq!(store.stats().unsettled, 1);
    let requests = store.stats().requests - before;
    assert!((5..=6).contains(&requests), "{requests}");
    for n in 0..300 {
        let left = only(store.look(&[ask(n)]).await.unwrap()).remaining();
        assert_eq!(left, Some(if n == 150 { 7 } else { 10 }), "{n}");
    }
}

/// One call of `settle`, with keys of all shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settlements_in_a_cluster_go_to_their_slots() {
    let cluster = servers::Cluster::start();
    let address = cluster.nodes()[0].address();
    let store = store(format!("redis-cluster://{address}")).await;
    let rule = at_once(10);
    let mut settlements = Vec::new();
    for n in 0..40 {
        let key = Key::from(n as u64);
        let decision = charge_of(&store, &rule, key).await;
        settlements.push(settlement(&rule, key, decision));
    }
    store.settle(settlements).await.unwrap();
    for n in 0..40 {
        assert_eq!(remaining(&store, &rule, Key::from(n as u64)).await, 10);
    }
    assert_eq!(store.stats().unsettled, 0);
}

/// A settled bucket is read by the bucket programs and by the driver, and expires.
#[tokio::test]
async fn a_settled_bucket_is_read_by_all_programs() {
    let server = servers::Redis::start();
    let (store, rule, key) = (store(server.url()).await, at_once(20), Key::from(7_u64));
    let first = charge_of(&store, &rule, key).await;
    for left in [14, 11] {
        let decision = charge_of(&store, &rule, key).await;
        assert_eq!(decision.remaining(), Some(left));
    }
    store
        .settle(vec![settlement(&rule, key, first)])
        .await
        .unwrap();
    // The refund is a day less an instant per unit, because the other calls came later.
    let decision = charge_of(&store, &rule, key).await;
    assert!(
        matches!(decision.remaining(), Some(10 | 11)),
        "{decision:?}"
    );
    store
        .settle(vec![settlement(&rule, key, decision)])
        .await
        .unwrap();
    let left = remaining(&store, &rule, key).await;
    assert!(matches!(left, 13 | 14), "{left}");
    let other = Policy::new("other");
    store.reset(&other, &key).await.unwrap();
    assert!(matches!(remaining(&store, &rule, key).await, 13 | 14));
    store.reset(policy(), &key).await.unwrap();
    assert_eq!(remaining(&store, &rule, key).await, 20);
}

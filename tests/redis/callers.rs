//! Faults must be detected for any number and pace of callers: one caller at several paces, four,
//! and 64.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};
use tollgate::{
    Cost, TokenBucket,
    key::Key,
    store::{
        CircuitBreakerConfig, Redis, Store, StoreError, StoreExt,
        driver::{Ask, Settlement},
    },
};

use super::{
    acquire, at_once,
    crowd::{Crowd, DEADLINE, RESPONSE},
    look,
    policies::{LIMIT, clients, clients_of, connect},
    policy, servers, until_answered,
};

pub(super) fn url_of(cluster: &servers::Cluster) -> String {
    let nodes = cluster.nodes()[..3].iter();
    let hosts: Vec<_> = nodes.map(|node| node.address().to_string()).collect();
    format!("redis-cluster://{}", hosts.join(","))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_closed_for_any_number_of_callers() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    let url = format!("redis://{}", proxy.address());
    let crowd = Crowd::start(&clients(), at_once(LIMIT), async || connect(&url).await).await;
    for _ in 0..2 {
        // Half-open: no packet reports the end.
        proxy.abandon();
        crowd.has_failed();
        crowd.is_answered();
    }
    crowd.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_closed_by_calls_of_each_kind() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    let url = format!("redis://{}", proxy.address());
    let rule = at_once(5);
    for kind in ["acquire", "look", "settle", "reset"] {
        let store = connect(&url).await;
        let key = Key::from(kind);
        let call = async || {
            let call = async {
                match kind {
                    "acquire" => acquire(&store, &rule, key).await.map(drop),
                    "look" => look(&store, &rule, key).await.map(drop),
                    // A charge of another store, which has a connection of its own.
                    "settle" => {
                        let other = connect(&server.url()).await;
                        let mut charged = acquire(&other, &rule, key).await.unwrap();
                        let charge = charged.take_charge().unwrap();
                        let settlement = Settlement::new(policy(), &rule, key, charge, 0);
                        store.settle(vec![settlement.unwrap()]).await
                    }
                    _ => store.reset(policy(), &key).await,
                }
            };
            timeout(DEADLINE, call).await.is_ok_and(|done| done.is_ok())
        };
        while !call().await {}
        proxy.abandon();
        let start = Instant::now();
        while !call().await {
            assert!(start.elapsed() < 20 * RESPONSE, "{kind}");
            // Only one call at a time.
            sleep(DEADLINE).await;
        }
    }
}

#[tokio::test]
async fn a_call_dropped_before_the_connection_exists_spends_nothing() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    let builder = Redis::<TokenBucket>::builder(format!("redis://{}", proxy.address()));
    let store: Redis<TokenBucket> = builder.connect_lazy().unwrap();
    proxy.set_answers(servers::Flow::Hold);
    let (rule, key) = (at_once(5), Key::from(7_u64));
    for _ in 0..3 {
        let call = timeout(Duration::from_millis(50), acquire(&store, &rule, key)).await;
        assert!(call.is_err());
    }
    proxy.set_answers(servers::Flow::Forward);
    until_answered(&store, &rule, key).await;
    // Only the call just made is charged.
    assert_eq!(look(&store, &rule, key).await.unwrap().remaining(), Some(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_in_a_cluster() {
    let cluster = servers::Cluster::start();
    let url = url_of(&cluster);
    let mut master = &cluster.nodes()[0];
    let (clients, _) = clients_of(&url, master).await;
    let crowd = Crowd::start(&clients, at_once(LIMIT), async || connect(&url).await).await;
    let store = connect(&url).await;
    // There and back.
    for round in 0..2_u64 {
        master = cluster.hand_over(master);
        crowd.is_answered();
        // Every key, on a store that was idle meanwhile: no call fails.
        for n in 0..60_u64 {
            let decision = acquire(&store, &at_once(5), Key::from(n)).await.unwrap();
            assert_eq!(decision.remaining(), Some(4 - round));
        }
    }
    crowd.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_master_in_a_cluster_is_replaced_by_its_successor() {
    let cluster = servers::Cluster::start();
    let url = url_of(&cluster);
    // The first node of the URL.
    let master = &cluster.nodes()[0];
    let (clients, _) = clients_of(&url, master).await;
    let crowd = Crowd::start(&clients, at_once(LIMIT), async || connect(&url).await).await;
    master.pause();
    crowd.has_failed();
    cluster.wait_for_master(cluster.partner_of(master));
    crowd.is_answered();
    // A program that starts now finds the new master, too.
    let store = connect(&url).await;
    acquire(&store, &at_once(5), clients[0]).await.unwrap();
    master.resume();
    cluster.settle();
    crowd.is_answered();
    crowd.end().await;
}

/// One shard has no replica left, and its master dies or falls silent. Callers of the other shards
/// do not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_shard_of_a_cluster_does_not_affect_other_shards() {
    servers::watch_this_runtime();
    let options = servers::Redis::options().set("cluster-require-full-coverage", "no");
    let cluster = servers::Cluster::start_of(options);
    let url = url_of(&cluster);
    let [dead, living @ ..] = &cluster.nodes()[..3] else {
        panic!("expected three masters");
    };
    let mut of_living = Vec::new();
    for node in living {
        of_living.push(clients_of(&url, node).await.0[0]);
    }
    let of_dead = clients_of(&url, dead).await.0[0];
    cluster.partner_of(dead).kill();
    let rule = at_once(LIMIT);
    for is_killed in [false, true] {
        let mut stores = Vec::new();
        for (count, pause) in [(1, 20), (4, 50), (64, 250)] {
            let pauses = [100, 500].map(Duration::from_millis);
            // The callers stop before five calls have failed one after the other.
            let breaker = CircuitBreakerConfig::new().failures(2);
            let breaker = breaker.open_for(pauses[0], pauses[1]);
            let store = connect(&url).await.timeout(LONG).circuit_breaker(breaker);
            for key in of_living.iter().chain([&of_dead]) {
                let ask = Ask::new(policy(), &rule, *key, Cost::ONE);
                store.acquire(&[ask]).await.unwrap();
            }
            stores.push((count, pause, store));
        }
        if is_killed {
            dead.kill();
        } else {
            dead.pause();
        }
        let mut tasks = Vec::new();
        for (count, pause, store) in &stores {
            let was_late = Arc::new(AtomicBool::new(false));
            for key in of_living.iter().chain([&of_dead]) {
                for _ in 0..*count {
                    let late = (*key != of_dead).then(|| Arc::clone(&was_late));
                    tasks.push(tokio::spawn(calls(store.clone(), *key, *pause, late)));
                }
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        if is_killed {
            dead.restart();
        } else {
            dead.resume();
        }
        for (count, _, store) in stores {
            assert!(store.opened() > 0 && store.rejected() > 0, "{count}");
            // The dead shard comes back, too.
            let start = Instant::now();
            let ask = || Ask::new(policy(), &rule, of_dead, Cost::ONE);
            while let Err(error) = store.acquire(&[ask()]).await {
                assert!(start.elapsed() < 50 * RESPONSE, "{count}: {error:?}");
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Below the response timeout, and long enough that a late call is a failure.
const LONG: Duration = Duration::from_millis(400);

/// Makes calls for the time of several renewals. All fail on a dead shard, and none elsewhere,
/// unless the machine stalled. Then it is `late`, and the breaker may have counted as many
/// failures.
async fn calls<S>(store: S, key: Key, pause: u64, late: Option<Arc<AtomicBool>>)
where
    S: Store<TokenBucket, Error = StoreError>,
{
    let (rule, begun) = (at_once(LIMIT), Instant::now());
    while begun.elapsed() < 5 * RESPONSE {
        let start = Instant::now();
        let ask = Ask::new(policy(), &rule, key, Cost::ONE);
        let answer = store.acquire(&[ask]).await;
        match (answer, &late) {
            (answer, None) => assert!(answer.is_err()),
            (Ok(_), _) => {}
            (Err(error), Some(late)) => {
                if error.is_timeout() && servers::slack_since(start) > LONG {
                    late.store(true, SeqCst);
                }
                assert!(late.load(SeqCst), "{error:?}");
            }
        }
        sleep(Duration::from_millis(pause)).await;
    }
}

//! Exactly the limit is admitted, with any number of callers.

use std::{env, process::Stdio};

use tokio::process::Command;
use tollgate::{
    Cost, Policy,
    key::Key,
    store::{
        Redis, Store,
        driver::{Ask, Settlement},
    },
};

use super::{acquire, acquire_many, admitted, at_once, look, policy, servers, store};

const LIMIT: u64 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_and_tasks_together_admit_the_limit() {
    let server = servers::Redis::start();
    let (mut tasks, mut stores) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        stores.push(store(server.url()).await);
    }
    for task in 0..16 {
        // Clones share a queue and a connection. The four stores share nothing.
        let store = stores[task % 4].clone();
        tasks.push(tokio::spawn(async move {
            admitted(&store, &at_once(LIMIT), Key::from(7_u64), 25).await
        }));
    }
    let mut sum = 0;
    for task in tasks {
        sum += task.await.unwrap();
    }
    assert_eq!(sum, LIMIT);
    let stats = stores.iter().map(Redis::stats);
    let (requests, calls) = stats.fold((0, 0), |(requests, calls), stats| {
        (requests + stats.requests, calls + stats.calls)
    });
    assert_eq!(calls, 400);
    assert!(requests < calls, "no calls were batched: {requests}");
}

const URL: &str = "TOLLGATE_TEST_REDIS_URL";
const CALLS: u64 = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_together_admit_the_limit() {
    let server = servers::Redis::start();
    let processes: Vec<_> = (0..8)
        .map(|_| {
            Command::new(env::current_exe().unwrap())
                .args([
                    "exact::one_of_the_processes",
                    "--exact",
                    "--ignored",
                    "--nocapture",
                ])
                .env(URL, server.url())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap()
        })
        .collect();
    let mut sum = 0;
    for process in processes {
        let output = process.wait_with_output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        let admitted = text.lines().find_map(|line| line.split_once("admitted: "));
        sum += admitted.unwrap().1.parse::<u64>().unwrap();
    }
    assert_eq!(sum, LIMIT);
}

#[tokio::test]
#[ignore = "one of the processes that `processes_together_admit_the_limit` starts"]
async fn one_of_the_processes() {
    let url = env::var(URL).expect("started by the other test, with the server's URL");
    let store = store(url).await;
    let admitted = admitted(&store, &at_once(LIMIT), Key::from(7_u64), CALLS).await;
    assert!(admitted <= CALLS);
    println!("admitted: {admitted}");
}

#[tokio::test]
async fn several_asks_are_spent_together_or_not_at_all() {
    let server = servers::Redis::start();
    let store = store(server.url()).await;
    let key = Key::from(7_u64);
    let (hour, minute) = (Policy::new("hour"), Policy::new("minute"));
    let (wide, narrow) = (at_once(10), at_once(3));
    let ask = |cost: u64| {
        let cost = Cost::new(cost).unwrap();
        [
            Ask::new(&hour, &wide, key, cost),
            Ask::new(&minute, &narrow, key, cost),
        ]
    };
    let both = store.acquire(&ask(2)).await.unwrap();
    assert!(both.is_admitted());
    let left = |decisions: &tollgate::store::driver::Decisions| -> Vec<_> {
        let decisions = decisions.as_slice().iter();
        decisions.map(|decision| decision.remaining()).collect()
    };
    assert_eq!(left(&both), [Some(8), Some(1)]);
    let refused = store.acquire(&ask(2)).await.unwrap();
    let verdicts: Vec<_> = refused
        .as_slice()
        .iter()
        .map(|one| one.is_admitted())
        .collect();
    assert_eq!(verdicts, [true, false]);
    // The ask that would have passed is not charged either.
    assert_eq!(left(&refused), [Some(8), Some(1)]);
    assert_eq!(
        left(&store.look(&ask(1)).await.unwrap()),
        [Some(8), Some(1)]
    );
    // Several clients in one call, because one server holds them all.
    let apart = [
        Ask::new(&hour, &wide, Key::from(8_u64), Cost::ONE),
        Ask::new(&hour, &wide, Key::from(9_u64), Cost::ONE),
    ];
    assert_eq!(
        left(&store.acquire(&apart).await.unwrap()),
        [Some(9), Some(9)]
    );
}

#[tokio::test]
async fn a_settlement_refunds_or_charges_more() {
    let server = servers::Redis::start();
    let (store, rule, key) = (store(server.url()).await, at_once(10), Key::from(7_u64));
    let settle = async |actual| {
        let charge = acquire_many(&store, &rule, key, 4)
            .await
            .unwrap()
            .take_charge();
        let settlement = Settlement::new(policy(), &rule, key, charge.unwrap(), actual).unwrap();
        store.settle(vec![settlement]).await.unwrap();
        look(&store, &rule, key).await.unwrap().remaining()
    };
    assert_eq!(settle(1).await, Some(9));
    assert_eq!(settle(0).await, Some(9));
    // A settlement above the remaining units leaves a debt, which time must repay before anything
    // passes.
    assert_eq!(settle(12).await, Some(0));
    let debt = acquire(&store, &rule, key).await.unwrap();
    let a_day = std::time::Duration::from_secs(86_400);
    assert!(debt.retry_after() > Some(3 * a_day), "{debt:?}");
    store.reset(policy(), &key).await.unwrap();
    assert_eq!(
        look(&store, &rule, key).await.unwrap().remaining(),
        Some(10)
    );
    assert!(server.keys().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_settlements_are_all_applied() {
    let server = servers::Redis::start();
    let (rule, key) = (at_once(200), Key::from(7_u64));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (url, rule) = (server.url(), rule);
            tokio::spawn(async move {
                let store = store(url).await;
                for _ in 0..5 {
                    let charge = acquire_many(&store, &rule, key, 5)
                        .await
                        .unwrap()
                        .take_charge();
                    let settlement =
                        Settlement::new(policy(), &rule, key, charge.unwrap(), 2).unwrap();
                    store.settle(vec![settlement]).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let store = store(server.url()).await;
    assert_eq!(
        look(&store, &rule, key).await.unwrap().remaining(),
        Some(120)
    );
}

#[tokio::test]
async fn a_look_changes_nothing() {
    let server = servers::Redis::start();
    let (store, rule, key) = (store(server.url()).await, at_once(10), Key::from(7_u64));
    assert_eq!(
        look(&store, &rule, key).await.unwrap().remaining(),
        Some(10)
    );
    assert!(server.keys().is_empty());
    assert_eq!(admitted(&store, &rule, key, 4).await, 4);
    for _ in 0..3 {
        assert_eq!(look(&store, &rule, key).await.unwrap().remaining(), Some(6));
    }
    let another = at_once(4);
    assert_eq!(
        look(&store, &another, key).await.unwrap().remaining(),
        Some(4)
    );
}

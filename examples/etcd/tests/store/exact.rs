//! Exactly the limit is admitted, with any number of callers.

use tollgate::{
    AnyRule, Cost,
    algorithm::Algorithm,
    key::Key,
    store::{
        Store,
        driver::{Ask, CasStore},
    },
};

use crate::common::{admitted, at_once, keys, node, policy, servers};

const LIMIT: u64 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_and_tasks_together_admit_the_limit() {
    let server = servers::Etcd::start();
    let (mut nodes, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        nodes.push(node(&server).await);
    }
    for task in 0..16 {
        // Clones share swaps. The four nodes share nothing.
        let node = nodes[task % 4].clone();
        tasks.push(tokio::spawn(async move {
            admitted(&node, &at_once(LIMIT), Key::from(7_u64), 25).await
        }));
    }
    let mut sum = 0;
    for task in tasks {
        sum += task.await.unwrap();
    }
    assert_eq!(sum, LIMIT);
    let lost: u64 = nodes
        .iter()
        .map(CasStore::stats)
        .map(|stats| stats.lost)
        .sum();
    assert!(lost > 0, "no race was run");
    assert_eq!(keys(&server).await, 1);
}

#[tokio::test]
async fn nodes_that_take_turns_decide_like_the_memory_store() {
    let server = servers::Etcd::start();
    let nodes = [node::<AnyRule>(&server).await, node(&server).await];
    let rules = [
        // Full again before the next call, so mostly no state is worth keeping.
        "token-bucket 1000/1s burst=1",
        "token-bucket 300/1s burst=3",
        "leaky-bucket 200/s queue=4",
        "fixed-window 3/20ms",
        "sliding-window 4/20ms slices=4",
        "sliding-log 3/20ms",
        "cascade 100/s burst=2 > 50/s burst=2",
    ];
    for (first, rule) in (0..).step_by(3).zip(rules) {
        let rule: AnyRule = rule.parse().unwrap();
        let (mut states, mut passed) = ([None, None, None], 0);
        for n in 0..100_usize {
            let place = n % states.len();
            let key = Key::from(first + place as u64);
            let ask = Ask::new(policy(), &rule, key, Cost::ONE);
            let answer = nodes[n % 2].acquire(&[ask]).await.unwrap();
            let found = answer.as_slice()[0];
            let expected = rule.step(&mut states[place], found.at(), Cost::ONE);
            assert_eq!(found, expected.decision(), "{rule}, call {n}");
            passed += u32::from(found.is_admitted());
        }
        assert!(passed > 3, "{rule}: {passed}");
    }
    keys(&server).await;
}

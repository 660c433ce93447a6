//! The law of refunds on a real Redis, by its clock.

use std::time::Duration;

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use tollgate::{AnyRule, Quota, TokenBucket, store::Redis};

use super::{Op, ops, servers, stores::Client};

/// Buckets that fill within a fraction of a second: alone, decided by the bucket programs, and in
/// combinations.
fn rules() -> Vec<(&'static str, Vec<TokenBucket>)> {
    let bucket = |amount, millis, burst| {
        TokenBucket::new(Quota::new(amount, Duration::from_millis(millis))).burst(burst)
    };
    vec![
        ("token-bucket 100/600ms", vec![bucket(100, 600, 100)]),
        ("token-bucket 7/20ms burst=100", vec![bucket(7, 20, 100)]),
        (
            "token-bucket 100/600ms & token-bucket 9/20ms burst=60",
            vec![bucket(100, 600, 100), bucket(9, 20, 60)],
        ),
        (
            "cascade 1/10ms burst=50 > 100/600ms",
            vec![bucket(1, 10, 50), bucket(100, 600, 100)],
        ),
        (
            "three-color 1/10ms burst=40 peak=2/10ms peak-burst=90",
            vec![bucket(1, 10, 40), bucket(2, 10, 90)],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "servers live in real time")]
async fn an_exact_meter_refuses_nothing_that_redis_admitted() {
    let server = servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut tasks = Vec::new();
    for key in 0..300_u64 {
        let (text, buckets) = rules().swap_remove(key as usize % rules().len());
        let ops = ops(80).new_tree(&mut runner).unwrap().current();
        let (store, mut client) = (store.clone(), Client::new(text, buckets, key));
        tasks.push(tokio::spawn(async move {
            for op in ops {
                match op {
                    Op::Pass(part) => {
                        let nanos = client.fills_in() / 1000 * part;
                        tokio::time::sleep(Duration::from_nanos(nanos)).await;
                    }
                    op => client.act(&store, op).await,
                }
            }
            client.meter.refused()
        }));
    }
    for task in tasks {
        assert_eq!(task.await.unwrap(), Vec::<String>::new());
    }
    assert_eq!(store.stats().unsettled, 0);
}

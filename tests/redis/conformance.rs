//! The suite that every store passes, on a real server.

use std::time::Duration;

use tollgate::{
    AnyRule,
    store::Redis,
    testing::conformance::{Law, Suite},
};

/// All algorithms, alone and several at once.
const RULES: [&str; 13] = [
    "token-bucket 5/100ms",
    "token-bucket 5/1h",
    "token-bucket 4/1s initial=2 keep=1h",
    "leaky-bucket 20/s queue=4",
    "fixed-window 6/200ms",
    "fixed-window 6/1s offset=spread",
    "sliding-window 6/200ms slices=4",
    "sliding-log 5/200ms",
    "cascade 5/s burst=3 > 2/s burst=4",
    "three-color 5/s burst=3 peak=10/s peak-burst=6",
    "warm-up 9/1s over=2s",
    "warm-up-spaced 20/1s over=400ms",
    "token-bucket 5/100ms & fixed-window 9/1s",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold() {
    let server = super::servers::Redis::start();
    let store: Redis<AnyRule> = Redis::connect(server.url()).await.unwrap();
    let rules = RULES.map(|rule| rule.parse::<AnyRule>().unwrap());
    let report = Suite::with_rules(store, rules)
        .resolution(Duration::from_micros(1))
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .run()
        .await
        .unwrap();
    assert_eq!(report.left_out(), [Law::Fault]);
}

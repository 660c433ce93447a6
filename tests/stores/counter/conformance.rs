//! The conformance suite.

use support::timelines;
use tollgate::{
    AnyRule, FixedWindow, SlidingWindow,
    algorithm::Counted,
    store::driver::CounterStoreBuilder,
    testing::conformance::{Law, Report, Suite},
    time::ManualClock,
};

use super::cache::{Cache, Fault};

/// Runs the suite with everything that it can use, on a cache with this many yields.
async fn check<R>(rules: &[R], yields: u64, without: &[Law]) -> Report
where
    R: Counted,
{
    let clock = ManualClock::default();
    let cache = Cache::new(&clock).slow(11, yields);
    let store = CounterStoreBuilder::new(cache.clone())
        .clock(clock.clone())
        .build();
    let mut suite = Suite::with_rules(store, rules.iter().cloned())
        .clock(clock)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .settling_back()
        .repeating_deltas()
        .timelines(timelines())
        .fault(move |on| cache.fail([2 * u64::from(on); 3], Some(Fault::After)));
    for law in without {
        suite = suite.without(*law);
    }
    suite
        .run()
        .await
        .unwrap_or_else(|broken| panic!("{broken}"))
}

/// Windows of one length: a change of the limit alone admits nothing extra.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_under_windows_of_one_length() {
    for yields in [0, 3] {
        let report = check(&[5, 3, 40].map(FixedWindow::per_hour), yields, &[]).await;
        assert_eq!(report.left_out(), []);
        let spread = [5, 3].map(|limit| FixedWindow::per_hour(limit).spread());
        check(&spread, yields, &[]).await;
        for slices in [1, 4, 60] {
            let rules = [5, 3, 90].map(|limit| SlidingWindow::per_minute(limit).slices(slices));
            check(&rules, yields, &[]).await;
        }
    }
}

const RULES: [&str; 8] = [
    "fixed-window 5/1h",
    "fixed-window 3/200ms",
    "fixed-window 4/1d offset=spread",
    "fixed-window 9/1m offset=10s",
    "sliding-window 6/1h slices=4",
    "sliding-window 4/200ms",
    "sliding-window 7/1s slices=3",
    "sliding-window 70/1m slices=60",
];

/// All laws but [`Law::Change`]: a window of another length or algorithm has counters of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_under_rules_of_configuration() {
    let rules = RULES.map(|rule| rule.parse::<AnyRule>().unwrap());
    for yields in [0, 3] {
        let report = check(&rules, yields, &[Law::Change]).await;
        assert_eq!(report.left_out(), [Law::Change]);
    }
}

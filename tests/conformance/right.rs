//! Stores that are right.

use std::{fmt::Debug, sync::Arc, time::Duration};

use tollgate::{
    AnyRule, TokenBucket,
    algorithm::Algorithm,
    store::{AtCapacity, Local, LocalBuilder, Store, StoreExt},
    testing::{
        Fault, Faulty,
        conformance::{Law, Report, Suite},
    },
    time::{ManualClock, TokioClock},
};

use super::{
    common::PerSecond,
    flawed::{Flaw, Flawed},
    turns::InTurns,
};

/// All that can be checked of a store whose clock can be moved.
async fn check<R, S>(suite: Suite<R, S>, clock: &ManualClock) -> Report
where
    R: Algorithm + Debug + Send + Sync + 'static,
    S: Store<R, Answer: Send, Done: Send, Error: Debug + Send> + Clone + Send + Sync + 'static,
{
    let suite = suite
        .clock(clock.clone())
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn);
    suite.run().await.unwrap()
}

fn local<R: Algorithm>(clock: &ManualClock) -> Local<R, ManualClock> {
    LocalBuilder::new().clock(clock.clone()).build()
}

fn all_but_faults(report: &Report) {
    assert_eq!(report.left_out(), [Law::Fault]);
    assert_eq!(report.kept().len(), Law::ALL.len() - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_under_any_rule() {
    let clock = ManualClock::default();
    let store = local(&clock);
    let report = check(Suite::new(store.clone()), &clock).await;
    all_but_faults(&report);
    // That it did something at all; and in how much room.
    assert!(report.calls() > 10_000, "{report}");
    let inserted = store.stats().inserted;
    assert!((2_000..5_000).contains(&inserted), "{inserted} keys");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_under_token_buckets() {
    let rules = [
        TokenBucket::per_second(3),
        TokenBucket::per_minute(7).burst(4),
        TokenBucket::per_second(7),
        TokenBucket::per_second(1 << 40),
        TokenBucket::per_hour(5).burst(9).initial(2),
        TokenBucket::per_minute(1).burst(5).initial(8),
        TokenBucket::per_second(2)
            .burst(3)
            .initial(0)
            .keep(Duration::from_secs(9)),
    ];
    for choice in [AtCapacity::InheritDebts, AtCapacity::RefuseNewcomers] {
        let clock = ManualClock::default();
        let store = LocalBuilder::new()
            .capacity(20_000)
            .at_capacity(choice)
            .clock(clock.clone())
            .build();
        all_but_faults(&check(Suite::with_rules(store, rules), &clock).await);
    }
}

/// Rules that were written elsewhere, also such as let wait; and pairs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_under_rules_of_ones_own() {
    let clock = ManualClock::default();
    let rules = [PerSecond::new(3), PerSecond::new(40), PerSecond::waiting(2)];
    all_but_faults(&check(Suite::with_rules(local(&clock), rules), &clock).await);
    let rules = [2, 9].map(|limit| (TokenBucket::per_minute(limit), PerSecond::new(5)));
    all_but_faults(&check(Suite::with_rules(local(&clock), rules), &clock).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_in_all_that_stores_can_be_wrapped_in() {
    let clock = ManualClock::default();
    let store = || local::<AnyRule>(&clock);
    all_but_faults(&check(Suite::new(Arc::new(store())), &clock).await);
    all_but_faults(&check(Suite::new(store().boxed::<AnyRule>()), &clock).await);
    all_but_faults(&check(Suite::new(store().fail_open()), &clock).await);
    all_but_faults(&check(Suite::new(store().fail_closed().boxed::<AnyRule>()), &clock).await);
    let faulty = Faulty::new(Arc::new(store()).boxed::<AnyRule>());
    let counts = || faulty.faults().counts();
    all_but_faults(&check(Suite::new(faulty.clone()), &clock).await);
    assert!(counts().passed > 5_000 && counts().late == 0);
}

/// Answers that take their time are answers all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_answers_late() {
    let clock = ManualClock::default();
    let faulty = Faulty::new(local::<AnyRule>(&clock));
    let late = [Fault::Late(1), Fault::Late(2), Fault::Late(7)];
    faulty.faults().by_chance(7, 2, late);
    all_but_faults(&check(Suite::new(faulty.clone()), &clock).await);
    let counts = faulty.faults().counts();
    assert!(counts.late > 2_000 && counts.passed > 2_000, "{counts:?}");
}

/// Nobody moves its time: what is asked for is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_by_its_own_clock() {
    let suite = Suite::new(Local::new())
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .timelines(4);
    all_but_faults(&suite.run().await.unwrap());
}

/// Two nodes that share what they remember.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handles_that_take_turns() {
    let clock = ManualClock::default();
    let store = Flawed::new(&clock, Flaw::None);
    let nodes = InTurns::new(store.clone(), store);
    all_but_faults(&check(Suite::new(nodes), &clock).await);
}

/// Time that passes where everybody sleeps.
#[tokio::test(start_paused = true)]
async fn memory_by_a_clock_that_is_paused() {
    let store: Local<AnyRule, _> = LocalBuilder::new().clock(TokioClock::new()).build();
    let suite = Suite::new(store)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .timelines(4);
    all_but_faults(&suite.run().await.unwrap());
}

/// The store of these tests, before anything is broken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_store_without_a_flaw() {
    let clock = ManualClock::default();
    let store = Flawed::new(&clock, Flaw::None);
    all_but_faults(&check(Suite::new(store), &clock).await);
}

/// Several at once, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_settles_back() {
    let clock = ManualClock::default();
    let store = || Flawed::new(&clock, Flaw::SettlesBack);
    all_but_faults(&check(Suite::new(store()).settling_back(), &clock).await);
}

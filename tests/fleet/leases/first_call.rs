//! The first call of a key: it keeps no leases, and others wait for its answer, but not for long.

use std::{future::IntoFuture, time::Duration};

use futures_util::poll;
use tollgate::{
    Cost, Policy, TokenBucket,
    store::{
        LeaseConfig, Store, StoreExt,
        driver::{Ask, Decisions, Transactional},
    },
    testing::{Fault, Faulty},
    time::ManualClock,
};

use crate::leases::{map_store::MapStore, shared::node};

const HOLD: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Answered,
    Failed,
    Dropped,
}

/// Whatever becomes of the first call, and whatever the rules are, no other call waits for ever.
#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_the_first_one_go_on() {
    let rule = TokenBucket::per_second(1000);
    for end in [End::Answered, End::Failed, End::Dropped] {
        for other in [rule, TokenBucket::per_second(2000)] {
            let clock = ManualClock::default();
            let server = Transactional::with_clock(MapStore::default(), clock.clone());
            let faulty = Faulty::new(server);
            let faults = faulty.faults();
            let config = LeaseConfig::new().duration(HOLD).clock(clock.clone());
            let node = faulty.timeout(HOLD).leased(config);
            let policy = Policy::new("api");
            let call = |rule| {
                let (node, policy) = (node.clone(), policy.clone());
                async move {
                    let ask = Ask::new(&policy, &rule, "alice".into(), Cost::ONE);
                    node.acquire(&[ask]).await
                }
            };
            faults.script([Some(match end {
                End::Failed => Fault::Silent,
                End::Answered | End::Dropped => Fault::Held,
            })]);
            let mut first = Box::pin(call(rule));
            assert!(poll!(&mut first).is_pending());
            let mut second = Box::pin(call(other));
            assert!(poll!(&mut second).is_pending());
            assert_eq!(faults.counts().passed, 0, "one request at a time");
            let first = match end {
                End::Dropped => {
                    drop(first);
                    None
                }
                End::Failed => Some(first.await.is_err()),
                End::Answered => {
                    faults.release();
                    Some(first.await.unwrap().is_admitted())
                }
            };
            assert_ne!(first, Some(false), "{end:?} {other}");
            let second = tokio::time::timeout(Duration::from_secs(10), second).await;
            let second = second.expect("an end");
            assert_eq!(second.is_ok(), end != End::Failed, "{end:?} {other}");
            let third = tokio::time::timeout(Duration::from_secs(10), call(other)).await;
            assert!(third.expect("an end").unwrap().is_admitted());
        }
    }
}

/// A caller may hold a call that it does not poll, as `select!` does with its other branches. Calls
/// of the same key are decided all the same, whether the held one is the first of the key or a
/// later one, and whether it is about other keys, too.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_polled_holds_up_no_other() {
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(1000));
    let ask = |key: &'static str| Ask::new(&policy, &rule, key.into(), Cost::ONE);
    for case in 0..8 {
        let [is_polled, is_known, is_of_two] = [1, 2, 4].map(|bit| case & bit > 0);
        let clock = ManualClock::default();
        let server = Transactional::with_clock(MapStore::default(), clock.clone());
        let faulty = Faulty::new(server);
        let faults = faulty.faults();
        let config = LeaseConfig::new().duration(HOLD).clock(clock.clone());
        let node = faulty.timeout(HOLD).leased(config);
        if is_known {
            assert!(node.acquire(&[ask("alice")]).await.unwrap().is_admitted());
        }
        if is_polled || !is_of_two {
            faults.script([Some(Fault::Held)]);
        }
        let asks = [ask("alice"), ask("bob")];
        let some = if is_of_two { &asks[..] } else { &asks[..1] };
        let mut held = Box::pin(node.acquire(some).into_future());
        if is_polled {
            assert!(poll!(&mut held).is_pending());
        }
        let begun = tokio::time::Instant::now();
        for n in 0..3 {
            let call = node.acquire(&[ask("alice")]).into_future();
            let answer = tokio::time::timeout(Duration::from_secs(1), call).await;
            let answer = answer.unwrap_or_else(|_| panic!("call {n} of case {case} waits"));
            assert!(answer.unwrap().is_admitted());
        }
        assert!(begun.elapsed() < Duration::from_secs(1), "only one waits");
        faults.release();
        assert!(held.await.unwrap().is_admitted(), "case {case}");
        let stats = node.stats();
        assert_eq!(
            stats.granted,
            stats.spent + stats.left + stats.expired + stats.returned + stats.lost,
            "{stats:?}"
        );
    }
}

/// A store that takes two seconds is asked by few of the calls of a key that wait for it, and they
/// all end.
#[tokio::test(start_paused = true)]
async fn a_slow_store_is_not_asked_by_all_calls_that_wait() {
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(100_000));
    let ask = || [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
    let server = Transactional::with_clock(MapStore::default(), ManualClock::default());
    let faulty = Faulty::new(server);
    let faults = faulty.faults();
    faults.always(Fault::Held);
    let release = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        // The first answers lead to further requests.
        for _ in 0..100 {
            faults.release();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let node = faulty.leased(
        LeaseConfig::new()
            .duration(HOLD)
            .clock(ManualClock::default()),
    );
    let calls = (0..1000).map(|_| node.acquire(&ask()).into_future());
    let calls = futures_util::future::join_all(calls);
    let ((), decisions) = tokio::join!(release, calls);
    for decision in decisions {
        assert!(decision.unwrap().is_admitted());
    }
    let asked = faults.counts().held;
    // One more for each 250 ms, and those that the first answers lead to.
    assert!(asked <= 16, "{asked} requests");
}

/// A store without a deadline loses some answers: the calls that wait for them lose no more than
/// their own.
#[tokio::test(start_paused = true)]
async fn answers_that_never_come_hold_up_no_other_call() {
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(1000));
    let ask = || [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
    for silent in 1..4 {
        let server = Transactional::with_clock(MapStore::default(), ManualClock::default());
        let faulty = Faulty::new(server);
        let faults = faulty.faults();
        faults.script(vec![Some(Fault::Silent); silent]);
        let node = faulty.leased(
            LeaseConfig::new()
                .duration(HOLD)
                .clock(ManualClock::default()),
        );
        let calls = (0..10).map(|_| node.acquire(&ask()).into_future());
        let calls = calls.map(|call| tokio::time::timeout(Duration::from_secs(30), call));
        let answers = futures_util::future::join_all(calls).await;
        let ended = answers.into_iter().flatten();
        let admitted = ended.filter(|answer| answer.as_ref().is_ok_and(Decisions::is_admitted));
        assert!(admitted.count() >= 10 - silent, "{silent} answers are lost");
        let later = tokio::time::timeout(Duration::from_secs(1), node.acquire(&ask())).await;
        assert!(later.expect("an end").unwrap().is_admitted());
    }
}

#[tokio::test]
async fn a_key_that_is_called_once_in_a_hold_keeps_nothing() {
    let (clock, states) = (ManualClock::default(), MapStore::default());
    let config = LeaseConfig::new().duration(HOLD).keys(100);
    let node = crate::leases::shared::node(&states, &clock, config);
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(1000));
    for key in 0..10_000_u64 {
        let ask = Ask::new(&policy, &rule, key.into(), Cost::ONE);
        assert!(node.acquire(&[ask]).await.unwrap().is_admitted());
    }
    let stats = node.stats();
    assert_eq!([stats.keys, stats.over_capacity], [0, 0], "{stats:?}");
    assert_eq!([stats.asked, stats.spent], [10_000, 10_000], "{stats:?}");
}

/// The numbers of a call that the store decides are those of the store, also above the burst.
#[tokio::test]
async fn a_first_call_has_the_numbers_of_the_store() {
    let policy = Policy::new("api");
    let bucket = TokenBucket::per_second(10).burst(100);
    for rule in [bucket, bucket.initial(50), bucket.initial(500)] {
        let config = LeaseConfig::new().duration(HOLD).nodes(1);
        let clock = ManualClock::default();
        let leased = node(&MapStore::default(), &clock, config);
        let ask = Ask::new(&policy, &rule, "alice".into(), Cost::ONE);
        let first = leased.acquire(&[ask]).await.unwrap();
        let look = leased.look(&[ask]).await.unwrap();
        let [first, look] = [first, look].map(|decisions| decisions.as_slice()[0].remaining());
        assert_eq!(first, look, "{rule}");
    }
}

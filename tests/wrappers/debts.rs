//! What is owed after an outage, and how it is settled.

use std::{
    future::{Future, IntoFuture},
    task::{Context, Waker},
    time::Duration,
};

use tokio::time::{Instant, advance};
use tollgate::{
    Policy, Quota, TokenBucket,
    key::Key,
    store::{Store, StoreExt},
};

use crate::{
    fakes::{Asked, Bucket, Fault, Kind, Op, local},
    fall_back::{DOWN, set, set_with},
};

/// What has been refilled meanwhile is not owed: a client that kept to its rate for hours is not locked out for hours.
#[tokio::test(start_paused = true)]
async fn after_a_long_outage_only_what_still_matters_is_settled() {
    let set = set();
    set.down();
    for _ in 0..50 {
        assert_eq!(set.pass("a", 1).await, 1);
        advance(Duration::from_secs(720)).await;
    }
    // By now all is refilled: nothing is owed, and the store is asked at once.
    set.up();
    let calls = set.remote.calls().len();
    assert_eq!(set.pass("a", 1).await, 1);
    assert_eq!(set.remote.calls()[calls..], [Op::Acquire]);
    assert_eq!((set.store.owing(), set.store.settled()), (0, 0));
    // Two of the five are still missing.
    set.down();
    assert_eq!(set.pass("b", 5).await, 5);
    advance(Duration::from_secs(3 * 720)).await;
    set.up();
    assert_eq!(set.pass("b", 1).await, 1);
    assert_eq!(set.settled(), [("b".into(), 2)]);
    assert_eq!(set.there("b"), 7);
}

#[tokio::test(start_paused = true)]
async fn other_keys_debts_are_settled_beside_later_calls_so_many_at_once() {
    let set = set_with(65_536, 4);
    set.down();
    for key in 0..20_u64 {
        assert_eq!(set.pass(key, 3).await, 3);
    }
    assert_eq!(set.store.owing(), 20);
    set.up();
    // Nobody knows yet that it answers: the first call settles nothing, save what is its own.
    assert_eq!(set.pass("other", 1).await, 1);
    assert_eq!(set.store.owing(), 20);
    let mut owing = 20;
    for _ in 0..5 {
        assert_eq!(set.pass("other", 1).await, 1);
        owing -= 4;
        assert_eq!(set.store.owing(), owing);
    }
    assert!(set.remote.arrived().iter().all(|call| call.len() == 4));
    let mut settled = set.settled();
    settled.sort_by_key(|(key, _)| format!("{:?}", key.labelled()));
    settled.dedup();
    assert_eq!(settled.len(), 20);
    assert!(settled.iter().all(|(_, units)| *units == 3));
    assert!((0..20_u64).all(|key| set.there(key) == 7));
    assert_eq!(set.pass("other", 10).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_settles_its_own_takes_others_with_it() {
    let set = set_with(65_536, 4);
    set.down();
    for key in 0..10_u64 {
        assert_eq!(set.pass(key, 1).await, 1);
    }
    set.up();
    assert_eq!(set.pass(3, 1).await, 1);
    let arrived = set.remote.arrived();
    assert_eq!(
        (arrived.len(), arrived[0].len(), set.store.owing()),
        (1, 4, 6)
    );
    assert_eq!(arrived[0][0].key, Key::from(3));
}

/// Without a breaker and without a deadline: nothing is sent to a store that hangs that would be done later over and over.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_finds_no_settlements_when_it_goes_on() {
    let set = set();
    let store = set
        .remote
        .clone()
        .timeout(Duration::from_millis(100))
        .fall_back_to(set.local.clone())
        .share(1, 2);
    set.remote.usually(Fault::Mute);
    for _ in 0..30 {
        assert!(set.asked.acquire(&store, "a", 1).await.is_ok());
    }
    // The first call may have been decided there. All others only looked.
    assert_eq!(
        (set.remote.count(Op::Acquire), set.remote.count(Op::Settle)),
        (1, 0)
    );
    assert_eq!(set.remote.count(Op::Look), 29);
    assert_eq!(set.there("a"), 9);
    set.up();
    assert_eq!(set.asked.pass(&store, "a", 20).await, 4);
    assert_eq!(set.settled(), [("a".into(), 5)]);
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_lost_charge_a_client_twice_at_most() {
    let set = set();
    set.remote.usually(Fault::Lossy(Kind::Timeout));
    assert_eq!(set.pass("a", 20).await, 5);
    assert_eq!(set.there("a"), 9);
    set.up();
    assert_eq!(set.pass("a", 20).await, 4);
    // A settlement that was made and not heard of is made again.
    set.down();
    assert_eq!(set.pass("b", 2).await, 2);
    set.remote.plan([Fault::None, Fault::Lossy(Kind::Timeout)]);
    set.up();
    assert_eq!(set.pass("b", 1).await, 1);
    assert_eq!((set.there("b"), set.store.owing()), (8, 1));
    assert_eq!(set.pass("b", 20).await, 5);
    let of_b: Vec<u64> = set.settled()[1..].iter().map(|(_, units)| *units).collect();
    assert_eq!(of_b, [2, 3]);
}

/// While one call asks whether the store is there, the others on its key wait for nothing.
#[tokio::test(start_paused = true)]
async fn only_one_call_on_a_key_waits_for_a_store_that_may_be_gone() {
    let set = set();
    set.down();
    assert_eq!(set.pass("a", 1).await, 1);
    set.remote.usually(Fault::Slow(Duration::from_secs(5)));
    let begun = Instant::now();
    let first = tokio::spawn({
        let (store, asked) = (set.store.clone(), set.asked.clone());
        async move { asked.acquire(&store, "a", 1).await.unwrap() }
    });
    tokio::task::yield_now().await;
    assert_eq!(set.remote.calls().last(), Some(&Op::Look));
    let calls = set.remote.calls().len();
    assert_eq!(set.pass("a", 10).await, 4);
    assert_eq!(
        (begun.elapsed(), set.remote.calls().len()),
        (Duration::ZERO, calls)
    );
    let first = first.await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(15));
    // What the others were admitted meanwhile was settled with it.
    assert_eq!(set.settled(), [("a".into(), 5)]);
    assert_eq!((first.remaining(), set.there("a")), (Some(4), 4));
    assert_eq!(set.store.owing(), 0);
}

/// What is admitted while the settlement itself is on its way is settled beside the next call, which need not wait for it.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_never_left_alone_gets_back_to_the_store() {
    let set = set();
    set.down();
    assert_eq!(set.pass("a", 1).await, 1);
    set.remote.usually(Fault::Slow(Duration::from_secs(1)));
    let first = tokio::spawn({
        let (store, asked) = (set.store.clone(), set.asked.clone());
        async move { asked.acquire(&store, "a", 1).await.unwrap() }
    });
    advance(Duration::from_millis(1)).await;
    // On its way: the look was answered a second ago, and the settlement was not.
    for _ in 0..100 {
        if set.remote.count(Op::Settle) == 0 {
            advance(Duration::from_millis(50)).await;
            tokio::task::yield_now().await;
        }
    }
    assert_eq!((set.remote.count(Op::Settle), set.settled().len()), (1, 0));
    assert_eq!(set.pass("a", 2).await, 2);
    assert_eq!(set.store.owing(), 1);
    assert!(first.await.unwrap().is_admitted());
    assert_eq!(set.settled(), [("a".into(), 1)]);
    // Not due any more: it goes beside.
    let calls = set.remote.calls().len();
    assert_eq!(set.pass("a", 1).await, 1);
    assert_eq!(set.remote.calls()[calls..], [Op::Acquire, Op::Settle]);
    assert_eq!(set.settled(), [("a".into(), 1), ("a".into(), 2)]);
    assert_eq!((set.there("a"), set.store.owing()), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_owed_is_not_lost_where_a_call_is_dropped() {
    // Each call below is dropped after so many polls: when it looks, when it settles, when it asks.
    for polls in 0..12 {
        let set = set();
        set.down();
        assert_eq!(set.pass("a", 3).await, 3);
        let acquires = set.remote.count(Op::Acquire);
        set.remote.usually(Fault::Slow(Duration::from_millis(10)));
        let mut call = Box::pin(set.store.acquire(&[set.asked.ask("a", 1)]).into_future());
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..polls {
            if call.as_mut().poll(&mut cx).is_ready() {
                break;
            }
            advance(Duration::from_millis(5)).await;
        }
        drop(call);
        let spent = set.remote.count(Op::Acquire) > acquires;
        let settled: u64 = set.settled().iter().map(|(_, units)| *units).sum();
        if settled == 0 {
            assert_eq!(
                (set.store.owing(), set.there("a")),
                (1, 10),
                "after {polls}"
            );
        }
        set.up();
        let passed = set.pass("a", 20).await;
        assert!(
            passed == 7 || (spent && passed == 6),
            "{passed} after {polls}"
        );
        assert_eq!(set.store.owing(), 0);
        assert_eq!(set.settled(), [("a".into(), 3)]);
    }
}

/// The same of debts that are settled beside.
#[tokio::test(start_paused = true)]
async fn what_is_settled_beside_is_not_lost_where_the_call_is_dropped() {
    for polls in 0..8 {
        let set = set();
        set.down();
        assert_eq!(set.pass("a", 3).await, 3);
        set.up();
        assert_eq!(set.pass("b", 1).await, 1);
        set.remote.usually(Fault::Slow(Duration::from_millis(10)));
        let mut call = Box::pin(set.store.acquire(&[set.asked.ask("b", 1)]).into_future());
        assert_eq!(set.remote.count(Op::Settle), 1);
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..polls {
            if call.as_mut().poll(&mut cx).is_ready() {
                break;
            }
            advance(Duration::from_millis(5)).await;
        }
        drop(call);
        set.up();
        assert_eq!(set.pass("a", 20).await, 7, "after {polls}");
        assert_eq!(set.settled(), [("a".into(), 3)]);
        assert_eq!(set.store.owing(), 0);
    }
}

/// An answer waits for the settlement beside it: one that is given up would be made again.
#[tokio::test(start_paused = true)]
async fn what_is_settled_beside_a_faster_answer_is_settled_once() {
    let set = set();
    set.down();
    assert_eq!(set.pass("a", 3).await, 3);
    set.up();
    assert_eq!(set.pass("b", 1).await, 1);
    set.remote
        .plan([Fault::None, Fault::Slow(Duration::from_millis(20))]);
    assert_eq!(set.pass("b", 1).await, 1);
    assert_eq!(
        (set.settled(), set.store.owing()),
        (vec![("a".into(), 3)], 0)
    );
    assert_eq!(set.remote.dropped(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_beside_that_fails_is_made_later_and_delays_nobody() {
    let set = set();
    set.down();
    assert_eq!(set.pass("a", 3).await, 3);
    set.up();
    assert_eq!(set.pass("b", 1).await, 1);
    for fault in [DOWN, Fault::FailsAtOnce(Kind::Timeout)] {
        set.remote.plan([Fault::None, fault]);
        let calls = set.remote.calls().len();
        assert_eq!(set.pass("b", 1).await, 1);
        assert_eq!(set.remote.calls()[calls..], [Op::Acquire, Op::Settle]);
        assert_eq!((set.store.owing(), set.settled().len()), (1, 0));
    }
    assert_eq!(set.pass("b", 1).await, 1);
    assert_eq!(set.settled(), [("a".into(), 3)]);
    assert_eq!(set.pass("a", 20).await, 7);
}

#[tokio::test(start_paused = true)]
async fn memory_for_debts_is_bounded_and_what_is_lost_is_counted() {
    let set = set_with(100, 16);
    set.down();
    for key in 0..300_u64 {
        assert_eq!(set.pass(key, 2).await, 2);
        assert!(set.store.owing() <= 100);
    }
    assert_eq!((set.store.owing(), set.store.lost()), (100, 400));
    // What has been refilled gives way, where it is found: one in a few looks.
    advance(Duration::from_secs(2 * 720)).await;
    for key in 1000..1050_u64 {
        assert_eq!(set.pass(key, 2).await, 2);
    }
    assert_eq!(set.store.owing(), 100);
    assert!(set.store.lost() <= 420, "{}", set.store.lost());
    // Without any memory, all is lost, and nothing more passes here for that.
    let set = set_with(0, 16);
    set.down();
    assert_eq!(set.pass("a", 20).await, 5);
    assert_eq!((set.store.owing(), set.store.lost()), (0, 5));
}

/// Two policies of one name and key are one to a store; two names are two.
#[tokio::test(start_paused = true)]
async fn debts_are_kept_by_policy_and_key() {
    let set = set();
    let other = Asked {
        policy: Policy::new("other"),
        ..set.asked.clone()
    };
    set.down();
    assert_eq!(set.pass("a", 2).await, 2);
    assert_eq!(other.pass(&set.store, "a", 3).await, 3);
    assert_eq!(set.store.owing(), 2);
    set.up();
    assert_eq!(other.pass(&set.store, "a", 20).await, 7);
    assert_eq!(set.pass("a", 20).await, 8);
    assert_eq!(set.store.settled(), 5);
}

/// Many calls on one key in the instant in which the store is found again, on lines of different lengths.
#[tokio::test(start_paused = true)]
async fn a_crowd_finds_no_fresh_burst_either() {
    for millis in [0, 1, 10] {
        let set = set();
        set.down();
        assert_eq!(set.pass("a", 64).await, 5);
        set.remote.usually(Fault::Slow(Duration::from_millis(10)));
        // The look is answered; the settlement takes longer than what is asked beside it.
        let slow = Duration::from_millis(10 * millis);
        set.remote.plan([Fault::None, Fault::Slow(slow)]);
        let calls: Vec<_> = (0..64)
            .map(|n| {
                let (store, asked) = (set.store.clone(), set.asked.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(n % 8)).await;
                    asked.acquire(&store, "a", 1).await.unwrap().is_admitted()
                })
            })
            .collect();
        let mut passed = 0;
        for call in calls {
            passed += usize::from(call.await.unwrap());
        }
        assert!(passed <= 5, "{passed}");
        assert_eq!(passed + set.pass("a", 64).await, 5);
        assert_eq!(set.settled(), [("a".into(), 5)]);
    }
}

/// Threads that meet a store which comes and goes: in the end, each unit that was admitted here was settled there once.
#[test]
fn between_threads_nothing_is_lost_and_nothing_settled_twice() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        // Nothing is refilled as long as this takes.
        let bucket = TokenBucket::new(Quota::new(1, Quota::MAX_PERIOD)).burst(1_000_000);
        let (remote, local, asked) = (Bucket::new(), local(), Asked::of(bucket));
        let store = remote
            .clone()
            .fall_back_to(local.clone())
            .per_call(3)
            .share(1, 1);
        let tasks: Vec<_> = (0..8_u64)
            .map(|task| {
                let (remote, store, asked) = (remote.clone(), store.clone(), asked.clone());
                tokio::spawn(async move {
                    for n in 0..400_u64 {
                        match (n * 7 + task) % 40 {
                            0 => remote.usually(DOWN),
                            13 => remote.usually(Fault::FailsAtOnce(Kind::Timeout)),
                            20 | 30 => remote.usually(Fault::None),
                            25 => remote.usually(Fault::Slow(Duration::from_millis(1))),
                            _ => {}
                        }
                        let call = asked.acquire(&store, (n + task) % 10, 1);
                        if n % 17 == task {
                            // Given up somewhere on its way.
                            let time = Duration::from_micros(n * 10);
                            drop(tokio::time::timeout(time, call).await);
                        } else {
                            assert!(call.await.unwrap().is_admitted());
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        remote.usually(Fault::None);
        for key in 0..10_u64 {
            assert_eq!(asked.pass(&store, key, 3).await, 3);
        }
        let left = |key: u64| {
            local
                .look(&asked.policy, &asked.rule, &key.into())
                .remaining()
        };
        let admitted: u64 = (0..10).map(|key| 1_000_000 - left(key).unwrap()).sum();
        assert!(admitted > 0);
        assert_eq!(
            (store.settled(), store.owing(), store.lost()),
            (admitted, 0, 0)
        );
        assert_eq!(remote.running(), 0);
    });
}

//! `.timeout(…)`: a deadline for each answer.

use std::{
    future::{Future, IntoFuture},
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{Instant, advance},
};
use tollgate::{
    TokenBucket,
    store::{
        Store, StoreExt,
        driver::{Check, Decisions},
    },
};

use crate::fakes::{Asked, Bucket, Fault, Kind, OnlyAsked, Op, Remote, at_once};

const DEADLINE: Duration = Duration::from_millis(100);

fn asked() -> Asked {
    Asked::of(TokenBucket::per_hour(10))
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_passes_unchanged() {
    let (remote, asked) = (Bucket::new(), asked());
    let store = remote.clone().timeout(DEADLINE);
    for time in [0, 1, 99] {
        remote.plan([Fault::Slow(Duration::from_millis(time))]);
        let decision = asked.acquire(&store, "a", 1).await.unwrap();
        assert!(decision.is_admitted());
    }
    let look = asked.look(&store, "a").await.unwrap();
    assert_eq!(look.remaining(), Some(7));
    assert_eq!((store.timeouts(), remote.dropped()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_is_a_timeout_at_the_deadline_for_each_operation() {
    let (remote, asked) = (Bucket::new(), asked());
    let store = remote.clone().timeout(DEADLINE);
    let decision = asked.acquire(&store, "a", 1).await.unwrap();
    remote.usually(Fault::Silent);
    let mut ends = Vec::new();
    for op in [Op::Acquire, Op::Look, Op::Settle, Op::Reset] {
        let begun = Instant::now();
        let error = match op {
            Op::Acquire => asked.acquire(&store, "a", 1).await.err(),
            Op::Look => asked.look(&store, "a").await.err(),
            Op::Settle => {
                let settlement = asked.settlement("a", &decision, 0);
                store.settle(vec![settlement]).await.err()
            }
            Op::Reset => {
                let check = Store::<TokenBucket>::reset(&store, &asked.policy, &"a".into());
                check.await.err()
            }
        };
        assert!(error.unwrap().is_timeout(), "{op:?}");
        ends.push(begun.elapsed());
    }
    // Tokio's timer counts whole milliseconds.
    let in_time =
        |time: &Duration| *time >= DEADLINE && *time <= DEADLINE + Duration::from_millis(1);
    assert!(ends.iter().all(in_time), "{ends:?}");
    assert_eq!((store.timeouts(), remote.dropped()), (4, 4));
    assert_eq!(store.clone().timeouts(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_stores_future_is_dropped_when_the_deadline_passes() {
    let (remote, asked) = (Bucket::new(), asked());
    remote.usually(Fault::Silent);
    let store = remote.clone().timeout(DEADLINE);
    let mut answer = pin!(store.acquire(&[asked.ask("a", 1)]).into_future());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(answer.as_mut().poll(&mut cx).is_pending());
    advance(DEADLINE - Duration::from_millis(1)).await;
    assert!(answer.as_mut().poll(&mut cx).is_pending());
    assert_eq!((remote.running(), store.timeouts()), (1, 0));
    advance(Duration::from_millis(2)).await;
    let Poll::Ready(Err(error)) = answer.as_mut().poll(&mut cx) else {
        panic!("the deadline has passed")
    };
    assert!(error.is_timeout());
    // `answer` still exists.
    assert_eq!((remote.running(), remote.dropped()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_available_when_the_deadline_is_noticed_counts() {
    let (remote, asked) = (Bucket::new(), asked());
    remote.usually(Fault::Slow(DEADLINE / 2));
    let store = remote.clone().timeout(DEADLINE);
    let mut answer = pin!(store.acquire(&[asked.ask("a", 1)]).into_future());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(answer.as_mut().poll(&mut cx).is_pending());
    // No poll happened in time. The call was charged, and its answer must not be discarded.
    advance(DEADLINE * 10).await;
    assert!(matches!(answer.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
    assert_eq!(store.timeouts(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_call_has_a_deadline_of_its_own() {
    let (remote, asked) = (Bucket::new(), asked());
    remote.usually(Fault::Slow(DEADLINE * 3 / 4));
    let store = remote.clone().timeout(DEADLINE);
    // Together they take longer than one deadline.
    for _ in 0..5 {
        assert!(asked.acquire(&store, "a", 1).await.is_ok());
    }
    assert_eq!(store.timeouts(), 0);
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_store_pass_unchanged() {
    let (remote, asked) = (Bucket::new(), asked());
    let store = remote.clone().timeout(DEADLINE);
    for kind in Kind::ALL {
        for fault in [Fault::Fails(kind), Fault::FailsAtOnce(kind)] {
            remote.plan([fault]);
            let error = asked.acquire(&store, "a", 1).await.unwrap_err();
            assert_eq!(error.to_string(), kind.error().to_string());
        }
    }
    assert_eq!(store.timeouts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_timed_out_is_charged_at_most_once() {
    let (remote, asked) = (Bucket::new(), asked());
    let store = remote.clone().timeout(DEADLINE);
    // Decided by the store, although the answer never arrives.
    remote.plan([Fault::Mute]);
    assert!(asked.acquire(&store, "a", 4).await.is_err());
    assert_eq!(asked.look(&store, "a").await.unwrap().remaining(), Some(6));
    remote.plan([Fault::Silent]);
    assert!(asked.acquire(&store, "a", 4).await.is_err());
    assert_eq!(asked.look(&store, "a").await.unwrap().remaining(), Some(6));
}

/// Neither a ready answer nor a future that is never polled needs a runtime, for example after its
/// shutdown.
#[test]
fn ready_answers_pass_without_a_runtime() {
    let (clock, asked) = (tollgate::time::ManualClock::default(), asked());
    let remote: Remote<TokenBucket, _> = Remote::with_clock(clock);
    let store = remote.clone().timeout(DEADLINE);
    remote.plan([Fault::AtOnce]);
    let decisions = at_once(store.acquire(&[asked.ask("a", 1)]));
    assert!(decisions.is_admitted());
    let settlement = asked.settlement("a", &decisions.as_slice()[0], 0);
    let check = store.settle(vec![settlement]);
    assert!(matches!(check, Check::Pending(_)));
    drop(check);
    assert_eq!((remote.dropped(), remote.running()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_its_task_busy_is_timed_out_too() {
    // Never waits. It uses up its task's budget each time, which timers need to be polled.
    let busy = OnlyAsked(|| async {
        let free = Semaphore::new(1);
        for _ in 0..1_000_000 {
            drop(free.acquire().await);
        }
        Ok(Decisions::default())
    });
    let store = busy.timeout(DEADLINE);
    let pass = tokio::spawn(advance(DEADLINE * 2));
    let error = asked().acquire(&store, "a", 1).await.unwrap_err();
    assert!(error.is_timeout());
    pass.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_thousand_concurrent_calls_end_at_one_deadline() {
    let (remote, asked) = (Bucket::new(), asked());
    remote.usually(Fault::Silent);
    let store = remote.clone().timeout(DEADLINE);
    let begun = Instant::now();
    let calls: Vec<_> = (0..1000_u64)
        .map(|key| {
            let (store, asked) = (store.clone(), asked.clone());
            tokio::spawn(async move { asked.acquire(&store, key, 1).await.is_err() })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert!(begun.elapsed() <= DEADLINE * 2);
    assert_eq!((store.timeouts(), remote.running()), (1000, 0));
}

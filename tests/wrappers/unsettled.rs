//! Lost settlements are counted, by the store or by the wrapper that observed the loss.

use std::time::Duration;

use tollgate::{
    TokenBucket,
    store::{Backend, BoxStore, CircuitBreakerConfig, Local, Store, StoreError, StoreExt},
    time::TokioClock,
};

use super::fakes::{Asked, Fault, Kind, Op, Remote};

type Faulty = Remote<TokenBucket, TokioClock>;

fn asked() -> Asked<TokenBucket> {
    Asked::of(TokenBucket::per_minute(10))
}

/// Settles one charge for each fault and awaits each settlement. Drops the last one immediately.
async fn settle_each<S>(store: &S, remote: &Faulty, faults: &[Fault])
where
    S: Store<TokenBucket>,
{
    let asked = asked();
    for (n, fault) in faults.iter().enumerate() {
        remote.usually(Fault::AtOnce);
        let Ok(decision) = asked.acquire(store, n as u64, 2).await else {
            panic!("not decided")
        };
        remote.usually(*fault);
        let done = store.settle(vec![asked.settlement(n as u64, &decision, 0)]);
        if n + 1 == faults.len() {
            drop(done);
        } else {
            let _ = done.await;
        }
    }
    remote.usually(Fault::AtOnce);
}

/// Two settlements are made. The other four are not, or their result is unknown; each is lost in a
/// different way.
const FAULTS: [Fault; 6] = [
    Fault::AtOnce,
    Fault::None,
    Fault::FailsAtOnce(Kind::Other),
    Fault::Fails(Kind::Unavailable),
    Fault::Lossy(Kind::Contended),
    Fault::Silent,
];

#[tokio::test(start_paused = true)]
async fn the_wrapper_that_hides_errors_counts_what_the_store_does_not() {
    let remote = Faulty::new();
    let open = remote.clone().fail_open();
    assert_eq!(remote.unsettled(), None);
    settle_each(&open, &remote, &FAULTS).await;
    assert_eq!(open.unsettled(), Some(4));
    assert_eq!(open.clone().boxed::<TokenBucket>().unsettled(), Some(4));

    let remote = Faulty::new();
    let wrapped = remote
        .clone()
        .timeout(Duration::from_secs(1))
        .circuit_breaker(CircuitBreakerConfig::new().failures(100))
        .remember_refusals();
    let boxed: BoxStore<TokenBucket, StoreError> = wrapped.boxed();
    let closed = boxed.fail_closed();
    settle_each(&closed, &remote, &FAULTS).await;
    assert_eq!(closed.unsettled(), Some(4));

    let closed = std::sync::Arc::new(Local::new().fail_closed());
    settle_each(&closed, &remote, &[Fault::AtOnce; 2]).await;
    assert_eq!(closed.unsettled(), Some(0));
}

/// If a store counts lost settlements, its count is used: a settlement that timed out may still be
/// made.
#[tokio::test(start_paused = true)]
async fn the_count_of_a_store_is_passed_on_plus_calls_rejected_by_a_breaker() {
    let remote = Faulty::new();
    let open = remote.clone().fail_open();
    let breaker = CircuitBreakerConfig::new().failures(1);
    let store = std::sync::Arc::new(open.clone());
    settle_each(&store, &remote, &FAULTS).await;
    assert_eq!(store.unsettled(), Some(4));

    /// A store that counts its lost settlements and fails.
    struct Counts(Faulty);
    impl Backend for Counts {
        type Error = StoreError;
        fn unsettled(&self) -> Option<u64> {
            Some(40)
        }
    }
    impl Store<TokenBucket> for Counts {
        type Answer = <Faulty as Store<TokenBucket>>::Answer;
        type Done = <Faulty as Store<TokenBucket>>::Done;
        tollgate::store::driver::delegate!(Store<TokenBucket>, self => self.0; calls);
    }
    let counting = std::sync::Arc::new(Counts(remote.clone()));
    let behind = counting
        .timeout(Duration::from_secs(1))
        .circuit_breaker(breaker)
        .fall_back_to(Local::new())
        .share::<TokenBucket>(1, 1);
    assert_eq!(behind.unsettled(), Some(40));
    let asked = asked();
    let mut charged = Vec::new();
    for n in 0..4_u64 {
        charged.push(asked.acquire(&behind, n, 2).await.unwrap());
    }
    remote.usually(Fault::FailsAtOnce(Kind::Unavailable));
    let settlements = |from: usize| {
        let each = charged.iter().enumerate().skip(from).take(2);
        each.map(|(n, decision)| asked.settlement(n as u64, decision, 0))
            .collect()
    };
    // The store counts the first call, which opens the breaker. The two settlements of the second
    // call are not sent.
    behind.settle(settlements(0)).await.unwrap();
    assert_eq!(behind.unsettled(), Some(40));
    behind.settle(settlements(2)).await.unwrap();
    assert_eq!(behind.unsettled(), Some(42));
    assert!(remote.count(Op::Settle) > 0);
}

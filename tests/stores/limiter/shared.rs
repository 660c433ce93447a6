//! Limiters and blocks on any server.
#![cfg_attr(
    not(any(feature = "redis", feature = "memcached")),
    allow(dead_code, reason = "used with servers")
)]

use std::sync::atomic::Ordering::Relaxed;

use tollgate::{
    AnyRule, Decision, Limiter,
    algorithm::{Algorithm, Blockable},
    store::{Blocks, Store, StoreError, StoreExt},
};

use super::{SECOND, cost, counted::Counted, policy};

/// Checks again if a store gave up because of other writers.
async fn check<S>(limiter: &Limiter<AnyRule, Blocks<S>>, units: u64) -> Decision
where
    S: Store<Blockable<AnyRule>, Error = StoreError>,
{
    for _ in 0..1000 {
        match limiter.check("mallory", cost(units)).await {
            Ok(decision) => return decision,
            Err(error) if error.is_contended() => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("contended a thousand times")
}

/// Spends, looks, grants and resets under rules that refill nothing during a test.
pub(crate) async fn grants<S: Store<AnyRule, Error = StoreError> + Clone>(store: &S) {
    // The rule, and if all the units of several calls come back.
    for (text, all) in [
        ("token-bucket 1/1d burst=30", true),
        ("fixed-window 30/3650d", true),
        ("fixed-window 30/1d from=first-call", true),
        ("sliding-window 30/365d", true),
        ("sliding-window 30/365d slices=4", true),
        ("sliding-log 30/1d", true),
        ("cascade 1/1d burst=30 > 1/1d burst=1", true),
        ("three-color 1/1d burst=30 peak=2/1d peak-burst=30", true),
        ("token-bucket 1/1d burst=30 & fixed-window 40/3650d", true),
        ("leaky-bucket 1/1d queue=29", false),
    ] {
        let rule: AnyRule = text.parse().unwrap();
        let limiter = Limiter::new(policy(), rule, store.clone());
        for (calls, units, granted) in [(1, 20, 5), (4, 5, 5), (4, 5, 12), (2, 15, 30), (3, 1, 99)]
        {
            let at = format!("{text}: {calls} calls of {units}, {granted} granted");
            limiter.reset("alice").await.unwrap();
            for _ in 0..calls {
                let decision = limiter.check("alice", cost(units)).await.unwrap();
                assert!(decision.is_admitted(), "{at}");
            }
            let spent = calls * units;
            let look = limiter.look("alice").await.unwrap();
            // The second bucket of the cascade holds a unit.
            let least = u64::from(text.starts_with("cascade"));
            assert_eq!(look.remaining(), Some((30 - spent).max(least)), "{at}");
            let look = limiter.grant("alice", granted).await.unwrap();
            let back = if all { granted.min(spent) } else { 0 };
            let left = (30 - spent + back).max(least);
            assert_eq!(look.remaining(), Some(left), "{at}");
            let rest = 30 - spent + back;
            if rest > 0 {
                let last = limiter.check("alice", cost(rest)).await.unwrap();
                assert!(last.is_admitted(), "{at}");
            }
            let more = limiter.check("alice", cost(1)).await.unwrap();
            assert_eq!(more.is_admitted(), least > 0, "{at}");
        }
    }
}

/// Blocks a key on one node, and expects another node to refuse it until the end.
pub(crate) async fn blocks<A, S>(rule: A, node: &S, other: &S)
where
    A: Algorithm,
    S: Store<Blockable<A>, Error = StoreError> + Clone,
{
    let limiter = |store: &S| {
        let store = Counted::new(store.clone());
        Limiter::new(policy(), rule.clone(), store.with_blocks())
    };
    let (here, there) = (limiter(node), limiter(other));
    let at = format!("{rule:?}");
    for key in ["mallory", "alice"] {
        assert!(
            there.check(key, cost(1)).await.unwrap().is_admitted(),
            "{at}"
        );
    }
    let hour = 3600 * SECOND;
    let blocked = here.block("mallory", hour).unwrap().await.unwrap();
    assert_eq!(blocked, Some(hour), "{at}");
    let before = there.check("mallory", cost(1)).await.unwrap();
    assert!(!before.is_admitted(), "{at}");
    assert!(
        before.retry_after() > Some(hour - 60 * SECOND) && before.retry_after() <= Some(hour),
        "{at}"
    );
    assert!(
        there.check("alice", cost(1)).await.unwrap().is_admitted(),
        "{at}"
    );
    // A shorter block changes nothing, and a longer one lasts longer, exactly.
    let left = there.block("mallory", SECOND).unwrap().await.unwrap();
    assert!(
        left > Some(hour - 60 * SECOND) && left <= Some(hour),
        "{at}: {left:?}"
    );
    let longer = there.block("mallory", 2 * hour).unwrap().await.unwrap();
    assert_eq!(longer, Some(2 * hour), "{at}");
    let after = here.check("mallory", cost(1)).await.unwrap().retry_after();
    assert!(after > Some(2 * hour - 60 * SECOND), "{at}: {after:?}");
    assert!(after <= Some(2 * hour), "{at}: {after:?}");
    there.unblock("mallory").await.unwrap();
    assert!(
        here.check("mallory", cost(1)).await.unwrap().is_admitted(),
        "{at}"
    );
    // A short one ends by itself.
    let _ = here.block("mallory", SECOND / 5).unwrap().await.unwrap();
    for _ in 0..100 {
        let decision = there.check("mallory", cost(1)).await.unwrap();
        if decision.is_admitted() {
            break;
        }
        tokio::time::sleep(decision.retry_after().unwrap()).await;
    }
    assert!(there.look("mallory").await.unwrap().is_admitted(), "{at}");
    assert!(there.store().refused() >= 1, "{at}");
    // And the key can be blocked again.
    let blocked = there.block("mallory", hour).unwrap().await.unwrap();
    assert_eq!(blocked, Some(hour), "{at}");
    assert!(
        !here.check("mallory", cost(1)).await.unwrap().is_admitted(),
        "{at}"
    );
    // For as long as a block can last.
    let year = 365 * 24 * hour;
    let blocked = here.block("mallory", year).unwrap().await.unwrap();
    assert_eq!(blocked, Some(year), "{at}");
    let left = there.look("mallory").await.unwrap().retry_after();
    assert!(left > Some(year - hour), "{at}: {left:?}");
    here.unblock("mallory").await.unwrap();
    for key in ["mallory", "alice"] {
        here.reset(key).await.unwrap();
    }
}

/// Tasks that are refused at once make one block.
pub(crate) async fn tasks_make_one_block<S>(store: S)
where
    S: Store<Blockable<AnyRule>, Error = StoreError, Answer: Send> + Clone + Send + Sync + 'static,
{
    let rule: AnyRule = "token-bucket 1/1d burst=5".parse().unwrap();
    let store = Counted::new(store);
    let calls = store.calls.clone();
    let blocks = store
        .with_blocks()
        .block_after(8, 3600 * SECOND, 3600 * SECOND);
    let limiter = Limiter::new(policy(), rule, blocks.clone());
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let decision = check(&limiter, 6).await;
                assert!(!decision.is_admitted());
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((blocks.made(), blocks.failed()), (1, 0));
    let counts = || [&calls.writes_of_blocks, &calls.acquires].map(|calls| calls.load(Relaxed));
    let before = counts();
    for _ in 0..20 {
        let decision = check(&limiter, 1).await;
        assert!(!decision.is_admitted());
    }
    assert_eq!(counts(), before);
}

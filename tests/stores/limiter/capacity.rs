//! Blocks in a store that is full.

use tollgate::{
    AnyRule, FixedWindow, LeakyBucket, Limiter, TokenBucket,
    algorithm::{Algorithm, Blockable},
    store::{AtCapacity, Local, LocalBuilder, Store, StoreExt, driver::NeverWaits},
    time::ManualClock,
};

use super::{SECOND, cost, policy};

const CAPACITY: usize = 512;

fn full_store<A: Algorithm>(choice: AtCapacity) -> (Local<A, ManualClock>, ManualClock) {
    let clock = ManualClock::default();
    let builder = LocalBuilder::new().capacity(CAPACITY).at_capacity(choice);
    (builder.clock(clock.clone()).build(), clock)
}

/// A flood evicts no block, and new keys, which inherit debts, inherit no block.
fn survives<A>(rule: A)
where
    A: Algorithm,
    Local<Blockable<A>, ManualClock>:
        Store<Blockable<A>, Error = std::convert::Infallible, Answer: NeverWaits, Done: NeverWaits>,
{
    let (store, clock) = full_store(AtCapacity::InheritDebts);
    let limiter = Limiter::new(policy(), rule, store.clone().with_blocks());
    let blocked: Vec<u64> = (0..50).collect();
    for key in &blocked {
        let lasts = limiter.block(*key, 3600 * SECOND).unwrap().at_once();
        assert_eq!(lasts, Some(3600 * SECOND));
    }
    let mut admitted = 0;
    for key in 1000..8_000_u64 {
        let decision = limiter.check(key, cost(1)).at_once();
        admitted += u64::from(decision.is_admitted());
    }
    assert_eq!(limiter.store().refused(), 0, "no new key is blocked");
    assert!(admitted >= 400 && store.len() <= CAPACITY, "{admitted}");
    for key in &blocked {
        let decision = limiter.check(*key, cost(1)).at_once();
        assert_eq!(decision.retry_after(), Some(3600 * SECOND), "{key}");
    }
    clock.advance(3600 * SECOND);
    for key in blocked {
        assert!(limiter.look(key).at_once().retry_after() < Some(3600 * SECOND));
    }
    assert_eq!(limiter.store().refused(), 50);
}

#[test]
fn a_flood_moves_no_block() {
    survives(TokenBucket::per_second(2).burst(4));
    survives(LeakyBucket::per_second(2));
    survives(FixedWindow::per_minute(3));
    survives(
        "token-bucket 2/s & token-bucket 10/1h"
            .parse::<AnyRule>()
            .unwrap(),
    );
    survives((TokenBucket::per_second(2), LeakyBucket::per_second(2)));
}

/// A store without room reports that, and counts it.
#[test]
fn a_block_without_room_is_counted() {
    for choice in [
        AtCapacity::InheritDebts,
        AtCapacity::RefuseNewcomers,
        AtCapacity::AdmitNewcomers,
    ] {
        let (store, clock) = full_store(choice);
        let rule = TokenBucket::per_hour(4);
        let limiter = Limiter::new(policy(), rule, store.clone().with_blocks());
        for key in 0..2000_u64 {
            let _ = limiter.check(key, cost(4)).at_once();
        }
        let blocked = limiter.block("mallory", SECOND).unwrap().at_once();
        assert_eq!(blocked, None, "{choice:?}");
        let counts = (limiter.store().made(), limiter.store().failed());
        assert_eq!(counts, (0, 1), "{choice:?}");
        // Once keys have expired, there is room.
        clock.advance(3600 * SECOND);
        let blocked = limiter.block("mallory", SECOND).unwrap().at_once();
        assert_eq!(blocked, Some(SECOND), "{choice:?}");
        assert_eq!(limiter.store().made(), 1, "{choice:?}");
    }
}

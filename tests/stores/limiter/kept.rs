//! The state of a block in stores: its end and its level, and the longest of several that are made
//! at once.

use std::{
    sync::{Arc, Barrier, Mutex},
    thread,
    time::Duration,
};

use tollgate::{
    AnyRule, Charge, Cost, Decision, Limiter, SlidingLog, Timestamp, TokenBucket, Verdict,
    algorithm::{Algorithm, Block, Blockable, Codec, StateKind, Step},
    key::Key,
    store::{
        Store, StoreError, StoreExt,
        driver::{Ask, CasStore},
    },
    time::ManualClock,
};

use super::{SECOND, cost, local, policy};
use crate::common::memory::{Memory, Ways};

const HOUR: Duration = Duration::from_secs(3600);

type State = <Blockable<TokenBucket> as Algorithm>::State;

/// Returns the bytes of a block, written the slow obvious way.
fn bytes(until: Timestamp, level: u8) -> Vec<u8> {
    let mut bytes = vec![0x59];
    let mut rest = until.as_nanos();
    while rest >= 128 {
        bytes.push((rest % 128) as u8 + 128);
        rest /= 128;
    }
    bytes.extend([rest as u8, level]);
    bytes
}

/// Blocks of keys, and rules that write and read their states as they are.
#[derive(Clone, Debug)]
pub(crate) enum Spy {
    Block(Blockable<TokenBucket>),
    Write(Vec<u8>),
    Read(Arc<Mutex<Vec<u8>>>),
}

impl Spy {
    fn block(duration: Duration) -> Blockable<TokenBucket> {
        Blockable::Block(Block::try_new(duration).unwrap())
    }
}

impl Algorithm for Spy {
    type State = State;

    fn step(&self, state: &mut Option<State>, now: Timestamp, cost: Cost) -> Step {
        match self {
            Self::Block(block) => block.step(state, now, cost),
            Self::Write(bytes) => {
                *state = Some(State::from_bytes(bytes).unwrap());
                Step::Wrote(Decision::new(Verdict::Allow, now, cost.get()))
            }
            Self::Read(_) => Step::Kept(self.look(state.as_ref(), now)),
        }
    }

    fn look(&self, state: Option<&State>, now: Timestamp) -> Decision {
        if let Self::Read(bytes) = self {
            *bytes.lock().unwrap() = state.map(Codec::to_bytes).unwrap_or_default();
        }
        Self::block(SECOND).look(state, now)
    }

    fn settle(&self, _: &mut Option<State>, _: &Charge, _: Timestamp, _: u64) {}

    fn forgettable_at(&self, state: &State) -> Timestamp {
        Self::block(SECOND).forgettable_at(state)
    }

    fn state_kind(&self) -> StateKind {
        Self::block(SECOND).state_kind()
    }
}

async fn acquire<S: Store<Spy>>(store: &S, rule: &Spy) -> Decision {
    let policy = policy();
    let ask = Ask::new(&policy, rule, Key::from("mallory"), Cost::ONE);
    match store.acquire(&[ask]).await {
        Ok(decisions) => decisions.as_slice()[0],
        Err(_) => panic!("the store fails"),
    }
}

/// A level and an end that are written come back, and a longer block leaves the level.
pub(crate) async fn level_is_kept<S: Store<Spy>>(store: S) {
    let seen = Arc::default();
    let read = async || {
        let decision = acquire(&store, &Spy::Read(Arc::clone(&seen))).await;
        (decision.at(), seen.lock().unwrap().clone())
    };
    for level in [0, 7, 255] {
        let (now, _) = read().await;
        let until = now.saturating_add(HOUR);
        acquire(&store, &Spy::Write(bytes(until, level))).await;
        assert_eq!(read().await.1, bytes(until, level));
        let shorter = acquire(&store, &Spy::Block(Spy::block(SECOND))).await;
        assert!(!shorter.is_admitted());
        assert_eq!(read().await.1, bytes(until, level));
        let longer = acquire(&store, &Spy::Block(Spy::block(24 * HOUR))).await;
        assert!(longer.is_admitted());
        let until = longer.at().saturating_add(24 * HOUR);
        assert_eq!(read().await.1, bytes(until, level));
        let _ = store.reset(&policy(), &Key::from("mallory")).await;
    }
}

#[tokio::test]
async fn memory_keeps_the_level() {
    level_is_kept(local().0).await;
    level_is_kept(local::<Spy>().0.boxed()).await;
}

#[tokio::test]
async fn stores_of_bytes_keep_the_level() {
    let data = Memory::new(ManualClock::default(), Ways::default());
    level_is_kept(CasStore::<_, Spy>::new(data)).await;
}

/// Tasks that block one key at once, each for another time, leave exactly the longest block. The
/// clock of all nodes stands still.
pub(crate) async fn longest_holds<S>(nodes: &[S])
where
    S: Store<Blockable<AnyRule>, Error = StoreError, Answer: Send> + Clone + Send + Sync + 'static,
{
    const TASKS: u32 = 12;
    let rule: AnyRule = "sliding-log 9/1h".parse().unwrap();
    for round in 0..20_u32 {
        let longest = 100 * TASKS * SECOND;
        let tasks: Vec<_> = (0..TASKS)
            .map(|n| {
                let node = nodes[n as usize % nodes.len()].clone();
                let limiter = Limiter::new(policy(), rule.clone(), node.with_blocks());
                // In another order in each round.
                let length = 100 * (1 + (5 * n + round) % TASKS) * SECOND;
                tokio::spawn(async move {
                    loop {
                        match limiter.block(u64::from(round), length).unwrap().await {
                            Ok(left) => return (length, left.unwrap()),
                            Err(error) => assert!(error.is_contended(), "{error}"),
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            let (length, left) = task.await.unwrap();
            assert!(left >= length && left <= longest, "{length:?}: {left:?}");
        }
        for node in nodes {
            let limiter = Limiter::new(policy(), rule.clone(), node.clone().with_blocks());
            let look = limiter.look(u64::from(round)).await.unwrap();
            assert_eq!(look.retry_after(), Some(longest), "round {round}");
        }
    }
}

#[tokio::test]
async fn the_longest_of_blocks_of_tasks_holds() {
    let ways = Ways {
        time: true,
        gives_way: true,
        ..Ways::default()
    };
    let data = Memory::new(ManualClock::default(), ways);
    let nodes = [1, 2, 3].map(|seed| CasStore::new(data.node(seed)));
    longest_holds(&nodes).await;
}

#[test]
fn the_longest_of_blocks_of_threads_holds() {
    const THREADS: u32 = 8;
    let (store, _) = local();
    let limiter = Limiter::new(policy(), SlidingLog::per_hour(9), store.with_blocks());
    for round in 0..200_u32 {
        let barrier = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            for n in 0..THREADS {
                let (limiter, barrier) = (&limiter, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let length = (1 + (3 * n + round) % THREADS) * SECOND;
                    let left = limiter.block(u64::from(round), length).unwrap().at_once();
                    assert!(left >= Some(length));
                });
            }
        });
        let refused = limiter.check(u64::from(round), cost(1)).at_once();
        assert_eq!(refused.retry_after(), Some(THREADS * SECOND));
    }
}

/// A node with blocks and one without have one limit between them, and the blocks of the one do not
/// bind the other.
#[cfg_attr(
    not(any(feature = "redis", feature = "memcached")),
    expect(dead_code, reason = "used with servers")
)]
pub(crate) async fn one_limit<S, T>(with: &S, without: &T)
where
    S: Store<Blockable<AnyRule>, Error = StoreError> + Clone,
    T: Store<AnyRule, Error = StoreError> + Clone,
{
    for text in [
        "token-bucket 1/1d burst=30",
        "token-bucket 1/1d initial=20 burst=30 keep=1d",
        "fixed-window 30/3650d",
        "fixed-window 30/1d from=first-call",
        "sliding-window 30/365d slices=4",
        "sliding-log 30/1d",
        "leaky-bucket 1/1d queue=29",
        "cascade 1/1d burst=30 > 1/1d burst=1",
        "three-color 1/1d burst=30 peak=2/1d peak-burst=30",
        "warm-up-spaced 1/1h over=5h",
        "token-bucket 1/1d burst=30 & fixed-window 40/3650d",
    ] {
        let rule: AnyRule = text.parse().unwrap();
        let blocks = Limiter::new(policy(), rule.clone(), with.clone().with_blocks());
        let plain = Limiter::new(policy(), rule, without.clone());
        let mut alone = 0;
        while plain.check("alone", cost(1)).await.unwrap().is_admitted() {
            alone += 1;
        }
        assert!(alone > 2, "{text}: {alone}");
        for first in [0, 1] {
            let key = u64::from(first == 0);
            let mut both = 0;
            for call in 0..2 * alone {
                if call % 8 == 0 {
                    let one = blocks.look(key).await.unwrap().remaining();
                    let other = plain.look(key).await.unwrap().remaining();
                    assert_eq!(one, other, "{text}");
                }
                let decision = match (call + first) % 2 {
                    0 => blocks.check(key, cost(1)).await.unwrap(),
                    _ => plain.check(key, cost(1)).await.unwrap(),
                };
                both += u64::from(decision.is_admitted());
            }
            assert_eq!(both, alone, "{text}");
            // Of many at once, as many.
            plain.reset(key).await.unwrap();
            let calls = (0..2 * alone).map(async |call| {
                let decision = loop {
                    let decision = match call % 2 {
                        0 => blocks.check(key, cost(1)).await,
                        _ => plain.check(key, cost(1)).await,
                    };
                    match decision {
                        Ok(decision) => break decision,
                        Err(error) => assert!(error.is_contended(), "{error}"),
                    }
                };
                u64::from(decision.is_admitted())
            });
            let both: u64 = futures_util::future::join_all(calls).await.iter().sum();
            assert_eq!(both, alone, "{text}");
            blocks.reset(key).await.unwrap();
            let blocked = blocks.block(key, HOUR).unwrap().await.unwrap();
            assert_eq!(blocked, Some(HOUR), "{text}");
            assert!(!blocks.check(key, cost(1)).await.unwrap().is_admitted());
            assert!(plain.check(key, cost(1)).await.unwrap().is_admitted());
            blocks.unblock(key).await.unwrap();
        }
        for key in [0_u64, 1] {
            plain.reset(key).await.unwrap();
        }
        plain.reset("alone").await.unwrap();
    }
}

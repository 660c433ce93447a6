//! Two and three releases whose rules differ, on one real server: while all of them run, a key has
//! the limit of each once.

use crate::common::rules;

use std::{fmt::Debug, sync::Arc};

use rules::RULES;
use support::Random;
use tollgate::{
    AnyRule, Cost, SlidingLog, SlidingWindow, Timestamp,
    algorithm::{Algorithm, Codec},
    store::{CasStats, Memcached, MemcachedCounters, Store, StoreError},
};

use super::{acquire, at_once, connect, counters, key, policy, servers, swaps, window};

/// A release: a store with a connection of its own, and its rule.
struct Release<S, R> {
    store: S,
    rule: R,
}

impl<R: Algorithm<State: Codec>> Release<Memcached<R>, R> {
    async fn swapping(server: &servers::Memcached, rule: R) -> Self {
        let store = Memcached::new(connect(server).await);
        Self { store, rule }
    }
}

impl<R, S> Release<S, R>
where
    S: Store<R, Error = StoreError>,
{
    /// Returns `true` if a call is admitted. One that is given up as contended is asked again, for
    /// it was not charged.
    async fn call(&self) -> bool {
        for _ in 0..1_000 {
            match acquire(&self.store, &self.rule, key()).await {
                Ok(decision) => return decision.is_admitted(),
                Err(error) => assert!(error.is_contended(), "{error:?}"),
            }
        }
        panic!("no call was answered");
    }
}

/// Many callers of a release at once, as many calls each.
async fn callers<R, S>(release: &Arc<Release<S, R>>, callers: usize, calls: usize) -> u64
where
    R: Debug + Send + Sync + 'static,
    S: Store<R, Error = StoreError, Answer: Send> + Send + Sync + 'static,
{
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let release = Arc::clone(release);
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..calls {
                    admitted += u64::from(release.call().await);
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for caller in callers {
        admitted += caller.await.unwrap();
    }
    admitted
}

/// The units that a rule lets a fresh key have at one instant.
fn alone(rule: &AnyRule) -> u64 {
    let (mut state, now) = (None, Timestamp::from_nanos(1_767_268_800_000_000_000));
    let passes = |_: &u64| {
        rule.step(&mut state, now, Cost::ONE)
            .decision()
            .is_admitted()
    };
    (0..100).take_while(passes).count() as u64
}

fn nothing_was_healed(stats: CasStats) {
    assert_eq!((stats.healed, stats.newer), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_releases_admit_the_limit_of_each_one_call_after_the_other() {
    let server = servers::Memcached::start();
    let old = Release::swapping(&server, at_once(50)).await;
    let new = Release::swapping(&server, window(30)).await;
    let orders: [fn(u64, u64) -> bool; 3] = [
        |call, _| call % 2 == 0,
        |call, _| call / 7 % 2 == 0,
        |_, drawn| drawn == 0,
    ];
    let mut random = Random::new(1);
    for order in orders {
        let mut admitted = [0; 2];
        for call in 0..300 {
            if order(call, random.below(2)) {
                admitted[0] += u64::from(old.call().await);
            } else {
                admitted[1] += u64::from(new.call().await);
            }
        }
        assert_eq!(admitted, [50, 30]);
        // By whichever of them: it names no rule.
        let reset = if order(1, 1) {
            old.store.reset(policy(), &key()).await
        } else {
            new.store.reset(policy(), &key()).await
        };
        reset.unwrap();
    }
    nothing_was_healed(old.store.stats());
    nothing_was_healed(new.store.stats());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_releases_admit_the_limit_of_each_with_many_callers() {
    let server = servers::Memcached::start();
    let bucket = Arc::new(Release::swapping(&server, at_once(50)).await);
    let window = Arc::new(Release::swapping(&server, window(30)).await);
    let log: SlidingLog = "sliding-log 40/1d".parse().unwrap();
    let both = Arc::new(Release::swapping(&server, (at_once(20), log)).await);
    let admitted = tokio::join!(
        callers(&bucket, 16, 10),
        callers(&window, 16, 10),
        callers(&both, 16, 10)
    );
    assert_eq!(admitted, (50, 30, 20));
    let other = swaps(&connect(&server).await);
    other.reset(policy(), &key()).await.unwrap();
    assert!(bucket.call().await && window.call().await && both.call().await);
    nothing_was_healed(bucket.store.stats());
    nothing_was_healed(window.store.stats());
    nothing_was_healed(both.store.stats());
}

/// A store whose rule is chosen per request, by callers at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_of_every_kind_admit_the_limit_of_each_and_a_reset_clears_all_of_them() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    // Units that come back within the test are no count.
    let texts = RULES
        .into_iter()
        .filter(|text| !text.starts_with("warm-up"));
    let releases: Vec<_> = texts
        .map(|text| {
            let rule: AnyRule = text.parse().unwrap();
            let store = Memcached::<AnyRule>::new(connection.clone());
            Arc::new(Release { store, rule })
        })
        .collect();
    for _ in 0..2 {
        let calls: Vec<_> = releases
            .iter()
            .map(|release| {
                let release = Arc::clone(release);
                tokio::spawn(async move { callers(&release, 2, 5).await })
            })
            .collect();
        for (call, release) in calls.into_iter().zip(&releases) {
            assert_eq!(
                call.await.unwrap(),
                alone(&release.rule),
                "{}",
                release.rule
            );
            assert!(!release.call().await, "{}", release.rule);
        }
        let store = &releases[0].store;
        store.reset(policy(), &key()).await.unwrap();
    }
    for release in &releases {
        nothing_was_healed(release.store.stats());
    }
}

/// Windows that slide beside windows that do not, on counters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_releases_of_counters_admit_the_limit_of_each() {
    let server = servers::Memcached::start();
    let fixed = Release {
        store: counters(&connect(&server).await),
        rule: window(30),
    };
    let slides: SlidingWindow = "sliding-window 20/3650d".parse().unwrap();
    let store: MemcachedCounters<SlidingWindow> = MemcachedCounters::new(connect(&server).await);
    let slides = Release {
        store,
        rule: slides,
    };
    let mut admitted = [0; 2];
    for call in 0..200 {
        if call % 2 == 0 {
            admitted[0] += u64::from(fixed.call().await);
        } else {
            admitted[1] += u64::from(slides.call().await);
        }
    }
    assert_eq!(admitted, [30, 20]);
    // A reset reaches what the store was told of.
    let admin: MemcachedCounters<AnyRule> = MemcachedCounters::new(connect(&server).await);
    admin.learn(&fixed.rule.into()).unwrap();
    admin.learn(&slides.rule.into()).unwrap();
    admin.reset(policy(), &key()).await.unwrap();
    assert!(fixed.call().await && slides.call().await);
}

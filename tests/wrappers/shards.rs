//! Stores whose shards fail independently.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tollgate::{
    Policy, TokenBucket,
    key::Key,
    store::{
        Backend, CircuitBreakerConfig, CircuitState, Local, Store, StoreError, StoreExt,
        driver::{Ask, Check, Decisions, Never, Settlement},
    },
    testing::Faulty,
};

use crate::fakes::Asked;

/// A store in which client n is in shard n. Some shards are dead.
#[derive(Clone, Default)]
struct Shards {
    dead: Vec<u32>,
    asked: Arc<AtomicU64>,
}

fn key(shard: u32) -> Key {
    Key::from(u64::from(shard))
}

impl Shards {
    fn answer<T: Default>(
        &self,
        policy: &Policy,
        key: &Key,
    ) -> Check<Never<Result<T, StoreError>>> {
        self.asked.fetch_add(1, SeqCst);
        Check::Ready(if self.dead.contains(&self.shard(policy, key)) {
            Err(StoreError::timeout())
        } else {
            Ok(T::default())
        })
    }
}

impl Backend for Shards {
    type Error = StoreError;

    fn shard(&self, _: &Policy, key: &Key) -> u32 {
        let mut all = 0..100_000;
        all.find(|shard| self::key(*shard) == *key).unwrap_or(0)
    }
}

impl Store<TokenBucket> for Shards {
    type Answer = Never<Result<Decisions, StoreError>>;
    type Done = Never<Result<(), StoreError>>;

    fn acquire(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        self.answer(asks[0].policy(), asks[0].key())
    }
    fn look(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        self.acquire(asks)
    }
    fn settle(&self, settlements: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
        self.answer(settlements[0].policy(), settlements[0].key())
    }
    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.answer(policy, key)
    }
}

async fn acquire<S>(store: &S, asked: &Asked, shard: u32) -> Result<(), StoreError>
where
    S: Store<TokenBucket, Error = StoreError>,
{
    store.acquire(&[asked.ask(key(shard), 1)]).await.map(drop)
}

#[tokio::test]
async fn a_dead_shard_does_not_open_the_breaker_of_other_shards() {
    let asked = Asked::of(TokenBucket::per_hour(1000));
    // Also the first shard, which is the whole store if there are no shards.
    for dead in [0, 5461] {
        let shards = Shards {
            dead: vec![dead],
            ..Shards::default()
        };
        let settings = CircuitBreakerConfig::new().failures(3);
        let pause = Duration::from_secs(3600);
        let store = shards
            .clone()
            .circuit_breaker(settings.open_for(pause, pause));
        for round in 0..10 {
            for shard in [0, 5461, 10_923] {
                let answer = acquire(&store, &asked, shard).await;
                assert_eq!(answer.is_err(), shard == dead, "{round}");
                let done = Store::<TokenBucket>::reset(&store, &asked.policy, &key(shard)).await;
                assert_eq!(done.is_err(), shard == dead, "{round}");
            }
        }
        assert_eq!(store.state(), CircuitState::Open);
        assert_eq!((store.opened(), store.rejected()), (1, 17));
        assert_eq!(shards.asked.load(SeqCst), 40 + 3);
    }
}

#[tokio::test]
async fn shards_above_the_maximum_share_the_breaker_of_the_first() {
    let asked = Asked::of(TokenBucket::per_hour(1000));
    let shards = Shards {
        dead: vec![2000, 2001],
        ..Shards::default()
    };
    let pause = Duration::from_secs(3600);
    let settings = CircuitBreakerConfig::new()
        .failures(1)
        .open_for(pause, pause);
    let store = shards.circuit_breaker(settings);
    for shard in 0..=1024 {
        acquire(&store, &asked, shard).await.unwrap();
    }
    assert!(
        asked
            .acquire(&store, key(2000), 1)
            .await
            .unwrap_err()
            .is_timeout()
    );
    for shard in [0, 2000, 2001, 3000] {
        let error = acquire(&store, &asked, shard).await.unwrap_err();
        assert!(error.is_unavailable(), "{shard}: {error:?}");
    }
    acquire(&store, &asked, 1024).await.unwrap();
}

#[test]
fn every_wrapper_returns_the_shard_of_its_store() {
    let policy = Policy::new("api");
    let tells = |store: &dyn Fn(&Policy, &Key) -> u32| {
        for shard in [0, 7, 5461] {
            assert_eq!(store(&policy, &key(shard)), shard);
        }
    };
    let store = Shards::default();
    macro_rules! all {
        ($($wrapped:expr),+ $(,)?) => {$({
            let wrapped = $wrapped;
            tells(&|policy, key| wrapped.shard(policy, key));
        })+};
    }
    all![
        Arc::new(store.clone()),
        store.clone().boxed::<TokenBucket>(),
        store.clone().circuit_breaker(CircuitBreakerConfig::new()),
        store.clone().remember_refusals::<TokenBucket>(),
        store.clone().fail_open(),
        store.clone().fail_closed(),
        store
            .clone()
            .fall_back_to(Local::<TokenBucket>::new())
            .share(1, 2),
        Faulty::new(store.clone()),
        store.clone().timeout(Duration::from_secs(1)),
    ];
    // A store without shards is one shard.
    assert_eq!(Local::<TokenBucket>::new().shard(&policy, &key(7)), 0);
}

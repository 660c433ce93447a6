//! A compare-and-swap store in memory, with faults on demand.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use support::Random;
use tollgate::{
    Timestamp,
    algorithm::{Algorithm, Codec},
    store::{
        StoreError,
        driver::{CasStore, CasStoreBuilder, CompareAndSwap, Loaded, Swap, Swapped},
    },
    time::{Clock, ManualClock},
};

/// A version, a value, and its expiry.
pub(crate) type Entry = (u64, Vec<u8>, Timestamp);

/// The behaviour of the store, besides storing values.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ways {
    /// Returns the version that a swap has written.
    pub(crate) versions: bool,
    /// Returns the value that a lost swap found.
    pub(crate) found: bool,
    /// Returns the time of its clock.
    pub(crate) time: bool,
    /// Each answer takes this much of tokio's time. `None` is at once, without yielding.
    pub(crate) delay: Option<Duration>,
    /// Each answer takes any part of `delay`.
    pub(crate) varies: bool,
    /// Each answer yields to other tasks first.
    pub(crate) gives_way: bool,
    /// A swap replaces any version.
    pub(crate) never_compares: bool,
    /// One swap in this many loses against another node that writes the same value. 0 means none.
    pub(crate) loses: u64,
    /// One operation in this many fails. Half of the failing swaps take effect. 0 means none.
    pub(crate) fails: u64,
}

/// Clones are nodes: they share the values and have counts of their own.
pub(crate) struct Memory {
    entries: Arc<Mutex<HashMap<Vec<u8>, Entry>>>,
    versions: Arc<AtomicU64>,
    pub(crate) clock: ManualClock,
    pub(crate) ways: Ways,
    random: Mutex<Random>,
    pub(crate) is_down: Arc<AtomicBool>,
    pub(crate) is_silent: Arc<AtomicBool>,
    /// Every swap loses, as if other processes were always faster.
    pub(crate) always_loses: Arc<AtomicBool>,
    /// No swap is taken.
    pub(crate) is_full: Arc<AtomicBool>,
}

impl Memory {
    pub(crate) fn new(clock: ManualClock, ways: Ways) -> Self {
        Self {
            entries: Arc::default(),
            versions: Arc::default(),
            clock,
            ways,
            random: Mutex::new(Random::new(7)),
            is_down: Arc::default(),
            is_silent: Arc::default(),
            always_loses: Arc::default(),
            is_full: Arc::default(),
        }
    }

    /// Returns another node of the same store.
    pub(crate) fn node(&self, seed: u64) -> Self {
        Self {
            entries: Arc::clone(&self.entries),
            versions: Arc::clone(&self.versions),
            clock: self.clock.clone(),
            ways: self.ways,
            random: Mutex::new(Random::new(seed)),
            is_down: Arc::clone(&self.is_down),
            is_silent: Arc::clone(&self.is_silent),
            always_loses: Arc::clone(&self.always_loses),
            is_full: Arc::clone(&self.is_full),
        }
    }

    /// Returns all keys.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.entries.lock().unwrap().keys().cloned().collect()
    }

    /// Returns the value of a key, even after its expiry.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry> {
        self.entries.lock().unwrap().get(key).cloned()
    }

    /// Writes a value, as another program would.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) {
        let entry = (self.version(), value.to_vec(), Timestamp::MAX);
        self.entries.lock().unwrap().insert(key.to_vec(), entry);
    }

    fn version(&self) -> u64 {
        self.versions.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn draw(&self, end: u64) -> u64 {
        self.random.lock().unwrap().below(end)
    }

    fn once_in(&self, times: u64) -> bool {
        self.random.lock().unwrap().once_in(times)
    }

    async fn pass(&self) -> Result<(), StoreError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(StoreError::unavailable("down"));
        }
        if self.is_silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.ways.gives_way {
            tokio::task::yield_now().await;
        }
        let part = |delay: Duration| match self.ways.varies {
            true => Duration::from_nanos(self.draw(delay.as_nanos() as u64 + 1)),
            false => delay,
        };
        if let Some(delay) = self.ways.delay.map(part) {
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    fn load_now(&self, entries: &mut HashMap<Vec<u8>, Entry>, key: &[u8]) -> Loaded<u64> {
        let now = self.clock.now();
        // An expired value is removed for good, also if the clock steps back afterwards.
        if entries.get(key).is_some_and(|(.., until)| *until <= now) {
            entries.remove(key);
        }
        let entry = entries.get(key);
        Loaded {
            value: entry.map(|(version, value, _)| (*version, value.clone())),
            now: self.ways.time.then_some(now),
        }
    }

    fn swap_now(&self, key: &[u8], swap: Swap<'_, u64>) -> Swapped<u64> {
        assert!(
            swap.value.is_some() || swap.expected.is_some(),
            "nothing to remove"
        );
        assert!(
            swap.value.is_none() || !swap.keep.is_zero(),
            "a value that is kept for no time"
        );
        let mut entries = self.entries.lock().unwrap();
        let loaded = self.load_now(&mut entries, key);
        let there = loaded.value.as_ref().map(|(version, _)| version);
        let loses = there != swap.expected && !self.ways.never_compares;
        if loses || self.always_loses.load(Ordering::Relaxed) {
            return Swapped::Lost(self.ways.found.then_some(loaded));
        }
        let version = self.version();
        match swap.value {
            Some(value) => {
                let until = self.clock.now().saturating_add(swap.keep);
                entries.insert(key.to_vec(), (version, value.to_vec(), until));
            }
            None => {
                entries.remove(key);
            }
        }
        Swapped::Done(self.ways.versions.then_some(version))
    }
}

impl CompareAndSwap for Memory {
    type Version = u64;

    async fn load(&self, key: &[u8]) -> Result<Loaded<u64>, StoreError> {
        self.pass().await?;
        if self.once_in(self.ways.fails) {
            return Err(StoreError::unavailable("a load that fails"));
        }
        Ok(self.load_now(&mut self.entries.lock().unwrap(), key))
    }

    async fn swap(&self, key: &[u8], swap: Swap<'_, u64>) -> Result<Swapped<u64>, StoreError> {
        self.pass().await?;
        if self.once_in(self.ways.fails) {
            if self.draw(2) == 0 {
                self.swap_now(key, swap);
            }
            return Err(StoreError::unavailable("a swap that fails"));
        }
        if self.is_full.load(Ordering::Relaxed) {
            return Err(StoreError::unwritten("no room"));
        }
        if self.once_in(self.ways.loses) {
            let mut entries = self.entries.lock().unwrap();
            if let Some((version, ..)) = entries.get_mut(key) {
                *version = self.version();
            }
            return Ok(Swapped::Lost(None));
        }
        Ok(self.swap_now(key, swap))
    }
}

/// Returns a driver that decides by the clock of the store, with a fixed seed for its back-off.
pub(crate) fn driver<Rule>(memory: Memory) -> CasStore<Memory, Rule>
where
    Rule: Algorithm<State: Codec>,
{
    let clock = memory.clock.clone();
    CasStoreBuilder::new(memory).clock(clock).seed(1).build()
}

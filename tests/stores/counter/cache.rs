//! A cache in memory that is slow and faulty on demand, and counts its operations.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use support::Random;
use tollgate::{
    Timestamp,
    store::{
        StoreError,
        driver::{Increment, Totals},
    },
    time::{Clock, ManualClock},
};

/// The fault of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Returns an error without executing.
    Before,
    /// Executes, and returns an error.
    After,
}

/// The number of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ops {
    pub(crate) adds: u64,
    pub(crate) subtracts: u64,
    pub(crate) reads: u64,
    pub(crate) removes: u64,
}

impl Ops {
    pub(crate) fn all(self) -> u64 {
        self.adds + self.subtracts + self.reads + self.removes
    }
}

#[derive(Debug)]
struct Inside {
    /// The total and the expiry of each counter.
    counters: HashMap<Box<[u8]>, (u64, Timestamp)>,
    ops: Ops,
    random: Random,
    /// The maximum number of yields before and after each operation.
    yields: u64,
    /// For additions, subtractions and reads: one operation in this many fails. 0 means none.
    faults: [(u64, Option<Fault>); 3],
}

/// Clones share the counters.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    inside: Arc<Mutex<Inside>>,
    clock: ManualClock,
    /// The latest time seen. The cache's time does not fall if the clock steps back.
    newest: Arc<AtomicU64>,
}

impl Cache {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        let inside = Inside {
            counters: HashMap::new(),
            ops: Ops::default(),
            random: Random::new(7),
            yields: 0,
            faults: [(0, None); 3],
        };
        Self {
            inside: Arc::new(Mutex::new(inside)),
            clock: clock.clone(),
            newest: Arc::default(),
        }
    }

    /// Makes each operation yield up to this many times before and after it executes.
    pub(crate) fn slow(self, seed: u64, yields: u64) -> Self {
        let mut inside = self.inside();
        inside.random = Random::new(seed);
        inside.yields = yields;
        drop(inside);
        self
    }

    /// From now on, one in this many additions, subtractions and reads fails. 0 means none.
    pub(crate) fn fail(&self, [adds, subtracts, reads]: [u64; 3], fault: Option<Fault>) {
        self.inside().faults = [adds, subtracts, reads].map(|of| (of, fault));
    }

    pub(crate) fn ops(&self) -> Ops {
        self.inside().ops
    }

    /// Returns the name and the total of each live counter.
    pub(crate) fn counters(&self) -> HashMap<String, u64> {
        let (inside, now) = (self.inside(), self.now());
        let living = inside.counters.iter().filter(|(_, (_, end))| *end > now);
        living
            .map(|(name, (total, _))| (String::from_utf8(name.to_vec()).unwrap(), *total))
            .collect()
    }

    /// Returns the total of the only live counter.
    pub(crate) fn only(&self) -> u64 {
        let counters = self.counters();
        assert!(counters.len() <= 1, "{counters:?}");
        counters.into_values().next().unwrap_or(0)
    }

    /// Sets a counter to a total until time advances.
    pub(crate) fn put(&self, name: &str, total: u64) {
        let end = Timestamp::MAX;
        self.inside()
            .counters
            .insert(name.as_bytes().into(), (total, end));
    }

    fn now(&self) -> Timestamp {
        let now = self.clock.now().as_nanos();
        let newest = self.newest.fetch_max(now, Ordering::Relaxed);
        Timestamp::from_nanos(now.max(newest))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }

    async fn yield_sometimes(&self) {
        let turns = {
            let mut inside = self.inside();
            let most = inside.yields;
            inside.random.below(most + 1)
        };
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    /// Runs an operation of a kind, with its fault.
    async fn operate<T>(
        &self,
        kind: usize,
        operation: impl FnOnce(&mut Inside, Timestamp) -> T,
    ) -> Result<T, StoreError> {
        self.yield_sometimes().await;
        let result = {
            let mut inside = self.inside();
            let ops = &mut inside.ops;
            *[
                &mut ops.adds,
                &mut ops.subtracts,
                &mut ops.reads,
                &mut ops.removes,
            ][kind] += 1;
            let (of, fault) = inside.faults.get(kind).copied().unwrap_or_default();
            let fault = fault.filter(|_| of > 0 && inside.random.below(of) == 0);
            match fault {
                Some(Fault::Before) => Err(StoreError::unavailable("a fault injected by a test")),
                Some(Fault::After) => {
                    operation(&mut inside, self.now());
                    Err(StoreError::timeout())
                }
                None => Ok(operation(&mut inside, self.now())),
            }
        };
        self.yield_sometimes().await;
        result
    }
}

impl Inside {
    fn total(&mut self, key: &[u8], now: Timestamp) -> u64 {
        match self.counters.get(key) {
            Some((total, end)) if *end > now => *total,
            _ => 0,
        }
    }
}

impl Increment for Cache {
    async fn add(
        &self,
        key: &[u8],
        amount: u64,
        keep: Duration,
        beside: &[Box<[u8]>],
    ) -> Result<Totals, StoreError> {
        assert!(amount > 0);
        self.operate(0, |inside, now| {
            let end = now.saturating_add(keep);
            let living = inside.counters.get(key).filter(|(_, end)| *end > now);
            let (total, end) = living.copied().unwrap_or((0, end));
            let total = total.saturating_add(amount);
            inside.counters.insert(key.into(), (total, end));
            let beside = beside.iter().map(|key| inside.total(key, now)).collect();
            Totals { total, beside }
        })
        .await
    }

    async fn subtract(&self, key: &[u8], amount: u64) -> Result<(), StoreError> {
        assert!(amount > 0);
        self.operate(1, |inside, now| {
            if let Some((total, _)) = inside.counters.get_mut(key).filter(|(_, end)| *end > now) {
                *total = total.saturating_sub(amount);
            }
        })
        .await
    }

    async fn read(&self, keys: &[Box<[u8]>]) -> Result<Vec<u64>, StoreError> {
        let distinct: HashSet<_> = keys.iter().collect();
        assert_eq!(
            distinct.len(),
            keys.len(),
            "some servers refuse a key that comes twice"
        );
        self.operate(2, |inside, now| {
            keys.iter().map(|key| inside.total(key, now)).collect()
        })
        .await
    }

    async fn remove(&self, keys: &[Box<[u8]>]) -> Result<(), StoreError> {
        self.operate(3, |inside, _| {
            for key in keys {
                inside.counters.remove(key);
            }
        })
        .await
    }
}

//! Work that waits for its turn, and who does it: for each key one task at a time.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use foldhash::fast::RandomState;
use tokio::{sync::oneshot, time::sleep};

use super::{
    CompareAndSwap,
    builder::Settings,
    stats::Counters,
    work::{Job, Told, Work},
    worker::Worker,
};
use crate::{
    algorithm::{Algorithm, Codec},
    backoff::Delays,
    store::{Error, task::runtime},
    time::Clock,
};

/// Calls that one swap serves at most.
const BATCH: usize = 256;

/// Jobs in the order in which they came, by key.
type Waiting<Rule> = HashMap<Box<[u8]>, VecDeque<Job<Rule>>, RandomState>;

/// What all clones of a store share.
pub(super) struct Queue<C, Rule, K> {
    pub(super) data: C,
    pub(super) clock: K,
    pub(super) settings: Settings,
    pub(super) counters: Counters,
    /// What waits for each key that somebody works for.
    waiting: Mutex<Waiting<Rule>>,
    /// Back-offs that were begun.
    backoffs: AtomicU64,
}

/// Where the answer will be.
pub(super) type Answer = oneshot::Receiver<Result<Told, Error>>;

/// The right to work for a key. Given back also when the runtime is shut down in between: then who waits is
/// told, and later calls on another runtime find nobody at work.
struct Turn<C, Rule, K> {
    queue: Arc<Queue<C, Rule, K>>,
    key: Box<[u8]>,
    /// Whether [`Queue::join`] has taken it back.
    is_over: bool,
}

impl<C, Rule, K> Drop for Turn<C, Rule, K> {
    fn drop(&mut self) {
        if !self.is_over {
            let left = self.queue.lock().remove(&self.key);
            // Only now, unlocked: it wakes who waits.
            drop(left);
        }
    }
}

impl<C, Rule, K> Queue<C, Rule, K> {
    pub(super) fn new(data: C, clock: K, settings: Settings) -> Self {
        Self {
            data,
            clock,
            settings,
            counters: Counters::default(),
            waiting: Mutex::default(),
            backoffs: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<Rule>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The delays of one visit that loses its races; `None` where there is no back-off.
    pub(super) fn delays(&self) -> Option<Delays> {
        let backoff = self.settings.backoff?;
        let seeded = self.settings.seed.map(|seed| {
            let number = self.backoffs.fetch_add(1, Ordering::Relaxed);
            backoff.seed(seed.wrapping_add(number))
        });
        Some(seeded.unwrap_or(backoff).delays())
    }

    /// Adds what waits for a key to a batch, and takes those out who do not wait any more. When nothing is left, the
    /// turn is over.
    fn join(&self, turn: &mut Turn<C, Rule, K>, batch: &mut Vec<Job<Rule>>) {
        batch.retain(|job| !job.is_abandoned());
        let mut waiting = self.lock();
        if let Some(jobs) = waiting.get_mut(&turn.key) {
            jobs.retain(|job| !job.is_abandoned());
            let count = jobs.len().min(BATCH.saturating_sub(batch.len()));
            batch.extend(jobs.drain(..count));
        }
        if batch.is_empty() {
            waiting.remove(&turn.key);
            turn.is_over = true;
        }
    }

    /// Takes out the calls that wait for a key. Settlements and resets stay.
    pub(super) fn calls(&self, key: &[u8]) -> VecDeque<Job<Rule>> {
        let mut waiting = self.lock();
        let Some(jobs) = waiting.get_mut(key) else {
            return VecDeque::new();
        };
        let (calls, rest): (VecDeque<_>, VecDeque<_>) = jobs.drain(..).partition(Job::is_call);
        *jobs = rest;
        calls
    }
}

impl<C, Rule, K> Queue<C, Rule, K>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec + Send> + Send + Sync + 'static,
    K: Clock + Send + Sync + 'static,
{
    /// Asks for work to be done on a key: now, or with other work as soon as its turn comes.
    ///
    /// # Errors
    ///
    /// When there is no runtime that could do it.
    pub(super) fn ask(self: &Arc<Self>, key: Box<[u8]>, work: Work<Rule>) -> Result<Answer, Error> {
        let runtime = runtime()?;
        let (reply, answer) = oneshot::channel();
        let job = Job::new(work, reply);
        if !self.settings.combining {
            runtime.spawn(Self::work_for_one(Worker::new(Arc::clone(self), key, job)));
            return Ok(answer);
        }
        let mut waiting = self.lock();
        if let Some(jobs) = waiting.get_mut(&key) {
            jobs.push_back(job);
            return Ok(answer);
        }
        waiting.insert(key.clone(), VecDeque::new());
        drop(waiting);
        let turn = Turn {
            queue: Arc::clone(self),
            key: key.clone(),
            is_over: false,
        };
        runtime.spawn(Self::work(turn, Worker::new(Arc::clone(self), key, job)));
        Ok(answer)
    }

    /// Works until nobody waits.
    async fn work(mut turn: Turn<C, Rule, K>, mut worker: Worker<C, Rule, K>) {
        let queue = Arc::clone(&turn.queue);
        loop {
            queue.join(&mut turn, &mut worker.batch);
            if turn.is_over {
                return;
            }
            worker.set_deadlines(sleep(queue.settings.deadline).deadline());
            worker.attempt().await;
        }
    }

    /// Works for one alone.
    async fn work_for_one(mut worker: Worker<C, Rule, K>) {
        worker.set_deadlines(sleep(worker.queue.settings.deadline).deadline());
        loop {
            worker.batch.retain(|job| !job.is_abandoned());
            if worker.batch.is_empty() {
                return;
            }
            worker.attempt().await;
        }
    }
}

//! Jobs that wait for their key, each key with one worker at a time.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{sync::oneshot, time::sleep};

use super::{
    CompareAndSwap,
    builder::Settings,
    stats::Counters,
    work::{Job, Work},
    worker::Worker,
};
use crate::{
    algorithm::{Algorithm, Codec},
    backoff::Delays,
    store::{
        Error,
        engine::{Answers, CombiningQueue, Turn, Unsettled, runtime},
    },
    time::Clock,
};

/// Jobs in the order in which they came.
type Jobs<Rule> = VecDeque<Job<Rule>>;

/// The parts of a store that its clones share.
pub(super) struct Queue<C, Rule, K> {
    pub(super) data: C,
    pub(super) clock: K,
    pub(super) settings: Settings,
    pub(super) counters: Counters,
    pub(super) unsettled: Unsettled,
    /// A lane for each key, with one worker.
    waiting: Arc<CombiningQueue<Box<[u8]>, Jobs<Rule>>>,
    /// The number of back-offs that were begun.
    backoffs: AtomicU64,
}

/// The receiver of an answer.
pub(super) type Answer = oneshot::Receiver<Result<Answers, Error>>;

impl<C, Rule, K> Queue<C, Rule, K> {
    pub(super) fn new(data: C, clock: K, settings: Settings) -> Self {
        Self {
            data,
            clock,
            settings,
            counters: Counters::default(),
            unsettled: Unsettled::default(),
            waiting: CombiningQueue::new(1),
            backoffs: AtomicU64::new(0),
        }
    }

    /// Returns the delays after lost races; `None` if there is no back-off.
    pub(super) fn delays(&self) -> Option<Delays> {
        let backoff = self.settings.backoff?;
        let seeded = self.settings.seed.map(|seed| {
            let number = self.backoffs.fetch_add(1, Ordering::Relaxed);
            backoff.seed(seed.wrapping_add(number))
        });
        Some(seeded.unwrap_or(backoff).delays())
    }

    /// Takes out the calls that wait for a key. Settlements and resets stay.
    pub(super) fn calls(&self, key: &[u8]) -> VecDeque<Job<Rule>> {
        let calls = self.waiting.waiting(key, |jobs| {
            let (calls, rest) = jobs.drain(..).partition(Job::is_call);
            *jobs = rest;
            calls
        });
        calls.unwrap_or_default()
    }
}

impl<C, Rule, K> Queue<C, Rule, K>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec + Send> + Send + Sync + 'static,
    K: Clock + Send + Sync + 'static,
{
    /// Queues work on a key. It is done at once, or in the next batch if the key has a worker.
    ///
    /// # Errors
    ///
    /// Fails outside of a runtime.
    pub(super) fn ask(self: &Arc<Self>, key: Box<[u8]>, work: Work<Rule>) -> Result<Answer, Error> {
        let runtime = runtime()?;
        let (reply, answer) = oneshot::channel();
        let job = Job::new(work, reply);
        if !self.settings.combining {
            let worker = Worker::new(Arc::clone(self), key, vec![job]);
            runtime.spawn(Self::work_for_one(worker));
            return Ok(answer);
        }
        let turn = self.waiting.lock().add(&key, |jobs| {
            jobs.push_back(job);
            true
        });
        if let Some(turn) = turn {
            let worker = Worker::new(Arc::clone(self), key, Vec::new());
            runtime.spawn(Self::work(turn, worker));
        }
        Ok(answer)
    }

    /// Works until no job waits.
    async fn work(mut turn: Turn<Box<[u8]>, Jobs<Rule>>, mut worker: Worker<C, Rule, K>) {
        while turn.next(|jobs| worker.join(jobs)) {
            worker.set_deadlines(sleep(worker.queue.settings.deadline).deadline());
            worker.attempt().await;
        }
    }

    /// Works on a single job, which no other job joins.
    async fn work_for_one(mut worker: Worker<C, Rule, K>) {
        worker.set_deadlines(sleep(worker.queue.settings.deadline).deadline());
        while worker.join(&mut VecDeque::new()) {
            worker.attempt().await;
        }
    }
}

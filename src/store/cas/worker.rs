//! The queue of jobs of each key, and its worker, which loads, decides and swaps, and tries again
//! after a lost race.
//!
//! A key has one worker at a time.
//!
//! Calls that wait for the key go out as one swap, so contention is between processes, not between
//! their tasks. The worker is a task and not the caller's future, because callers are dropped. A
//! decision is returned after the swap that writes it. What is known from an earlier swap is only
//! tried by swaps; a refusal is decided by a load.
//!
//! A lost race is repeated at once if the store returned the new value, otherwise after a jittered
//! delay. `tests/stores/cas/contenders.rs` simulates 1 to 200 processes.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{Instant, sleep, timeout_at},
};

use super::{
    CompareAndSwap, Loaded, Swap, Swapped,
    builder::CasSettings,
    cached::{CacheTrust, CachedValue, ValueForm, ValueSource},
    store::CasCounters,
};
use crate::{
    algorithm::{Algorithm, Codec},
    backoff::Delays,
    decision::Charge,
    store::{
        StoreError,
        ask::ResolvedAsk,
        delta::ResolvedDelta,
        engine::{Answers, CombiningQueue, QueueTurn, Unsettled, runtime, runtime_gone},
    },
    time::SharedClock,
};

/// Jobs in the order in which they came.
type Jobs<Rule> = VecDeque<Job<Rule>>;

/// State that the clones of a store share, with the jobs that wait for their key.
pub(super) struct SwapQueue<C, Rule> {
    pub(super) data: C,
    clock: SharedClock,
    pub(super) settings: CasSettings,
    pub(super) counters: CasCounters,
    pub(super) unsettled: Unsettled,
    /// One lane for each key, with one worker.
    waiting: Arc<CombiningQueue<Box<[u8]>, Jobs<Rule>>>,
    /// Number of back-offs that have begun.
    backoffs: AtomicU64,
}

/// Receiver of the answer to a job, or the error of one that could not be queued.
pub(super) type AnswerReceiver = Result<oneshot::Receiver<Result<Answers, StoreError>>, StoreError>;

impl<C, Rule> SwapQueue<C, Rule> {
    pub(super) fn new(data: C, clock: SharedClock, settings: CasSettings) -> Self {
        Self {
            data,
            clock,
            settings,
            counters: CasCounters::default(),
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
    fn calls(&self, key: &[u8]) -> VecDeque<Job<Rule>> {
        let calls = self.waiting.waiting(key, |jobs| {
            let (calls, rest) = jobs.drain(..).partition(Job::is_call);
            *jobs = rest;
            calls
        });
        calls.unwrap_or_default()
    }
}

impl<C, Rule> SwapQueue<C, Rule>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec>,
{
    /// Queues work on a key. It is done at once, or in the next batch if the key has a worker.
    ///
    /// # Errors
    ///
    /// Fails outside of a runtime.
    pub(super) fn ask(self: &Arc<Self>, key: Box<[u8]>, work: Work<Rule>) -> AnswerReceiver {
        let runtime = runtime()?;
        let (reply, answer) = oneshot::channel();
        let job = Job {
            work,
            reply,
            losses: 0,
            until: None,
        };
        if !self.settings.combining {
            let worker = SwapWorker::new(Arc::clone(self), key, vec![job]);
            runtime.spawn(Self::work_for_one(worker));
            return Ok(answer);
        }
        let turn = self.waiting.lock().add(&key, |jobs| {
            jobs.push_back(job);
            true
        });
        if let Some(turn) = turn {
            let worker = SwapWorker::new(Arc::clone(self), key, Vec::new());
            runtime.spawn(Self::work(turn, worker));
        }
        Ok(answer)
    }

    /// Works until no job waits.
    async fn work(mut turn: QueueTurn<Box<[u8]>, Jobs<Rule>>, mut worker: SwapWorker<C, Rule>) {
        while turn.next(|jobs| worker.join(jobs)) {
            worker.set_deadlines(sleep(worker.queue.settings.deadline).deadline());
            worker.attempt().await;
        }
    }

    /// Works on a single job, which no other job joins.
    async fn work_for_one(mut worker: SwapWorker<C, Rule>) {
        worker.set_deadlines(sleep(worker.queue.settings.deadline).deadline());
        while worker.join(&mut VecDeque::new()) {
            worker.attempt().await;
        }
    }
}

/// Awaits an answer; fails if its task no longer exists.
pub(super) async fn receive(answer: AnswerReceiver) -> Result<Answers, StoreError> {
    answer?.await.unwrap_or_else(|_| Err(runtime_gone()))
}

/// Asks about one key, each with its index in the call.
pub(super) type Asks<Rule> = SmallVec<[ResolvedAsk<Rule, usize>; 1]>;

/// Work on the states of one key.
pub(super) enum Work<Rule> {
    /// Spends all asks, or none.
    Spend(Asks<Rule>),
    /// Decides as [`Spend`](Self::Spend) does, but spends nothing. What a refusal writes is
    /// written.
    Probe(Asks<Rule>),
    Look(Rule),
    Settle {
        rule: Rule,
        charge: Charge,
        actual: u64,
    },
    /// Adds the deltas of nodes, and returns the states.
    Sync {
        /// Each with its index in the call.
        deltas: Vec<ResolvedDelta<Rule, usize>>,
        /// `true` if the call has deltas of other keys, too.
        has_others: bool,
    },
    Reset,
}

impl<Rule> Work<Rule> {
    /// Returns the rules whose states the work is about.
    pub(super) fn rules(&self) -> SmallVec<[&Rule; 1]> {
        match self {
            Self::Spend(asks) | Self::Probe(asks) => asks.iter().map(|ask| &ask.rule).collect(),
            Self::Look(rule) | Self::Settle { rule, .. } => SmallVec::from_iter([rule]),
            Self::Sync { deltas, .. } => deltas.iter().map(|delta| &delta.rule).collect(),
            Self::Reset => SmallVec::new(),
        }
    }
}

/// The most races that a delta may lose if the answers to other keys wait for it. Nodes push it
/// again a little later anyway. With the default back-off, so many attempts wait for at most 63 ms.
const ATTEMPTS_BESIDE_OTHERS: u32 = 7;

/// Work on a key, and the sender of its answer.
struct Job<Rule> {
    work: Work<Rule>,
    reply: oneshot::Sender<Result<Answers, StoreError>>,
    /// Number of races that it lost.
    losses: u32,
    /// The deadline; `None` before its first attempt.
    until: Option<Instant>,
}

impl<Rule> Job<Rule> {
    /// Returns the number of races that the work may lose. `of_call` is the setting for calls.
    fn attempts(&self, of_call: u32) -> u32 {
        match self.work {
            Work::Sync {
                has_others: true, ..
            } => of_call.min(ATTEMPTS_BESIDE_OTHERS),
            _ => of_call,
        }
    }

    /// Returns `true` if the work is for a caller that waits. Settlements and resets are done in
    /// any case.
    fn is_call(&self) -> bool {
        !matches!(self.work, Work::Settle { .. } | Work::Reset)
    }

    /// Returns `true` if the caller no longer waits, so that it must not be charged.
    fn is_abandoned(&self) -> bool {
        self.is_call() && self.reply.is_closed()
    }

    fn answer(self, answer: Result<Answers, StoreError>) {
        // A caller that no longer waits needs no answer.
        let _ = self.reply.send(answer);
    }
}

/// The most calls of one swap.
const BATCH: usize = 256;

/// Does the work on one key, several jobs with one swap.
struct SwapWorker<C: CompareAndSwap, Rule: Algorithm> {
    queue: Arc<SwapQueue<C, Rule>>,
    key: Box<[u8]>,
    batch: Vec<Job<Rule>>,
    /// The value that the last swap or load left under the key.
    cached: Option<CachedValue<C::Version, Rule::State>>,
    trust: CacheTrust,
    delays: Option<Delays>,
}

/// The result of an attempt.
enum AttemptResult<V> {
    /// The answers to all jobs.
    Answered(Vec<Result<Answers, StoreError>>),
    /// Another writer was faster.
    Lost {
        with: ValueSource,
        found: Option<Loaded<V>>,
    },
}

impl<C, Rule> SwapWorker<C, Rule>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec>,
{
    fn new(queue: Arc<SwapQueue<C, Rule>>, key: Box<[u8]>, batch: Vec<Job<Rule>>) -> Self {
        Self {
            queue,
            key,
            batch,
            cached: None,
            trust: CacheTrust::default(),
            delays: None,
        }
    }

    /// Moves jobs into the batch until it is full, and drops those whose callers no longer wait.
    /// Returns `true` if there is work.
    fn join(&mut self, jobs: &mut VecDeque<Job<Rule>>) -> bool {
        self.batch.retain(|job| !job.is_abandoned());
        jobs.retain(|job| !job.is_abandoned());
        let count = jobs.len().min(BATCH.saturating_sub(self.batch.len()));
        self.batch.extend(jobs.drain(..count));
        !self.batch.is_empty()
    }

    /// Sets the deadline of the jobs that have none yet.
    fn set_deadlines(&mut self, until: Instant) {
        for job in &mut self.batch {
            job.until.get_or_insert(until);
        }
    }

    /// Tries once to do the work of the batch, which is not empty.
    ///
    /// Jobs that were answered leave the batch. After a lost race, those that may be tried again
    /// stay, and the back-off has passed.
    async fn attempt(&mut self) {
        // That of the last job, which is the latest. One timer serves all operations.
        let until = self.batch.last().and_then(|job| job.until);
        let ended = {
            // By reference, because a future that is moved in would be stored three times, and a
            // task of more than a kilobyte takes the allocator twice as long.
            let work = pin!(self.load_and_swap());
            match until {
                Some(until) => timeout_at(until, work).await,
                None => Ok(work.await),
            }
        };
        let ended = ended.unwrap_or_else(|_| Err(StoreError::timeout()));
        match ended {
            Ok(AttemptResult::Answered(answers)) => {
                self.delays = None;
                for (job, answer) in self.batch.drain(..).zip(answers) {
                    job.answer(answer);
                }
                // A caller that asks again at once joins the next swap. This takes no time.
                yield_now().await;
            }
            Ok(AttemptResult::Lost { with, found }) => Box::pin(self.lost(with, found)).await,
            Err(error) => self.failed(&error),
        }
    }

    async fn load_and_swap(&mut self) -> Result<AttemptResult<C::Version>, StoreError> {
        loop {
            let mut cached = match self.recall() {
                Some(cached) => cached,
                None => {
                    self.queue.counters.loads.add(1);
                    let loaded = self.queue.data.load(&self.key).await?;
                    self.read(loaded, ValueSource::Load)
                }
            };
            let mut draft = cached.draft(&self.queue.clock);
            let jobs = self.batch.iter();
            let answers = jobs.map(|job| draft.apply(&job.work)).collect();
            self.queue.counters.healed.add(draft.healed);
            self.queue.counters.newer.add(draft.newer);
            let Some(change) = draft.change() else {
                if cached.source == ValueSource::Load {
                    self.cached = Some(cached);
                    return Ok(AttemptResult::Answered(answers));
                }
                // No swap will show whether the cached value is still there: load, and decide
                // again.
                continue;
            };
            let swap = Swap {
                expected: cached.version.as_ref(),
                value: change.value(),
                keep: change.keep,
            };
            self.queue.counters.swaps.add(1);
            let swapped = match self.queue.data.swap(&self.key, swap).await {
                Err(error) if error.is_unwritten() && self.batch.len() > 1 => {
                    let answers = Box::pin(self.without_writes(&error)).await?;
                    return Ok(AttemptResult::Answered(answers));
                }
                swapped => swapped?,
            };
            return Ok(match swapped {
                Swapped::Done(version) => {
                    if cached.source == ValueSource::Before {
                        self.trust = CacheTrust::default();
                    }
                    self.cached = cached.replaced(change, version);
                    AttemptResult::Answered(answers)
                }
                Swapped::Lost(found) => AttemptResult::Lost {
                    with: cached.source,
                    found,
                },
            });
        }
    }

    /// Answers a batch whose write the store rejected. Work that writes nothing by itself, such as
    /// a refused call, is answered; the other work fails.
    async fn without_writes(
        &mut self,
        error: &StoreError,
    ) -> Result<Vec<Result<Answers, StoreError>>, StoreError> {
        self.queue.counters.loads.add(1);
        let loaded = self.queue.data.load(&self.key).await?;
        let mut cached = CachedValue::read(loaded, ValueSource::Load, &self.queue.clock);
        let answers = self.batch.iter().map(|job| {
            let mut draft = cached.draft(&self.queue.clock);
            let answer = draft.apply(&job.work);
            match draft.change() {
                None => answer,
                Some(_) => Err(error.duplicate()),
            }
        });
        Ok(answers.collect())
    }

    /// Returns the cached value if it may still be there.
    fn recall(&mut self) -> Option<CachedValue<C::Version, Rule::State>> {
        let cached = self.cached.take()?;
        match cached.source {
            ValueSource::Loss => Some(cached),
            ValueSource::Load | ValueSource::Before if self.trust.allows() => {
                let is_old = cached.is_old(&self.queue.clock);
                (!is_old).then(|| cached.aged())
            }
            _ => None,
        }
    }

    fn read(
        &self,
        loaded: Loaded<C::Version>,
        source: ValueSource,
    ) -> CachedValue<C::Version, Rule::State> {
        let (clock, counters) = (&self.queue.clock, &self.queue.counters);
        let cached = CachedValue::read(loaded, source, clock);
        match cached.form {
            ValueForm::Current => {}
            ValueForm::Damaged => counters.healed.add(1),
            ValueForm::Newer => counters.newer.add(1),
        }
        cached
    }

    /// Gives up jobs that have lost too often or have no time left, and waits for a while with the
    /// others.
    async fn lost(&mut self, with: ValueSource, found: Option<Loaded<C::Version>>) {
        self.queue.counters.lost.add(1);
        let found = found.map(|found| self.read(found, ValueSource::Loss));
        if with == ValueSource::Before {
            // The cached value was old. That does not count as an attempt.
            self.trust.reduce();
            self.cached = found;
            return;
        }
        let attempts = self.queue.settings.attempts;
        for job in &mut self.batch {
            job.losses += 1;
        }
        self.give_up(|job| job.losses >= job.attempts(attempts));
        let is_first = self.batch.iter().all(|job| job.losses <= 1);
        if is_first && found.is_some() {
            // No other process knows the new value sooner.
            self.cached = found;
            return;
        }
        if self.delays.is_none() {
            self.delays = self.queue.delays();
        }
        let Some(delay) = self.delays.as_mut().and_then(Iterator::next) else {
            self.cached = found;
            self.give_up_late(sleep(Duration::ZERO).deadline());
            return;
        };
        let pause = sleep(delay);
        self.give_up_late(pause.deadline());
        if !self.batch.is_empty() {
            pause.await;
        }
    }

    fn give_up_late(&mut self, now: Instant) {
        self.give_up(|job| job.until.is_some_and(|until| until <= now));
    }

    /// Fails these jobs as contended.
    fn give_up(&mut self, is_over: impl Fn(&Job<Rule>) -> bool) {
        let (over, rest): (Vec<_>, _) = self.batch.drain(..).partition(is_over);
        self.batch = rest;
        self.queue.counters.contended.add(over.len() as u64);
        for job in over {
            job.answer(Err(StoreError::contended()));
        }
    }

    /// Fails the batch; after a timeout also all calls that wait for the key.
    fn failed(&mut self, error: &StoreError) {
        self.delays = None;
        // After lost races the deadline was near, so the store had little time.
        let is_silent = error.is_timeout() && self.batch.last().is_some_and(|job| job.losses == 0);
        let waiting = if is_silent {
            self.queue.calls(&self.key)
        } else {
            VecDeque::new()
        };
        for job in self.batch.drain(..).chain(waiting) {
            job.answer(Err(error.duplicate()));
        }
    }
}

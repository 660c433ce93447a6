//! Loads, decides and swaps, and repeats it after a lost race.

use std::{
    collections::VecDeque,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use tokio::{
    task::yield_now,
    time::{Instant, sleep, timeout_at},
};

use super::{
    CompareAndSwap, Loaded, Swap, Swapped,
    cached::{CachedValue, Form, Source},
    draft::Draft,
    queue::Queue,
    work::Job,
};
use crate::{
    algorithm::{Algorithm, Codec},
    backoff::Delays,
    store::{Error, engine::Answers},
    time::Clock,
};

/// The most calls of one swap.
const BATCH: usize = 256;

/// Does the work on one key, several jobs with one swap.
pub(super) struct Worker<C: CompareAndSwap, Rule: Algorithm, K> {
    pub(super) queue: Arc<Queue<C, Rule, K>>,
    key: Box<[u8]>,
    batch: Vec<Job<Rule>>,
    /// The value that the last swap or load left under the key.
    known: Option<CachedValue<C::Version, Rule::State>>,
    doubt: CacheTrust,
    delays: Option<Delays>,
}

/// The result of an attempt.
enum Ended<V> {
    /// The answers to all jobs.
    Answered(Vec<Result<Answers, Error>>),
    /// Another writer was faster.
    Lost {
        with: Source,
        found: Option<Loaded<V>>,
    },
}

impl<C, Rule, K> Worker<C, Rule, K>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec + Send> + Send + Sync + 'static,
    K: Clock + Send + Sync + 'static,
{
    pub(super) fn new(
        queue: Arc<Queue<C, Rule, K>>,
        key: Box<[u8]>,
        batch: Vec<Job<Rule>>,
    ) -> Self {
        Self {
            queue,
            key,
            batch,
            known: None,
            doubt: CacheTrust::default(),
            delays: None,
        }
    }

    /// Adds jobs to the batch as far as it has room, without those whose callers no longer wait. Returns `true` if there is work.
    pub(super) fn join(&mut self, jobs: &mut VecDeque<Job<Rule>>) -> bool {
        self.batch.retain(|job| !job.is_abandoned());
        jobs.retain(|job| !job.is_abandoned());
        let count = jobs.len().min(BATCH.saturating_sub(self.batch.len()));
        self.batch.extend(jobs.drain(..count));
        !self.batch.is_empty()
    }

    /// Sets the deadline of the jobs that have none yet.
    pub(super) fn set_deadlines(&mut self, until: Instant) {
        for job in &mut self.batch {
            job.until.get_or_insert(until);
        }
    }

    /// Tries once to do the work of the batch, which is not empty.
    ///
    /// Jobs that were answered leave the batch. After a lost race, those that may be tried again stay, and the back-off has passed.
    pub(super) async fn attempt(&mut self) {
        let ended = {
            let until = self.until();
            let work = pin!(self.load_and_swap());
            in_time(until, work).await
        };
        match ended {
            Ok(Ended::Answered(answers)) => {
                self.delays = None;
                for (job, answer) in self.batch.drain(..).zip(answers) {
                    job.answer(answer);
                }
                // A caller that asks again at once joins the next swap. This takes no time.
                yield_now().await;
            }
            Ok(Ended::Lost { with, found }) => Box::pin(self.lost(with, found)).await,
            Err(error) => self.failed(&error),
        }
    }

    async fn load_and_swap(&mut self) -> Result<Ended<C::Version>, Error> {
        loop {
            let mut known = match self.recall() {
                Some(known) => known,
                None => self.load().await?,
            };
            let now = known.now(&self.queue.clock);
            let mut draft = Draft::new(&mut known.frame, known.form == Form::Newer, now);
            let jobs = self.batch.iter();
            let answers = jobs.map(|job| draft.apply(&job.work)).collect();
            self.queue.counters.healed.add(draft.healed);
            self.queue.counters.newer.add(draft.newer);
            let Some(change) = draft.change() else {
                if known.source == Source::Load {
                    self.known = Some(known);
                    return Ok(Ended::Answered(answers));
                }
                // No swap will show whether the cached value is still there: load, and decide again.
                continue;
            };
            let swap = Swap {
                expected: known.version.as_ref(),
                value: change.value(),
                keep: change.keep,
            };
            let swapped = match self.swap(swap).await {
                Err(error) if error.is_unwritten() && self.batch.len() > 1 => {
                    let answers = Box::pin(self.without_writes(&error)).await?;
                    return Ok(Ended::Answered(answers));
                }
                swapped => swapped?,
            };
            return Ok(match swapped {
                Swapped::Done(version) => {
                    if known.source == Source::Before {
                        self.doubt = CacheTrust::default();
                    }
                    self.known = known.replaced(change, version);
                    Ended::Answered(answers)
                }
                Swapped::Lost(found) => Ended::Lost {
                    with: known.source,
                    found,
                },
            });
        }
    }

    /// Answers the work that writes nothing if it is done alone, such as a refused call, beside other work that the store took no
    /// write for. The other work fails.
    async fn without_writes(
        &mut self,
        error: &Error,
    ) -> Result<Vec<Result<Answers, Error>>, Error> {
        self.queue.counters.loads.add(1);
        let Loaded { value, now } = self.queue.data.load(&self.key).await?;
        let bytes = value.map(|(_, bytes)| bytes);
        let answers = self.batch.iter().map(|job| {
            let value = bytes.clone().map(|bytes| ((), bytes));
            let loaded = Loaded { value, now };
            let mut known = CachedValue::read(loaded, Source::Load, &self.queue.clock);
            let now = known.now(&self.queue.clock);
            let mut draft = Draft::new(&mut known.frame, known.form == Form::Newer, now);
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
        let known = self.known.take()?;
        match known.source {
            Source::Loss => Some(known),
            Source::Load | Source::Before if self.doubt.allows() => {
                let is_old = known.is_old(&self.queue.clock);
                (!is_old).then(|| known.aged())
            }
            _ => None,
        }
    }

    async fn load(&mut self) -> Result<CachedValue<C::Version, Rule::State>, Error> {
        self.queue.counters.loads.add(1);
        let loaded = self.queue.data.load(&self.key).await?;
        Ok(self.read(loaded, Source::Load))
    }

    async fn swap(&mut self, swap: Swap<'_, C::Version>) -> Result<Swapped<C::Version>, Error> {
        self.queue.counters.swaps.add(1);
        self.queue.data.swap(&self.key, swap).await
    }

    /// Returns the latest deadline of the batch, which is that of the last job.
    fn until(&self) -> Option<Instant> {
        self.batch.last().and_then(|job| job.until)
    }

    fn read(
        &self,
        loaded: Loaded<C::Version>,
        source: Source,
    ) -> CachedValue<C::Version, Rule::State> {
        let (clock, counters) = (&self.queue.clock, &self.queue.counters);
        let known = CachedValue::read(loaded, source, clock);
        match known.form {
            Form::Current => {}
            Form::Damaged => counters.healed.add(1),
            Form::Newer => counters.newer.add(1),
        }
        known
    }

    /// Gives up jobs that have lost too often or have no time left, and waits for a while with the others.
    async fn lost(&mut self, with: Source, found: Option<Loaded<C::Version>>) {
        self.queue.counters.lost.add(1);
        let found = found.map(|found| self.read(found, Source::Loss));
        if with == Source::Before {
            // The cached value was old. That does not count as an attempt.
            self.doubt.more();
            self.known = found;
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
            self.known = found;
            return;
        }
        if self.delays.is_none() {
            self.delays = self.queue.delays();
        }
        let Some(delay) = self.delays.as_mut().and_then(Iterator::next) else {
            self.known = found;
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

    /// Answers these jobs that the key is too contended.
    fn give_up(&mut self, is_over: impl Fn(&Job<Rule>) -> bool) {
        let (over, rest): (Vec<_>, _) = self.batch.drain(..).partition(is_over);
        self.batch = rest;
        self.queue.counters.contended.add(over.len() as u64);
        for job in over {
            job.answer(Err(Error::contended()));
        }
    }

    /// Answers the batch with an error; and, if the store is silent, all calls that wait for the key.
    fn failed(&mut self, error: &Error) {
        self.delays = None;
        // After lost races the deadline was near, so the silence was short.
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

/// Awaits an attempt until its deadline: one timer serves all its operations. By reference, because a future that is moved in
/// would be stored three times, and a task of more than a kilobyte takes the allocator twice as long.
async fn in_time<T>(
    until: Option<Instant>,
    answer: Pin<&mut impl Future<Output = Result<T, Error>>>,
) -> Result<T, Error> {
    match until {
        Some(until) => timeout_at(until, answer)
            .await
            .unwrap_or_else(|_| Err(Error::timeout())),
        None => answer.await,
    }
}

/// Decides whether the cached value is worth a try. If other processes write the key, too, it rarely is: each time that it was
/// old, it is left out twice as often.
#[derive(Default)]
struct CacheTrust {
    times: u32,
    left_out: u32,
}

impl CacheTrust {
    fn allows(&mut self) -> bool {
        let allows = self.left_out == 0;
        self.left_out = self.left_out.saturating_sub(1);
        allows
    }

    fn more(&mut self) {
        self.times = (self.times + 1).min(6);
        self.left_out = 1 << self.times;
    }
}

//! Calls that go out together.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{runtime::Handle, sync::oneshot};

use super::{
    Evaluate,
    answer::{Answer, decisions},
    request::{Call, Request},
};
use crate::{
    algorithm::Scripted,
    store::{Decisions, Error},
};

/// Calls of one request at most.
const BATCH: usize = 128;
/// Requests under way at once, for each group of keys.
const UNDER_WAY: usize = 2;

/// A call, and who waits for its decisions.
struct Job<Rule> {
    call: Call<Rule>,
    reply: oneshot::Sender<Result<Decisions, Error>>,
}

/// Calls that wait for their turn, by group of keys.
pub(super) struct Queue<E, Rule> {
    data: Arc<E>,
    waiting: Mutex<HashMap<u32, Group<Rule>>>,
    pub(super) counters: Arc<Counters>,
}

struct Group<Rule> {
    jobs: VecDeque<Job<Rule>>,
    under_way: usize,
}

/// The right to send for a group. Returned also when the runtime is shut down in between: then who waited on it is
/// told, and later calls on another runtime go out.
struct Turn<E, Rule> {
    queue: Arc<Queue<E, Rule>>,
    group: u32,
    /// Whether [`Queue::next`] has taken it back.
    is_over: bool,
}

impl<E, Rule> Drop for Turn<E, Rule> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut waiting = lock(&self.queue.waiting);
            if let Some(entry) = waiting.get_mut(&self.group) {
                entry.jobs.clear();
                entry.under_way -= 1;
                if entry.under_way == 0 {
                    waiting.remove(&self.group);
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What happened, all clones together.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) healed: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        // A count that is read for a report orders nothing.
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl<E, Rule> Queue<E, Rule>
where
    E: Evaluate,
    Rule: Scripted<State: Send> + Send + 'static,
{
    pub(super) fn new(data: Arc<E>) -> Self {
        Self {
            data,
            waiting: Mutex::default(),
            counters: Arc::default(),
        }
    }

    /// Asks for a call's decisions; it goes out now, or with others as soon as a request comes back.
    ///
    /// # Errors
    ///
    /// When the call is about keys of several groups, or there is no runtime that could send it.
    pub(super) fn ask(
        self: &Arc<Self>,
        call: Call<Rule>,
    ) -> Result<oneshot::Receiver<Result<Decisions, Error>>, Error> {
        let (reply, answer) = oneshot::channel();
        let mut groups = call.0.iter().map(|question| self.data.group(&question.key));
        let group = groups.next().unwrap_or(0);
        // Else it would spoil the whole request.
        if groups.any(|other| other != group) {
            return Err(Error::other(
                "one call asks about clients whose states lie apart, where they cannot be spent together: expected one \
                 client with all its limits; ask about each client by itself",
            ));
        }
        let runtime = Handle::try_current().map_err(Error::other)?;
        let mut waiting = lock(&self.waiting);
        let entry = waiting.entry(group).or_insert_with(|| Group {
            jobs: VecDeque::new(),
            under_way: 0,
        });
        entry.jobs.push_back(Job { call, reply });
        if entry.under_way < UNDER_WAY {
            entry.under_way += 1;
            drop(waiting);
            let turn = Turn {
                queue: Arc::clone(self),
                group,
                is_over: false,
            };
            runtime.spawn(Self::work(turn));
        }
        Ok(answer)
    }

    /// The calls of the next request; none if nobody waits, and then nobody works for the group.
    fn next(&self, group: u32) -> Vec<Job<Rule>> {
        let mut waiting = lock(&self.waiting);
        let Some(entry) = waiting.get_mut(&group) else {
            return Vec::new();
        };
        // Who does not wait any more is not charged.
        entry.jobs.retain(|job| !job.reply.is_closed());
        let count = entry.jobs.len().min(BATCH);
        let jobs: Vec<_> = entry.jobs.drain(..count).collect();
        if jobs.is_empty() {
            entry.under_way -= 1;
            if entry.under_way == 0 {
                waiting.remove(&group);
            }
        }
        jobs
    }

    /// Sends requests until nobody waits.
    async fn work(mut turn: Turn<E, Rule>) {
        let (queue, group) = (Arc::clone(&turn.queue), turn.group);
        loop {
            let jobs = queue.next(group);
            if jobs.is_empty() {
                turn.is_over = true;
                return;
            }
            let Err((error, jobs)) = queue.send(jobs).await else {
                continue;
            };
            // A silent server is as silent to those who wait: none of them waits for more than one silence.
            let waiting = if error.is_timeout() {
                queue.all_waiting(group)
            } else {
                VecDeque::new()
            };
            for job in jobs.into_iter().chain(waiting) {
                let _ = job.reply.send(Err(error.again()));
            }
        }
    }

    fn all_waiting(&self, group: u32) -> VecDeque<Job<Rule>> {
        let mut waiting = lock(&self.waiting);
        let entry = waiting.get_mut(&group);
        entry.map_or_else(VecDeque::new, |entry| std::mem::take(&mut entry.jobs))
    }

    /// Sends a request and answers its calls; hands them back if there is no answer.
    async fn send(&self, jobs: Vec<Job<Rule>>) -> Result<(), (Error, Vec<Job<Rule>>)> {
        let request = Request::of(None, jobs.iter().map(|job| &job.call));
        Counters::add(&self.counters.requests, 1);
        Counters::add(&self.counters.calls, jobs.len() as u64);
        let keys = request.keys.len();
        let answer = self
            .data
            .evaluate(request.program, request.keys, request.argument)
            .await;
        let read = answer
            .as_ref()
            .map_err(Error::again)
            .and_then(|bytes| Answer::read(request.program, bytes, keys));
        let answer = match read {
            Ok(answer) => answer,
            Err(error) => return Err((error, jobs)),
        };
        Counters::add(&self.counters.healed, answer.healed);
        match decisions(&answer, jobs.iter().map(|job| &job.call), &request.places) {
            Ok(decided) => {
                for (job, decisions) in jobs.into_iter().zip(decided) {
                    let _ = job.reply.send(Ok(decisions));
                }
            }
            Err(error) => {
                for job in jobs {
                    let _ = job.reply.send(Err(error.again()));
                }
            }
        }
        Ok(())
    }
}

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
    store::{Decisions, Error, task::gone},
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

impl<Rule> AsRef<Call<Rule>> for Job<Rule> {
    fn as_ref(&self) -> &Call<Rule> {
        &self.call
    }
}

/// Calls that wait for their turn.
pub(super) struct Queue<E, Rule> {
    data: Arc<E>,
    waiting: Mutex<Waiting<Rule>>,
    pub(super) counters: Arc<Counters>,
}

struct Waiting<Rule> {
    /// Those that are worked for, by group of keys.
    groups: HashMap<u32, Group<Rule>>,
    /// Whether a call is under way that found nobody else.
    one_alone: bool,
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
            let groups = &mut self.queue.waiting().groups;
            if let Some(entry) = groups.get_mut(&self.group) {
                entry.jobs.clear();
                entry.under_way -= 1;
                if entry.under_way == 0 {
                    groups.remove(&self.group);
                }
            }
        }
    }
}

/// The way of a call that found nobody else.
struct Alone<'a, E, Rule>(&'a Queue<E, Rule>);

impl<E, Rule> Drop for Alone<'_, E, Rule> {
    fn drop(&mut self) {
        self.0.waiting().one_alone = false;
    }
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

impl<E, Rule> Queue<E, Rule> {
    pub(super) fn new(data: Arc<E>) -> Self {
        let waiting = Waiting {
            groups: HashMap::new(),
            one_alone: false,
        };
        Self {
            data,
            waiting: Mutex::new(waiting),
            counters: Arc::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<Rule>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E, Rule> Queue<E, Rule>
where
    E: Evaluate,
    Rule: Scripted<State: Send> + Send + 'static,
{
    /// The decisions of a call, once the future is polled: it goes out at once, or with others as soon as a request
    /// comes back.
    ///
    /// # Errors
    ///
    /// When the call is about keys of several groups, or there is no answer.
    pub(super) async fn ask(
        self: Arc<Self>,
        call: Call<Rule>,
        runtime: Handle,
    ) -> Result<Decisions, Error> {
        let mut groups = call.0.iter().map(|question| self.data.group(&question.key));
        let group = groups.next().unwrap_or(0);
        // Else it would spoil the whole request.
        if groups.any(|other| other != group) {
            return Err(Error::other(
                "one call asks about clients whose states lie apart, where they cannot be spent together: expected one \
                 client with all its limits; ask about each client by itself",
            ));
        }
        drop(groups);
        // Nobody waits for a call that is sent from here, should it not be polled any more.
        if let Some(_alone) = self.alone() {
            // In a box of its own: the connection's part is large, and most of those who ask at once only wait.
            let (_, decided) = Box::pin(self.send(vec![call])).await;
            return decided.map(|decided| decided.into_iter().next().unwrap_or_default());
        }
        let answer = self.enqueue(group, call, &runtime);
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    fn alone(&self) -> Option<Alone<'_, E, Rule>> {
        let waiting = &mut self.waiting();
        let found_none = waiting.groups.is_empty() && !waiting.one_alone;
        waiting.one_alone |= found_none;
        found_none.then(|| Alone(self))
    }

    fn enqueue(
        self: &Arc<Self>,
        group: u32,
        call: Call<Rule>,
        runtime: &Handle,
    ) -> oneshot::Receiver<Result<Decisions, Error>> {
        let (reply, answer) = oneshot::channel();
        let mut waiting = self.waiting();
        let entry = waiting.groups.entry(group).or_insert_with(|| Group {
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
        answer
    }

    /// The calls of the next request; none if nobody waits, and then nobody works for the group.
    fn next(&self, group: u32) -> Vec<Job<Rule>> {
        let groups = &mut self.waiting().groups;
        let Some(entry) = groups.get_mut(&group) else {
            return Vec::new();
        };
        // Who does not wait any more is not charged.
        entry.jobs.retain(|job| !job.reply.is_closed());
        let count = entry.jobs.len().min(BATCH);
        let jobs: Vec<_> = entry.jobs.drain(..count).collect();
        if jobs.is_empty() {
            entry.under_way -= 1;
            if entry.under_way == 0 {
                groups.remove(&group);
            }
        }
        jobs
    }

    /// Sends requests until nobody waits.
    async fn work(mut turn: Turn<E, Rule>) {
        let (queue, group) = (Arc::clone(&turn.queue), turn.group);
        loop {
            // Whoever is ready to ask, as those who were answered just now may be, goes along.
            tokio::task::yield_now().await;
            let jobs = queue.next(group);
            if jobs.is_empty() {
                turn.is_over = true;
                return;
            }
            let (jobs, decided) = queue.send(jobs).await;
            let error = match decided {
                Ok(decided) => {
                    for (job, decisions) in jobs.into_iter().zip(decided) {
                        let _ = job.reply.send(Ok(decisions));
                    }
                    continue;
                }
                Err(error) => error,
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
        let mut waiting = self.waiting();
        let entry = waiting.groups.get_mut(&group);
        entry.map_or_else(VecDeque::new, |entry| std::mem::take(&mut entry.jobs))
    }

    /// Sends calls as one request. Hands them back, and the decisions of each.
    async fn send<C: AsRef<Call<Rule>>>(
        &self,
        calls: Vec<C>,
    ) -> (Vec<C>, Result<Vec<Decisions>, Error>) {
        let request = Request::of(None, calls.iter().map(AsRef::as_ref));
        Counters::add(&self.counters.requests, 1);
        Counters::add(&self.counters.calls, calls.len() as u64);
        let Request {
            program,
            keys,
            argument,
            places,
        } = request;
        let count = keys.len();
        let answer = self.data.evaluate(program, keys, argument).await;
        let decided = answer.and_then(|bytes| {
            let answer = Answer::read(program, &bytes, count)?;
            Counters::add(&self.counters.healed, answer.healed);
            decisions(&answer, calls.iter().map(AsRef::as_ref), &places)
        });
        (calls, decided)
    }
}

//! Batches of calls and corrections.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use foldhash::fast::RandomState;
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    Evaluate,
    answer::Answer,
    replay::decided,
    request::{Call, Request},
    settlement::{Correction, Settler},
};
use crate::{
    algorithm::Scripted,
    error,
    store::{
        BoxFuture, Check, Decisions, Error,
        task::{runtime, runtime_gone},
        unsettled::Unsettled,
    },
};

/// Calls and corrections of one request at most.
const BATCH: usize = 128;
/// Corrections of one request at most. Half of a batch, so that neither kind starves the other.
const CORRECTIONS: usize = BATCH / 2;
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

impl<Rule> AsMut<Call<Rule>> for Job<Rule> {
    fn as_mut(&mut self) -> &mut Call<Rule> {
        &mut self.call
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
    groups: HashMap<u32, Group<Rule>, RandomState>,
    /// Whether a call is under way that found nobody else.
    one_alone: bool,
}

struct Group<Rule> {
    jobs: VecDeque<Job<Rule>>,
    corrections: VecDeque<Settling>,
    under_way: usize,
}

/// A correction and where to report its outcome.
type Settling = (Correction, Settler);

impl<Rule> Default for Group<Rule> {
    fn default() -> Self {
        Self {
            jobs: VecDeque::new(),
            corrections: VecDeque::new(),
            under_way: 0,
        }
    }
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
                entry.corrections.clear();
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

/// How a call went in.
enum Entry<'a, E, Rule> {
    /// It found nobody else, and is to be sent by whoever asked: nobody waits for it, should it not be polled any more.
    Alone(Call<Rule>, Alone<'a, E, Rule>),
    /// It waits for its answer; with the right to send, if there was one left.
    Waiting(
        oneshot::Receiver<Result<Decisions, Error>>,
        Option<Turn<E, Rule>>,
    ),
}

/// What happened, all clones together.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) healed: AtomicU64,
    pub(super) unsettled: Unsettled,
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
            groups: HashMap::default(),
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
            return Err(Error::unsupported(
                "one call asks about clients whose states lie apart, where they cannot be spent together: expected one \
                 client with all its limits; ask about each client by itself",
            ));
        }
        drop(groups);
        let answer = match self.enter(group, call) {
            Entry::Alone(call, _alone) => {
                // In a box of its own: the connection's part is large, and most of those who ask at once only wait.
                let (_, decided) = Box::pin(self.send([call].into(), Vec::new())).await;
                return decided?.pop().unwrap_or_else(|| Ok(Decisions::default()));
            }
            Entry::Waiting(answer, turn) => {
                if let Some(turn) = turn {
                    runtime.spawn(Self::work(turn));
                }
                answer
            }
        };
        answer.await.unwrap_or_else(|_| Err(runtime_gone()))
    }

    /// Takes a call in, at one look at those who wait: threads meet here.
    fn enter(self: &Arc<Self>, group: u32, call: Call<Rule>) -> Entry<'_, E, Rule> {
        let waiting = &mut *self.waiting();
        if waiting.groups.is_empty() && !waiting.one_alone {
            waiting.one_alone = true;
            return Entry::Alone(call, Alone(self));
        }
        let (reply, answer) = oneshot::channel();
        let entry = waiting.groups.entry(group).or_default();
        entry.jobs.push_back(Job { call, reply });
        Entry::Waiting(answer, self.turn(group, entry))
    }

    /// Returns the right to send for a group, unless all requests that may be in flight for it are taken.
    fn turn(self: &Arc<Self>, group: u32, entry: &mut Group<Rule>) -> Option<Turn<E, Rule>> {
        let is_worked_for = entry.under_way == UNDER_WAY;
        entry.under_way += usize::from(!is_worked_for);
        (!is_worked_for).then(|| Turn {
            queue: Arc::clone(self),
            group,
            is_over: false,
        })
    }

    /// Queues corrections, to be sent with the calls that wait. They are sent even if the returned future is dropped, and one that
    /// fails does not keep the others from being made.
    pub(super) fn settle(
        self: &Arc<Self>,
        corrections: impl Iterator<Item = Result<Correction, error::Error>>,
    ) -> Check<BoxFuture<Result<(), Error>>> {
        let mut answers = Vec::new();
        let mut known = Vec::new();
        for correction in corrections {
            let (settler, answer) = Settler::new(&self.counters.unsettled);
            answers.push(answer);
            match correction {
                Ok(correction) => known.push((correction, settler)),
                Err(error) => settler.end(Err(Error::unsupported(error))),
            }
        }
        match runtime() {
            Ok(runtime) => self.take_in(known).into_iter().for_each(|turn| {
                runtime.spawn(Self::work(turn));
            }),
            Err(error) => known
                .into_iter()
                .for_each(|(_, settler)| settler.end(Err(error.duplicate()))),
        }
        Check::Pending(Box::pin(async move {
            let mut settled = Ok(());
            for answer in answers {
                let one = answer.await.unwrap_or_else(|_| Err(runtime_gone()));
                settled = settled.and(one);
            }
            settled
        }))
    }

    /// Queues each correction in the group of its key. Returns the turns that need a task.
    fn take_in(self: &Arc<Self>, corrections: Vec<Settling>) -> Vec<Turn<E, Rule>> {
        let waiting = &mut *self.waiting();
        let mut turns = Vec::new();
        for settling in corrections {
            let group = self.data.group(&settling.0.key);
            let entry = waiting.groups.entry(group).or_default();
            entry.corrections.push_back(settling);
            // One task sends all corrections that are queued together.
            if entry.corrections.len() == 1 {
                turns.extend(self.turn(group, entry));
            }
        }
        turns
    }

    /// Exchanges `jobs`, which are none, for those of the next request, and adds its corrections to `corrections`. If nobody waits,
    /// nobody works for the group from then on.
    fn next(
        &self,
        group: u32,
        jobs: &mut VecDeque<Job<Rule>>,
        corrections: &mut Vec<Settling>,
    ) -> bool {
        let groups = &mut self.waiting().groups;
        let Some(entry) = groups.get_mut(&group) else {
            return false;
        };
        if entry.jobs.is_empty() && entry.corrections.is_empty() {
            entry.under_way -= 1;
            if entry.under_way == 0 {
                groups.remove(&group);
            }
            return false;
        }
        let first = entry.corrections.len().min(CORRECTIONS);
        corrections.extend(entry.corrections.drain(..first));
        let room = BATCH - first;
        if entry.jobs.len() <= room {
            // Both keep their room.
            std::mem::swap(&mut entry.jobs, jobs);
        } else {
            jobs.extend(entry.jobs.drain(..room));
        }
        true
    }

    /// Sends requests until nobody waits.
    async fn work(mut turn: Turn<E, Rule>) {
        let (queue, group) = (Arc::clone(&turn.queue), turn.group);
        let mut jobs = VecDeque::new();
        loop {
            // Whoever is ready to ask, as those who were answered just now may be, goes along.
            tokio::task::yield_now().await;
            let mut corrections = Vec::new();
            if !queue.next(group, &mut jobs, &mut corrections) {
                turn.is_over = true;
                return;
            }
            // Who does not wait any more is not charged.
            jobs.retain(|job| !job.reply.is_closed());
            if jobs.is_empty() && corrections.is_empty() {
                continue;
            }
            let decided;
            (jobs, decided) = queue.send(jobs, corrections).await;
            let error = match decided {
                Ok(decided) => {
                    for (job, decisions) in jobs.drain(..).zip(decided) {
                        let _ = job.reply.send(decisions);
                    }
                    continue;
                }
                Err(error) => error,
            };
            // A silent server is as silent to those who wait: none of them waits for more than one silence.
            let (waiting, corrections) = if error.is_timeout() {
                queue.all_waiting(group)
            } else {
                Default::default()
            };
            for job in jobs.drain(..).chain(waiting) {
                let _ = job.reply.send(Err(error.duplicate()));
            }
            for (_, settler) in corrections {
                settler.end(Err(error.duplicate()));
            }
        }
    }

    fn all_waiting(&self, group: u32) -> (VecDeque<Job<Rule>>, VecDeque<Settling>) {
        let mut waiting = self.waiting();
        let entry = waiting.groups.get_mut(&group);
        entry.map_or_else(Default::default, |entry| {
            let jobs = std::mem::take(&mut entry.jobs);
            (jobs, std::mem::take(&mut entry.corrections))
        })
    }

    /// Sends corrections and calls as one request. Returns the calls, and what became of each.
    async fn send<C: AsRef<Call<Rule>> + AsMut<Call<Rule>>>(
        &self,
        mut calls: VecDeque<C>,
        corrections: Vec<Settling>,
    ) -> (VecDeque<C>, Result<Vec<Result<Decisions, Error>>, Error>) {
        let (corrections, settlers): (Vec<_>, Vec<_>) = corrections.into_iter().unzip();
        let request = Request::of(None, corrections, calls.make_contiguous());
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
        // An answer tells whether the program's writes were taken, and so its corrections.
        let mut settled = Ok(());
        let decided = answer.and_then(|bytes| {
            let answer = Answer::read(program, &bytes, count)?;
            Counters::add(&self.counters.healed, answer.healed);
            settled = match &answer.unwritten {
                None => Ok(()),
                Some(why) => Err(self.data.unwritten(why)),
            };
            let calls = calls.iter().map(AsRef::as_ref);
            Ok(decided(&answer, calls, &places, |why| {
                self.data.unwritten(why)
            }))
        });
        let failure = decided.as_ref().err().or(settled.as_ref().err());
        for settler in settlers {
            settler.end(failure.map_or(Ok(()), |error| Err(error.duplicate())));
        }
        (calls, decided)
    }
}

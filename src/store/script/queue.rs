//! Calls that go out together.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::oneshot;

use super::{
    Evaluate, Program,
    answer::{Answer, Replay},
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
    pub(super) fn ask(
        self: &Arc<Self>,
        call: Call<Rule>,
    ) -> oneshot::Receiver<Result<Decisions, Error>> {
        let (reply, answer) = oneshot::channel();
        let group = call
            .0
            .first()
            .map_or(0, |question| self.data.group(&question.key));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = waiting.entry(group).or_insert_with(|| Group {
            jobs: VecDeque::new(),
            under_way: 0,
        });
        entry.jobs.push_back(Job { call, reply });
        if entry.under_way < UNDER_WAY {
            entry.under_way += 1;
            drop(waiting);
            tokio::spawn(Arc::clone(self).work(group));
        }
        answer
    }

    /// The calls of the next request; none if nobody waits, and then nobody works for the group.
    fn next(&self, group: u32) -> Vec<Job<Rule>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
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
    async fn work(self: Arc<Self>, group: u32) {
        loop {
            let jobs = self.next(group);
            if jobs.is_empty() {
                return;
            }
            self.send(jobs).await;
        }
    }

    async fn send(&self, jobs: Vec<Job<Rule>>) {
        let request = Request::of(None, jobs.iter().map(|job| &job.call));
        Counters::add(&self.counters.requests, 1);
        Counters::add(&self.counters.calls, jobs.len() as u64);
        let keys = request.keys.len();
        let answer = self
            .data
            .evaluate(Program::DECIDE, request.keys, request.argument)
            .await;
        let read = answer
            .as_ref()
            .map_err(Error::again)
            .and_then(|bytes| Answer::read(bytes, keys));
        let answer = match read {
            Ok(answer) => answer,
            Err(error) => {
                for job in jobs {
                    let _ = job.reply.send(Err(error.again()));
                }
                return;
            }
        };
        Counters::add(&self.counters.healed, answer.healed);
        let mut replay = Replay::new(&answer);
        let mut places = &request.places[..];
        let mut decided = Vec::with_capacity(jobs.len());
        for job in jobs {
            let (own, rest) = places.split_at(job.call.0.len());
            places = rest;
            decided.push((replay.decide(&job.call, own), job.reply));
        }
        let agrees = replay.admitted == answer.admitted;
        for (decisions, reply) in decided {
            // Should they ever disagree, nobody is told what may not be so.
            let _ = reply.send(if agrees {
                Ok(decisions)
            } else {
                Err(disagreement())
            });
        }
    }
}

#[cold]
fn disagreement() -> Error {
    Error::other(
        "the program beside the data decided otherwise than this process: expected the same version of both",
    )
}

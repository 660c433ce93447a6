//! Batches of calls and corrections.
//!
//! Calls go out together while others are in flight: at most 128, and two requests at a time per
//! group of keys. Nobody waits for a batch to fill. A call that finds no other sends itself,
//! without a task. If its caller drops it, a task waits for the answer or `response_timeout`: only
//! a call that sees the silence to its end can give up a dead connection.

use std::{collections::VecDeque, mem, sync::Arc};

use tokio::{runtime::Handle, sync::oneshot};

use super::{
    Evaluate, ScriptCounters,
    answer::{ScriptAnswer, decided},
    request::{ScriptCall, ScriptRequest},
    settle::{Correction, Settler},
};
use crate::{
    algorithm::Scripted,
    error,
    store::{
        BoxFuture, Check, Decisions, StoreError,
        engine::{self, Bypass, CombiningQueue, Unsettled, runtime, runtime_gone},
    },
};

/// The most calls and corrections of one request.
const BATCH: usize = 128;
/// The most corrections of one request: half of a batch, so that neither kind starves the other.
const CORRECTIONS: usize = BATCH / 2;
/// The most requests in flight at once, for each group of keys.
const IN_FLIGHT: usize = 2;

/// Combines calls and corrections into requests.
pub(super) struct CallQueue<E, Rule> {
    pub(super) data: E,
    /// One lane for each group of keys.
    waiting: Arc<CombiningQueue<u32, WaitingBatch<Rule>>>,
    pub(super) counters: ScriptCounters,
    pub(super) unsettled: Unsettled,
}

/// Calls and corrections that wait for the next request about a group of keys.
struct WaitingBatch<Rule> {
    calls: VecDeque<ScriptCall<Rule>>,
    corrections: VecDeque<QueuedCorrection>,
}

/// A correction, and the reporter of its result.
type QueuedCorrection = (Correction, Settler);

impl<Rule> Default for WaitingBatch<Rule> {
    fn default() -> Self {
        Self {
            calls: VecDeque::new(),
            corrections: VecDeque::new(),
        }
    }
}

type ScriptTurn<Rule> = engine::QueueTurn<u32, WaitingBatch<Rule>>;

/// The path of a call: alone, or with a batch.
enum SendPath<'a, Rule> {
    /// Sent by its caller, because no other call is in flight. No other call waits for it, so the
    /// caller may stop polling.
    Alone(ScriptCall<Rule>, Bypass<'a, u32, WaitingBatch<Rule>>),
    /// Sent with a batch. If there is a turn, the caller must spawn its worker.
    Queued(
        oneshot::Receiver<Result<Decisions, StoreError>>,
        Option<ScriptTurn<Rule>>,
    ),
}

impl<Rule> WaitingBatch<Rule> {
    /// Moves the calls of the next request into `calls`, which is empty, and its corrections into
    /// `corrections`. Returns `false` if nothing waits.
    fn take(
        &mut self,
        calls: &mut VecDeque<ScriptCall<Rule>>,
        corrections: &mut Vec<QueuedCorrection>,
    ) -> bool {
        if self.calls.is_empty() && self.corrections.is_empty() {
            return false;
        }
        let first = self.corrections.len().min(CORRECTIONS);
        corrections.extend(self.corrections.drain(..first));
        let room = BATCH - first;
        if self.calls.len() <= room {
            // Both keep their capacity.
            mem::swap(&mut self.calls, calls);
        } else {
            calls.extend(self.calls.drain(..room));
        }
        true
    }
}

impl<E, Rule> CallQueue<E, Rule> {
    pub(super) fn new(data: E) -> Self {
        Self {
            data,
            waiting: CombiningQueue::new(IN_FLIGHT),
            counters: ScriptCounters::default(),
            unsettled: Unsettled::default(),
        }
    }
}

impl<E, Rule> CallQueue<E, Rule>
where
    E: Evaluate,
    Rule: Scripted,
{
    /// Returns the decisions of a call. Once the future is polled, the call is sent at once, or in
    /// a batch as soon as a request has returned.
    ///
    /// # Errors
    ///
    /// Fails if the call is about keys of several groups, or the store fails.
    pub(super) async fn ask(
        self: Arc<Self>,
        call: ScriptCall<Rule>,
        runtime: Handle,
    ) -> Result<Decisions, StoreError> {
        let mut groups = call.asks.iter().map(|ask| self.data.group(&ask.at.name));
        let group = groups.next().unwrap_or(0);
        // It would make the whole request fail.
        if groups.any(|other| other != group) {
            return Err(StoreError::unsupported(
                "one call asks about clients whose states lie apart, where they cannot be spent together: expected one \
                 client with all its limits; ask about each client by itself",
            ));
        }
        drop(groups);
        let answer = match self.enter(group, call) {
            SendPath::Alone(call, _alone) => {
                // Boxed: the future of the connection is large, and most concurrent calls only
                // wait.
                let (_, decided) = Box::pin(self.send([call].into(), Vec::new())).await;
                return decided?.pop().unwrap_or_else(|| Ok(Decisions::default()));
            }
            SendPath::Queued(answer, turn) => {
                if let Some(turn) = turn {
                    runtime.spawn(Arc::clone(&self).work(turn));
                }
                answer
            }
        };
        answer.await.unwrap_or_else(|_| Err(runtime_gone()))
    }

    /// Queues a call, or lets it bypass the queue. Takes the lock once.
    fn enter(&self, group: u32, mut call: ScriptCall<Rule>) -> SendPath<'_, Rule> {
        let mut queue = self.waiting.lock();
        if let Some(bypass) = queue.bypass() {
            return SendPath::Alone(call, bypass);
        }
        let (reply, answer) = oneshot::channel();
        call.reply = Some(reply);
        let turn = queue.add(&group, |waiting| {
            waiting.calls.push_back(call);
            true
        });
        SendPath::Queued(answer, turn)
    }

    /// Queues corrections, to be sent with the calls that wait. They are sent even if the returned
    /// future is dropped, and one that fails does not keep the others from being made.
    pub(super) fn settle(
        self: &Arc<Self>,
        corrections: impl Iterator<Item = Result<Correction, error::Error>>,
    ) -> Check<BoxFuture<Result<(), StoreError>>> {
        let mut answers = Vec::new();
        let mut known = Vec::new();
        for correction in corrections {
            let (settler, answer) = Settler::new(&self.unsettled);
            answers.push(answer);
            match correction {
                Ok(correction) => known.push((correction, settler)),
                Err(error) => settler.end(Err(StoreError::unsupported(error))),
            }
        }
        match runtime() {
            Ok(runtime) => self.take_in(known).into_iter().for_each(|turn| {
                runtime.spawn(Arc::clone(self).work(turn));
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
    fn take_in(&self, corrections: Vec<QueuedCorrection>) -> Vec<ScriptTurn<Rule>> {
        let mut queue = self.waiting.lock();
        let mut turns = Vec::new();
        for settling in corrections {
            let group = self.data.group(&settling.0.key);
            turns.extend(queue.add(&group, |waiting| {
                waiting.corrections.push_back(settling);
                // One task sends all corrections that are queued together.
                waiting.corrections.len() == 1
            }));
        }
        turns
    }

    /// Sends requests until nothing waits.
    async fn work(self: Arc<Self>, mut turn: ScriptTurn<Rule>) {
        let mut calls = VecDeque::new();
        loop {
            // Lets callers that are ready join this batch, such as those that were just answered.
            tokio::task::yield_now().await;
            let mut corrections = Vec::new();
            if !turn.next(|waiting| waiting.take(&mut calls, &mut corrections)) {
                return;
            }
            calls.retain(|call| !call.is_abandoned());
            if calls.is_empty() && corrections.is_empty() {
                continue;
            }
            let decided;
            (calls, decided) = self.send(calls, corrections).await;
            let error = match decided {
                Ok(decided) => {
                    for (call, decisions) in calls.drain(..).zip(decided) {
                        call.answer(decisions);
                    }
                    continue;
                }
                Err(error) => error,
            };
            // After a timeout, the calls that wait fail, too, so that none of them waits for two
            // timeouts.
            let waiting = if error.is_timeout() {
                self.waiting.waiting(turn.key(), mem::take)
            } else {
                None
            };
            let WaitingBatch {
                calls: waiting,
                corrections,
            } = waiting.unwrap_or_default();
            for call in calls.drain(..).chain(waiting) {
                call.answer(Err(error.duplicate()));
            }
            for (_, settler) in corrections {
                settler.end(Err(error.duplicate()));
            }
        }
    }

    /// Sends corrections and calls as one request. Returns the calls, and the result of each.
    async fn send(
        &self,
        mut calls: VecDeque<ScriptCall<Rule>>,
        corrections: Vec<QueuedCorrection>,
    ) -> (
        VecDeque<ScriptCall<Rule>>,
        Result<Vec<Result<Decisions, StoreError>>, StoreError>,
    ) {
        let (corrections, settlers): (Vec<_>, Vec<_>) = corrections.into_iter().unzip();
        let request = ScriptRequest::of(None, corrections, calls.make_contiguous(), false);
        self.counters.requests.add(1);
        self.counters.calls.add(calls.len() as u64);
        let ScriptRequest {
            program,
            keys,
            states,
            argument,
            taken_from,
            ..
        } = request;
        let answer = self.data.evaluate(program, keys, argument).await;
        // The answer reports whether the server accepted the writes, and so the corrections.
        let mut settled = Ok(());
        let decided = answer.and_then(|bytes| {
            let answer = ScriptAnswer::read(program, &bytes, states)?;
            self.counters.healed.add(answer.healed);
            match &answer.unwritten {
                None => self.unsettled.add(answer.unsettled),
                // Each settler counts its own.
                Some(why) => settled = Err(self.data.unwritten(why)),
            }
            let unwritten = |why: &str| self.data.unwritten(why);
            Ok(decided(&answer, calls.iter(), &taken_from, unwritten))
        });
        let failure = decided.as_ref().err().or(settled.as_ref().err());
        for settler in settlers {
            settler.end(failure.map_or(Ok(()), |error| Err(error.duplicate())));
        }
        (calls, decided)
    }
}

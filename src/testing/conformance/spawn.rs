//! Concurrent tasks that call a store, on any runtime.

use std::{
    fmt::Debug,
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use super::{checker::cost, subject::Subject};
use crate::{
    algorithm::Algorithm,
    key::Key,
    policy::Policy,
    store::{Ask, BoxFuture, Decisions, Settlement, Store},
};

/// Runs tasks on a store concurrently. Returns the answers of all calls, or `None` if a task did not end.
pub(super) type SpawnTasks<R, S> =
    Box<dyn Fn(&S, Vec<Task<R>>) -> Pin<Box<dyn Future<Output = Option<Vec<TaskAnswer>>>>>>;

/// The answer to one call, or its error as text.
pub(super) type TaskAnswer = Result<Decisions, String>;

/// Calls, one after the other.
pub(super) struct Task<R> {
    pub(super) calls: Vec<Vec<OwnedAsk<R>>>,
    /// Set if all charges are settled to 0 at the end.
    pub(super) settle: bool,
}

/// An ask that may cross threads.
pub(super) struct OwnedAsk<R> {
    policy: Policy,
    rule: R,
    key: Key,
    units: u64,
}

impl<R: Clone> OwnedAsk<R> {
    pub(super) fn new(subject: &Subject, rule: &R, units: u64) -> Self {
        Self {
            policy: subject.policy.clone(),
            rule: rule.clone(),
            key: subject.key,
            units,
        }
    }

    fn ask(&self) -> Ask<'_, R> {
        Ask::new(&self.policy, &self.rule, self.key, cost(self.units))
    }
}

impl<R: Clone> Task<R> {
    async fn run<S: Store<R, Error: Debug>>(self, store: &S) -> Vec<TaskAnswer> {
        let mut answers = Vec::with_capacity(self.calls.len());
        for asks in &self.calls {
            let check = {
                let asks: Vec<_> = asks.iter().map(OwnedAsk::ask).collect();
                store.acquire(&asks)
            };
            answers.push(check.await.map_err(|error| format!("{error:?}")));
        }
        for (asks, answer) in self.calls.iter().zip(&mut answers) {
            if let (Ok(decisions), true) = (&*answer, self.settle)
                && let Err(error) = refund(store, asks, decisions).await
            {
                *answer = Err(error);
            }
        }
        answers
    }
}

async fn refund<R, S: Store<R, Error: Debug>>(
    store: &S,
    asks: &[OwnedAsk<R>],
    decisions: &Decisions,
) -> Result<(), String> {
    for (ask, decision) in asks.iter().zip(decisions.as_slice()) {
        let Some(charge) = decision.charge() else {
            continue;
        };
        let check = store.settle(vec![Settlement {
            policy: &ask.policy,
            rule: &ask.rule,
            key: ask.key,
            charge,
            actual: 0,
            is_grant: false,
        }]);
        check.await.map_err(|error| format!("{error:?}"))?;
    }
    Ok(())
}

/// Creates the function that runs tasks from one that spawns a future.
pub(super) fn spawn_tasks<R, S, T>(spawn: impl Fn(BoxFuture<()>) -> T + 'static) -> SpawnTasks<R, S>
where
    R: Algorithm + Send + Sync + 'static,
    S: Store<R, Answer: Send, Done: Send, Error: Debug + Send> + Clone + Send + Sync + 'static,
{
    Box::new(move |store, tasks| {
        let race = Race::new(tasks.len());
        for task in tasks {
            let (store, runner) = (store.clone(), Runner(race.clone()));
            spawn(Box::pin(async move {
                runner.start().await;
                let answers = task.run(&store).await;
                runner.end(answers);
            }));
        }
        Box::pin(async move { race.end().await })
    })
}

/// The start and the end that concurrent tasks share.
#[derive(Clone)]
struct Race(Arc<Mutex<RaceState>>);

struct RaceState {
    /// Tasks that have not started.
    absent: usize,
    /// Tasks that have not ended.
    running: usize,
    /// Set if a task was dropped before its end.
    is_lost: bool,
    answers: Vec<TaskAnswer>,
    wakers: Vec<Waker>,
}

impl Race {
    fn new(tasks: usize) -> Self {
        Self(Arc::new(Mutex::new(RaceState {
            absent: tasks,
            running: tasks,
            is_lost: false,
            answers: Vec::new(),
            wakers: Vec::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, RaceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes all waiting tasks.
    fn change(&self, change: impl FnOnce(&mut RaceState)) {
        let wakers = {
            let mut state = self.lock();
            change(&mut state);
            mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn until<T>(&self, mut is_so: impl FnMut(&mut RaceState) -> Option<T>) -> T {
        poll_fn(|cx| {
            let mut state = self.lock();
            match is_so(&mut state) {
                Some(output) => Poll::Ready(output),
                None => {
                    state.wakers.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    async fn end(&self) -> Option<Vec<TaskAnswer>> {
        self.until(|state| {
            (state.running == 0).then(|| (!state.is_lost).then(|| mem::take(&mut state.answers)))
        })
        .await
    }
}

/// The part of one task in a race. Dropped before the end, it marks the task as lost.
struct Runner(Race);

impl Runner {
    async fn start(&self) {
        self.0.change(|state| state.absent -= 1);
        let begun = |state: &mut RaceState| (state.absent == 0 || state.is_lost).then_some(());
        self.0.until(begun).await;
    }

    fn end(self, mut answers: Vec<TaskAnswer>) {
        self.0.change(|state| {
            state.running -= 1;
            state.answers.append(&mut answers);
        });
        mem::forget(self);
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.running -= 1;
            state.is_lost = true;
        });
    }
}

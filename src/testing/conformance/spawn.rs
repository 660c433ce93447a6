//! Tasks that call a store at once, on whatever runtime its author has.

use std::{
    fmt::Debug,
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use super::{bench::cost, place::Place};
use crate::{
    algorithm::Algorithm,
    key::Key,
    policy::Policy,
    store::{Ask, BoxFuture, Decisions, Settlement, Store},
};

/// Runs tasks on a store, all at once: what each call answered, or `None` where a task was lost.
pub(super) type Racer<R, S> =
    Box<dyn Fn(&S, Vec<Task<R>>) -> Pin<Box<dyn Future<Output = Option<Vec<Answer>>>>>>;

/// What one call answered; the error in words.
pub(super) type Answer = Result<Decisions, String>;

/// Calls, one after the other.
pub(super) struct Task<R> {
    pub(super) calls: Vec<Vec<Owned<R>>>,
    /// Whether all that passes is given back in the end.
    pub(super) settle: bool,
}

/// An ask that may cross threads.
pub(super) struct Owned<R> {
    policy: Policy,
    rule: R,
    key: Key,
    units: u64,
}

impl<R: Clone> Owned<R> {
    pub(super) fn new(place: &Place, rule: &R, units: u64) -> Self {
        Self {
            policy: place.policy.clone(),
            rule: rule.clone(),
            key: place.key,
            units,
        }
    }

    fn ask(&self) -> Ask<'_, R> {
        Ask::new(&self.policy, &self.rule, self.key, cost(self.units))
    }
}

impl<R: Clone> Task<R> {
    async fn run<S: Store<R, Error: Debug>>(self, store: &S) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(self.calls.len());
        for asks in &self.calls {
            let check = {
                let asks: Vec<_> = asks.iter().map(Owned::ask).collect();
                store.acquire(&asks)
            };
            answers.push(check.await.map_err(|error| format!("{error:?}")));
        }
        for (asks, answer) in self.calls.iter().zip(&mut answers) {
            if let (Ok(decisions), true) = (&*answer, self.settle)
                && let Err(error) = give_back(store, asks, decisions).await
            {
                *answer = Err(error);
            }
        }
        answers
    }
}

async fn give_back<R, S: Store<R, Error: Debug>>(
    store: &S,
    asks: &[Owned<R>],
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
        }]);
        check.await.map_err(|error| format!("{error:?}"))?;
    }
    Ok(())
}

/// What runs tasks by a closure that spawns a future.
pub(super) fn racer<R, S, T>(spawn: impl Fn(BoxFuture<()>) -> T + 'static) -> Racer<R, S>
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

/// Tasks that begin together, and are awaited together.
#[derive(Clone)]
struct Race(Arc<Mutex<State>>);

struct State {
    /// Tasks that have not begun yet.
    absent: usize,
    /// Tasks that have not ended yet.
    running: usize,
    /// Whether one was dropped before its end.
    is_lost: bool,
    answers: Vec<Answer>,
    wakers: Vec<Waker>,
}

impl Race {
    fn new(tasks: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            absent: tasks,
            running: tasks,
            is_lost: false,
            answers: Vec::new(),
            wakers: Vec::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes everybody.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.lock();
            change(&mut state);
            mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn until<T>(&self, mut is_so: impl FnMut(&mut State) -> Option<T>) -> T {
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

    async fn end(&self) -> Option<Vec<Answer>> {
        self.until(|state| {
            (state.running == 0).then(|| (!state.is_lost).then(|| mem::take(&mut state.answers)))
        })
        .await
    }
}

/// One task's part in a race; dropped before its end, the task is lost.
struct Runner(Race);

impl Runner {
    async fn start(&self) {
        self.0.change(|state| state.absent -= 1);
        let begun = |state: &mut State| (state.absent == 0 || state.is_lost).then_some(());
        self.0.until(begun).await;
    }

    fn end(self, mut answers: Vec<Answer>) {
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

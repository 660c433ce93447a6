//! The store under test, without its type, and the futures of its calls.

use std::{
    fmt::Debug,
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Poll, Waker},
    time::Duration,
};

use crate::{
    algorithm::Algorithm,
    decision::Decisions,
    key::Key,
    locks::lock,
    policy::Policy,
    store::{
        Ask, BoxFuture, Check, Delta, NodeCounts, OwnedAsks, Pulled, Renewed, Settlement, Store,
    },
};

/// A future that is polled on the thread of the suite.
type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
/// An answer, or the error of a store as text.
type LocalAnswer<'a, T> = LocalFuture<'a, Result<T, String>>;
/// A result for each delta.
type LocalSync<'a, R> = LocalAnswer<'a, Vec<Result<Pulled<<R as Algorithm>::State>, String>>>;

/// A store behind a trait object: the laws are compiled once for each rule, not once for each
/// store.
pub(super) trait TestedStore<R: Algorithm> {
    fn acquire(&self, asks: &[Ask<'_, R>]) -> LocalAnswer<'_, Decisions>;
    fn look(&self, asks: &[Ask<'_, R>]) -> LocalAnswer<'_, Decisions>;
    fn settle(&self, settlements: Vec<Settlement<'_, R>>) -> LocalAnswer<'_, ()>;
    fn renew(&self, renewal: Settlement<'_, R>) -> LocalFuture<'_, Renewed>;
    fn reset(&self, policy: &Policy, key: &Key) -> LocalAnswer<'_, ()>;
    fn unsettled(&self) -> Option<u64>;
    fn count_node(&self, policy: &Policy, period: u64) -> Option<LocalAnswer<'_, NodeCounts>>;
    fn sync(&self, deltas: &[Delta<'_, R>]) -> Option<LocalSync<'_, R>>
    where
        R::State: Send + 'static;
    /// Runs tasks on clones of the store; `None` if the suite cannot spawn them.
    fn race(&self, tasks: Vec<Task<R>>) -> Option<LocalFuture<'_, Option<Vec<TaskAnswer>>>>;
}

/// A store, and the function that calls it concurrently.
pub(super) struct StoreUnderTest<'a, R, S> {
    pub(super) store: &'a S,
    pub(super) spawn_tasks: Option<&'a SpawnTasks<R, S>>,
}

fn in_text(error: impl Debug) -> String {
    format!("{error:?}")
}

/// Boxes a check, and turns its error into text.
fn boxed<'a, T: 'a, E: Debug + 'a>(
    check: Check<impl Future<Output = Result<T, E>> + 'a>,
) -> LocalAnswer<'a, T> {
    Box::pin(async { check.await.map_err(in_text) })
}

impl<R, S> TestedStore<R> for StoreUnderTest<'_, R, S>
where
    R: Algorithm,
    S: Store<R, Error: Debug>,
{
    fn acquire(&self, asks: &[Ask<'_, R>]) -> LocalAnswer<'_, Decisions> {
        boxed(self.store.acquire(asks))
    }

    fn look(&self, asks: &[Ask<'_, R>]) -> LocalAnswer<'_, Decisions> {
        boxed(self.store.look(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, R>>) -> LocalAnswer<'_, ()> {
        boxed(self.store.settle(settlements))
    }

    fn renew(&self, renewal: Settlement<'_, R>) -> LocalFuture<'_, Renewed> {
        self.store.renew(renewal)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> LocalAnswer<'_, ()> {
        boxed(self.store.reset(policy, key))
    }

    fn unsettled(&self) -> Option<u64> {
        self.store.unsettled()
    }

    fn count_node(&self, policy: &Policy, period: u64) -> Option<LocalAnswer<'_, NodeCounts>> {
        let counting = self.store.fleet()?.count_node(policy, period)?;
        Some(Box::pin(async { counting.await.map_err(in_text) }))
    }

    fn sync(&self, deltas: &[Delta<'_, R>]) -> Option<LocalSync<'_, R>> {
        let syncing = self.store.fleet()?.sync(deltas)?;
        Some(Box::pin(async {
            let answers = syncing.await.map_err(in_text)?;
            let answers = answers.into_iter();
            Ok(answers.map(|answer| answer.map_err(in_text)).collect())
        }))
    }

    fn race(&self, tasks: Vec<Task<R>>) -> Option<LocalFuture<'_, Option<Vec<TaskAnswer>>>> {
        Some(self.spawn_tasks?(self.store, tasks))
    }
}

/// Runs tasks on a store concurrently. Returns the answers of all calls, or `None` if a task did
/// not end.
pub(super) type SpawnTasks<R, S> =
    Box<dyn Fn(&S, Vec<Task<R>>) -> Pin<Box<dyn Future<Output = Option<Vec<TaskAnswer>>>>>>;

/// The answer to one call, or its error as text.
pub(super) type TaskAnswer = Result<Decisions, String>;

/// Calls, one after the other.
pub(super) struct Task<R> {
    pub(super) calls: Vec<OwnedAsks<R>>,
    pub(super) charges: Charges,
}

/// What a task does with its charges.
#[derive(Clone, Copy, Default)]
pub(super) struct Charges {
    /// Set if each is renewed for this time, right after its call.
    pub(super) renewed_for: Option<Duration>,
    /// Set if all of them are settled to 0 at the end.
    pub(super) are_refunded: bool,
}

impl<R: Clone> Task<R> {
    async fn run<S: Store<R, Error: Debug>>(self, store: &S) -> Vec<TaskAnswer> {
        let mut answers: Vec<TaskAnswer> = Vec::with_capacity(self.calls.len());
        let mut charged = Vec::new();
        for (n, asks) in self.calls.iter().enumerate() {
            let asks = asks.to_vec();
            let answer = store.acquire(&asks).await;
            let mut answer = answer.map_err(in_text);
            let decided = answer.iter().flat_map(Decisions::as_slice);
            for (ask, decision) in asks.into_iter().zip(decided) {
                charged.extend(decision.charge().map(|charge| (n, ask, charge)));
            }
            if let Some(delay) = self.charges.renewed_for {
                for (_, ask, charge) in charged.iter_mut().filter(|(call, ..)| *call == n) {
                    let moved = charge.duplicate().with_delay(Some(delay));
                    match store.renew(ask.settlement(moved, charge.cost)).await {
                        Renewed::Made => charge.at = charge.at.saturating_add(delay),
                        renewed => answer = Err(format!("a renewal was {renewed:?}")),
                    }
                }
            }
            answers.push(answer);
        }
        if self.charges.are_refunded {
            for (n, ask, charge) in charged {
                let settlement = ask.settlement(charge, 0);
                if let Err(error) = store.settle(vec![settlement]).await {
                    answers[n] = Err(in_text(error));
                }
            }
        }
        answers
    }
}

/// Creates the function that runs tasks from one that spawns a future.
pub(super) fn spawn_tasks<R, S, T>(spawn: impl Fn(BoxFuture<()>) -> T + 'static) -> SpawnTasks<R, S>
where
    R: Algorithm,
    S: Store<R, Answer: Send, Error: Debug + Send> + Clone + Send + Sync + 'static,
{
    Box::new(move |store, tasks| {
        let race = Race::new(tasks.len());
        for task in tasks {
            let (store, runner) = (store.clone(), TaskRunner(race.clone()));
            spawn(Box::pin(async move {
                runner.start().await;
                let answers = task.run(&store).await;
                runner.end(answers);
            }));
        }
        Box::pin(async move { race.end().await })
    })
}

/// The shared start and end of concurrent tasks.
#[derive(Clone)]
struct Race(Arc<Mutex<RaceState>>);

struct RaceState {
    /// Tasks that have not started.
    absent: usize,
    /// Tasks that have not ended.
    running: usize,
    /// `None` if a task was dropped before its end.
    answers: Option<Vec<TaskAnswer>>,
    wakers: Vec<Waker>,
}

impl Race {
    fn new(tasks: usize) -> Self {
        Self(Arc::new(Mutex::new(RaceState {
            absent: tasks,
            running: tasks,
            answers: Some(Vec::new()),
            wakers: Vec::new(),
        })))
    }

    /// Changes the state and wakes all waiting tasks.
    fn change(&self, change: impl FnOnce(&mut RaceState)) {
        let wakers = {
            let mut state = lock(&self.0);
            change(&mut state);
            mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn until<T>(&self, mut is_so: impl FnMut(&mut RaceState) -> Option<T>) -> T {
        poll_fn(|cx| {
            let mut state = lock(&self.0);
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
        self.until(|state| (state.running == 0).then(|| state.answers.take()))
            .await
    }
}

/// One task in a race. Dropping it before its end marks the task as lost.
struct TaskRunner(Race);

impl TaskRunner {
    async fn start(&self) {
        self.0.change(|state| state.absent -= 1);
        let begun = |state: &RaceState| state.absent == 0 || state.answers.is_none();
        self.0.until(|state| begun(state).then_some(())).await;
    }

    fn end(self, mut answers: Vec<TaskAnswer>) {
        self.0.change(|state| {
            state.running -= 1;
            state
                .answers
                .iter_mut()
                .for_each(|all| all.append(&mut answers));
        });
        mem::forget(self);
    }
}

impl Drop for TaskRunner {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.running -= 1;
            state.answers = None;
        });
    }
}

/// Returns the output of a future, or `None` if `end` completes first.
pub(super) async fn unless<T>(
    future: impl Future<Output = T>,
    end: impl Future<Output = ()>,
) -> Option<T> {
    let (mut future, mut end) = (pin!(future), pin!(end));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Polls a future up to `times` times, each time it is woken, then drops it.
pub(super) async fn polled<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut left = times.checked_sub(1)?;
    let end = poll_fn(|_| match left.checked_sub(1) {
        Some(less) => {
            left = less;
            Poll::Pending
        }
        None => Poll::Ready(()),
    });
    unless(future, end).await
}

/// Polls all futures once, in order. Drops those that `is_dropped` selects by index and that are
/// not ready, and awaits the others together. Returns `None` for dropped ones.
pub(super) async fn concurrently<F: Future>(
    futures: impl IntoIterator<Item = F>,
    is_dropped: impl Fn(usize) -> bool,
) -> Vec<Option<F::Output>> {
    let mut futures: Vec<Option<Pin<Box<F>>>> = futures
        .into_iter()
        .map(|future| Some(Box::pin(future)))
        .collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut is_first_poll = true;
    poll_fn(|cx| {
        for (slot, output) in futures.iter_mut().zip(&mut outputs) {
            let Some(future) = slot else { continue };
            if let Poll::Ready(ready) = future.as_mut().poll(cx) {
                (*slot, *output) = (None, Some(ready));
            }
        }
        if is_first_poll {
            is_first_poll = false;
            for (n, slot) in futures.iter_mut().enumerate() {
                slot.take_if(|_| is_dropped(n));
            }
        }
        if futures.iter().all(Option::is_none) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    outputs
}

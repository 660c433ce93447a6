//! The store under test, without its type.

use std::{
    fmt::{self, Debug},
    future::Future,
    pin::Pin,
};

use super::spawn::{SpawnTasks, Task, TaskAnswer};
use crate::{
    algorithm::Algorithm,
    decision::Decisions,
    key::Key,
    policy::Policy,
    store::{Ask, Check, Delta, NodeCounts, Pulled, Settlement, Store},
};

/// The error of a store, in words.
pub(super) struct ErrorText(String);

impl ErrorText {
    fn new(error: impl Debug) -> Self {
        Self(format!("{error:?}"))
    }
}

impl Debug for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A future on the thread of the suite.
type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
type LocalCheck<'a, T> = Check<LocalFuture<'a, Result<T, ErrorText>>>;
/// A result for each delta.
type LocalSync<'a, R> =
    LocalFuture<'a, Result<Vec<Result<Pulled<<R as Algorithm>::State>, ErrorText>>, ErrorText>>;

/// A store behind a trait object: the laws are compiled once for each rule, not once for each store.
pub(super) trait TestedStore<R: Algorithm> {
    fn acquire(&self, asks: &[Ask<'_, R>]) -> LocalCheck<'_, Decisions>;
    fn look(&self, asks: &[Ask<'_, R>]) -> LocalCheck<'_, Decisions>;
    fn settle(&self, settlements: Vec<Settlement<'_, R>>) -> LocalCheck<'_, ()>;
    fn reset(&self, policy: &Policy, key: &Key) -> LocalCheck<'_, ()>;
    fn unsettled(&self) -> Option<u64>;
    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<LocalFuture<'_, Result<NodeCounts, ErrorText>>>;
    fn sync(&self, deltas: &[Delta<'_, R>]) -> Option<LocalSync<'_, R>>
    where
        R::State: Send + 'static;
    /// Runs tasks on clones of the store; `None` if the suite cannot spawn them.
    fn race(&self, tasks: Vec<Task<R>>) -> Option<LocalFuture<'_, Option<Vec<TaskAnswer>>>>;
}

/// A store, and how it is called concurrently.
pub(super) struct Tested<'a, R, S> {
    pub(super) store: &'a S,
    pub(super) spawn_tasks: Option<&'a SpawnTasks<R, S>>,
}

/// Boxes a check, and turns its error into text.
fn boxed<'a, T, E: Debug>(
    check: Check<impl Future<Output = Result<T, E>> + 'a>,
) -> LocalCheck<'a, T> {
    match check {
        Check::Ready(answer) => Check::Ready(answer.map_err(ErrorText::new)),
        Check::Pending(future) => {
            Check::Pending(Box::pin(async { future.await.map_err(ErrorText::new) }))
        }
    }
}

impl<R, S> TestedStore<R> for Tested<'_, R, S>
where
    R: Algorithm,
    S: Store<R, Error: Debug>,
{
    fn acquire(&self, asks: &[Ask<'_, R>]) -> LocalCheck<'_, Decisions> {
        boxed(self.store.acquire(asks))
    }

    fn look(&self, asks: &[Ask<'_, R>]) -> LocalCheck<'_, Decisions> {
        boxed(self.store.look(asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, R>>) -> LocalCheck<'_, ()> {
        boxed(self.store.settle(settlements))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> LocalCheck<'_, ()> {
        boxed(self.store.reset(policy, key))
    }

    fn unsettled(&self) -> Option<u64> {
        self.store.unsettled()
    }

    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<LocalFuture<'_, Result<NodeCounts, ErrorText>>> {
        let counting = self.store.count_node(policy, period)?;
        Some(Box::pin(async { counting.await.map_err(ErrorText::new) }))
    }

    fn sync(&self, deltas: &[Delta<'_, R>]) -> Option<LocalSync<'_, R>>
    where
        R::State: Send + 'static,
    {
        let syncing = self.store.sync(deltas)?;
        Some(Box::pin(async {
            let answers = syncing.await.map_err(ErrorText::new)?;
            let answers = answers.into_iter();
            Ok(answers
                .map(|answer| answer.map_err(ErrorText::new))
                .collect())
        }))
    }

    fn race(&self, tasks: Vec<Task<R>>) -> Option<LocalFuture<'_, Option<Vec<TaskAnswer>>>> {
        Some(self.spawn_tasks?(self.store, tasks))
    }
}

//! Hands units over to the store before this server ends.

use std::time::Duration;

use tollgate::{
    algorithm::{Leasable, Syncable},
    future::BoxFuture,
    store::{self, Leased, Store, Synced},
};

/// Hands over to the store what only this server knows: admissions that are not pushed yet, or
/// units of leases.
///
/// An application with a fixed store calls `synced.flush(…)` or `leased.release(…)` on a clone of
/// it.
pub(crate) struct Handover(Option<Task>);

/// Runs for at most the given time. Returns a sentence about what may be missing in the store.
type Task = Box<dyn FnOnce(Duration) -> BoxFuture<Option<String>> + Send>;

impl Handover {
    /// A store that gets each request at once.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    pub(crate) fn of_leases<S, Rule>(leased: Leased<S, Rule>) -> Self
    where
        S: Store<Rule, Error = store::StoreError> + Send + Sync + 'static,
        S::Done: Send,
        Rule: Leasable,
    {
        Self::task(move |within| {
            Box::pin(async move {
                leased.release(within).await;
                None
            })
        })
    }

    pub(crate) fn of_admissions<S, Rule>(synced: Synced<S, Rule>) -> Self
    where
        S: Store<Rule, Error = store::StoreError> + Send + Sync + 'static,
        Rule: Syncable,
    {
        Self::task(move |within| {
            Box::pin(async move {
                let unsynced = synced.flush(within).await;
                (unsynced > 0).then(|| {
                    format!(
                        "the store did not confirm {unsynced} admitted units within {within:?}: \
                         other servers may admit as many above the limit"
                    )
                })
            })
        })
    }

    fn task(task: impl FnOnce(Duration) -> BoxFuture<Option<String>> + Send + 'static) -> Self {
        Self(Some(Box::new(task)))
    }

    /// Hands over for at most the given time. Returns a sentence about what may be missing in the
    /// store.
    pub(crate) async fn run(self, within: Duration) -> Option<String> {
        match self.0 {
            Some(task) => task(within).await,
            None => None,
        }
    }
}

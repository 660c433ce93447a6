//! The trait of the ways by which nodes push to each other.

use std::sync::Arc;

use tollgate::{
    AnyRule,
    future::BoxFuture,
    store::{Store, StoreError, driver::Decisions},
};

use super::world::World;

/// A way by which the nodes of a fleet push to each other what they admitted.
pub(super) trait Transport: Send + Sync + 'static {
    /// The store as a node sees it.
    type Store: Store<
            AnyRule,
            Error = StoreError,
            Answer = BoxFuture<Result<Decisions, StoreError>>,
            Done = BoxFuture<Result<(), StoreError>>,
        > + Send
        + Sync
        + 'static;

    /// `true` if a node gets the state of the moment.
    const IS_CURRENT: bool;

    /// Returns the store as a node sees it.
    fn store(self: &Arc<Self>, node: usize) -> Self::Store;

    /// Begins what goes on by itself.
    fn start(self: Arc<Self>) {}

    /// Adds what was counted elsewhere to the counts of the run.
    fn finish(&self, _world: &World) {}
}

//! What tells the stores of a process apart.

use std::sync::Arc;

/// Tells a store and its clones from the other stores of this process, for [`Backend::id`](super::Backend::id).
///
/// ```
/// use std::sync::Arc;
/// use tollgate::store::{Backend, StoreId};
///
/// #[derive(Clone, Default)]
/// struct Files {
///     folder: Arc<str>,
/// }
///
/// impl Backend for Files {
///     type Error = tollgate::store::Error;
///
///     fn id(&self) -> Option<StoreId> {
///         Some(StoreId::of(&self.folder))
///     }
/// }
///
/// let files = Files { folder: "a".into() };
/// assert_eq!(files.id(), files.clone().id());
/// assert_ne!(files.id(), Files { folder: "a".into() }.id());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(usize);

impl StoreId {
    /// Returns the identity of what the clones of a store share: theirs, and of no other store, while one of them lives.
    pub fn of<T: ?Sized>(shared: &Arc<T>) -> Self {
        Self(Arc::as_ptr(shared).addr())
    }

    pub(crate) fn number(self) -> u64 {
        self.0 as u64
    }
}

//! The kinds of faults.

/// The fault of one call.
///
/// # Examples
///
/// ```
/// use tollgate::{store::Local, TokenBucket, testing::{Fault, Faulty}};
///
/// let store = Faulty::new(Local::<TokenBucket>::new());
/// // The second call is not answered.
/// store.faults().script([None, Some(Fault::Silent)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The store does not decide, and returns that it is [unavailable](crate::store::Error::is_unavailable).
    Unavailable,
    /// The store does not decide, and returns that it is [contended](crate::store::Error::is_contended).
    Contended,
    /// The store decides, and its answer is lost: the caller gets a [timeout](crate::store::Error::is_timeout).
    Lost,
    /// The store does not decide, and never answers.
    Silent,
    /// The store decides, and answers after this many polls. Each poll wakes the task.
    Late(u32),
    /// The store decides, and answers after the next [release](super::Faults::release).
    Held,
}

//! A store's errors and settings, whatever rule it runs.

use std::sync::Arc;

use super::StoreId;
use crate::{key::Key, policy::Policy};

/// The error of a store, and what its wrappers need to know, whatever rule it runs.
///
/// ```
/// use tollgate::store::{self, Backend};
///
/// struct Shards {
///     addresses: String,
/// }
///
/// impl Backend for Shards {
///     type Error = store::Error;
///
///     fn address(&self) -> Option<&str> {
///         Some(&self.addresses)
///     }
/// }
/// # assert_eq!(Shards { addresses: "127.0.0.1:7000".to_owned() }.unsettled(), None);
/// ```
pub trait Backend {
    /// The error type: [`store::Error`](super::Error), or [`Infallible`](std::convert::Infallible) for a store that cannot fail.
    ///
    /// Wrappers ask a [`store::Error`](super::Error) for its kind.
    type Error;

    /// Returns the address of the server, for the log of its failures; `None`, the default, if there is none or it is not known.
    ///
    /// For example `127.0.0.1:6379`, and several with commas between. It is logged, so it must contain no password.
    fn address(&self) -> Option<&str> {
        None
    }

    /// Returns what tells this store and its clones from others; `None`, the default, if it is not known. A wrapper returns that of its store.
    ///
    /// By it, a layer notices that a request is charged twice by one limit, and limits that share a state because they have no names
    /// ([`RateLimitLayer::collisions`](crate::RateLimitLayer::collisions)).
    fn id(&self) -> Option<StoreId> {
        None
    }

    /// Returns how many settlements failed or may have failed, including those that no caller waited for.
    ///
    /// Clones share the count. `None`, the default, means that the store does not count: [`OnFailure`](super::OnFailure) then counts the errors that it
    /// sees, and the settlements whose futures were dropped before they were ready.
    fn unsettled(&self) -> Option<u64> {
        None
    }

    /// Returns the part of the store that holds the state of a key and can fail by itself, such as a shard of a cluster. 0, the
    /// default, for a store without such parts, and while they are not known yet.
    ///
    /// A [circuit breaker](super::StoreExt::circuit_breaker) has a state for each part. It asks before each call, so this must be fast and
    /// must not block.
    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        let _ = (policy, key);
        0
    }

    /// Returns `true` if this store refuses calls that their rules would admit, as [`Blocks`](super::Blocks) does. `false`, the default, for all others; a wrapper
    /// returns what its store does.
    ///
    /// A wrapper that admits calls from memory, such as [`leased`](super::StoreExt::leased), would admit them: it does not [fit](super::Store::fits) such a store.
    fn refuses_beyond_rules(&self) -> bool {
        false
    }

    /// Notes a refusal that a wrapper around this store decides alone, such as [`RememberRefusals`](super::RememberRefusals). Returns `true` if this store has to decide it,
    /// because more follows from it: then the wrapper asks it, and refuses if it cannot decide.
    ///
    /// `false`, the default, for a store to which refusals mean nothing. [`Blocks`](super::Blocks) counts them; a wrapper returns what its store does.
    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool {
        let _ = (policy, key);
        false
    }
}

impl<S: Backend + ?Sized> Backend for Arc<S> {
    type Error = S::Error;

    fn address(&self) -> Option<&str> {
        (**self).address()
    }

    fn id(&self) -> Option<StoreId> {
        (**self).id()
    }

    fn unsettled(&self) -> Option<u64> {
        (**self).unsettled()
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        (**self).shard(policy, key)
    }

    fn refuses_beyond_rules(&self) -> bool {
        (**self).refuses_beyond_rules()
    }

    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool {
        (**self).note_refusal(policy, key)
    }
}

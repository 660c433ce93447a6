//! The result of a look-up, in the extensions of a request.

use std::sync::Arc;

use super::Claims;
use crate::key::Key;

/// The result of an [`Introspect`](super::Introspect) layer, in the extensions of each request that it passes on.
///
/// Key and rule of a limit come from it:
///
/// ```
/// use http::Request;
/// use tollgate::{RateLimitLayer, TokenBucket, key::{Extension, introspect::Introspected}};
///
/// let limit = RateLimitLayer::new(TokenBucket::per_minute(60))
///     .key(Extension::new(Introspected::key))
///     .rule(|request: &Request<String>| match request.extensions().get::<Introspected>()?.claims()?.plan()? {
///         "gold" => Some(TokenBucket::per_minute(6_000)),
///         _ => None,
///     });
/// # let _ = limit;
/// ```
#[derive(Clone, Debug)]
pub struct Introspected {
    pub(super) checked: Option<Checked>,
    pub(super) is_unchecked: bool,
    pub(super) is_stale: bool,
}

/// A token that was active when it was looked up.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) claims: Arc<Claims>,
    pub(super) key: Key,
}

impl Introspected {
    /// Returns the claims of the token; `None` if the request has none, or it [could not be checked](Self::is_unchecked).
    pub fn claims(&self) -> Option<&Claims> {
        Some(&*self.checked.as_ref()?.claims)
    }

    /// Returns a key for the subject of the token; without a subject, for the client; without both, for the token's digest.
    ///
    /// Subjects and clients with equal names have different keys. A token without either has a budget of its own.
    ///
    /// Returns `None` if there are no claims. With [`or`](crate::key::KeyExtractorExt::or), such requests get another key.
    pub fn key(&self) -> Option<Key> {
        Some(self.checked.as_ref()?.key)
    }

    /// Returns `true` if the token could not be checked, and the layer [passes](super::IntrospectBuilder::fail_open) such requests.
    pub fn is_unchecked(&self) -> bool {
        self.is_unchecked
    }

    /// Returns `true` if the claims are [older than their lifetime](super::IntrospectBuilder::serve_stale), because the look-up failed.
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }
}

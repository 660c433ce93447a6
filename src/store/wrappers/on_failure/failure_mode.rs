//! The answer to a request that a store could not decide.

use std::time::Duration;

use crate::{
    decision::{Decision, Decisions},
    time::{Clock, SystemClock},
};

/// The answer to a request that a store could not decide.
///
/// [`fail_open`](crate::store::StoreExt::fail_open) and [`fail_closed`](crate::store::StoreExt::fail_closed) choose it for
/// failures, [`when_contended`](crate::store::OnFailure::when_contended) for contention:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{TokenBucket, prelude::*, store::{self, BoxStore, FailureMode}};
///
/// fn limited(remote: BoxStore<TokenBucket, store::Error>) {
///     // Open while the store fails; on contention, clients retry after two seconds.
///     let store = remote.fail_open().when_contended(FailureMode::RetryAfter(Duration::from_secs(2)));
///     let layer = RateLimitLayer::new(TokenBucket::per_second(10)).store(store);
/// #   let _ = layer;
/// }
/// # let _: fn(_) = limited;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureMode {
    /// The request is admitted.
    #[doc(alias = "fail open")]
    Open,
    /// The request is refused with 503 (gRPC: `UNAVAILABLE`).
    #[doc(alias = "fail closed")]
    Closed,
    /// The request is refused as by `Closed`, with a wait: in `Retry-After`, and over gRPC in `RetryInfo` and
    /// `grpc-retry-pushback-ms`.
    ///
    /// Clients that get the same wait retry at the same time, unless
    /// [`retry_jitter`](crate::respond::Http::retry_jitter) spreads them.
    RetryAfter(Duration),
}

impl FailureMode {
    /// Returns `count` undecided decisions.
    pub(in crate::store) fn decisions(self, count: usize) -> Decisions {
        let (admitted, retry_after) = match self {
            Self::Open => (true, None),
            Self::Closed => (false, None),
            Self::RetryAfter(wait) => (false, Some(wait)),
        };
        let now = SystemClock::default().now();
        Decisions::repeat(Decision::undecided(admitted, now, retry_after), count)
    }
}

/// Returns `count` decisions for a call that the store does not support.
pub(super) fn unsupported(count: usize) -> Decisions {
    let now = SystemClock::default().now();
    Decisions::repeat(Decision::unsupported(now), count)
}

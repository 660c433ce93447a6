//! Delays as a back-off of `tower::retry`.

use std::time::Duration;

use tokio::time::{Sleep, sleep};
use tower::retry::backoff;

use super::{Backoff, Delays};

/// The delays of one request as sleeps of tokio's timer: a `Backoff` of `tower::retry`.
///
/// Made by [`Backoff::sleeps`], or by a [`Backoff`] as a `MakeBackoff`. A clone starts over,
/// because `tower::retry` clones its policy for each request. Unless a [seed](Backoff::seed) is
/// set, each clone draws its own delays.
///
/// # Examples
///
/// A policy that obeys `Retry-After`:
///
/// ```
/// use std::time::Duration;
/// use tollgate::backoff::{Backoff, Sleeps};
/// use tower::retry::Policy;
///
/// #[derive(Clone)]
/// struct ThreeRetries {
///     left: u32,
///     sleeps: Sleeps,
/// }
///
/// impl<T, E> Policy<http::Request<()>, http::Response<T>, E> for ThreeRetries {
///     type Future = tokio::time::Sleep;
///
///     fn retry(
///         &mut self,
///         _: &mut http::Request<()>,
///         result: &mut Result<http::Response<T>, E>,
///     ) -> Option<Self::Future> {
///         let response = result.as_ref().ok()?;
///         if ![429, 503].contains(&response.status().as_u16()) {
///             return None;
///         }
///         self.left = self.left.checked_sub(1)?;
///         let retry_after = response.headers().get("retry-after");
///         let seconds = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
///         Some(self.sleeps.next_at_least(Duration::from_secs(seconds.unwrap_or(0))))
///     }
///
///     fn clone_request(&mut self, request: &http::Request<()>) -> Option<http::Request<()>> {
///         Some(request.clone())
///     }
/// }
///
/// let backoff = Backoff::full(Duration::from_millis(50), Duration::from_secs(10));
/// let policy = ThreeRetries { left: 3, sleeps: backoff.sleeps() };
/// let layer = tower::retry::RetryLayer::new(policy);
/// # let _ = layer;
/// ```
#[derive(Debug)]
pub struct Sleeps {
    backoff: Backoff,
    delays: Delays,
}

impl Sleeps {
    /// Returns a sleep of `least` plus the next delay, as [`Delays::next_at_least`] does.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with time.
    pub fn next_at_least(&mut self, least: Duration) -> Sleep {
        sleep(self.delays.next_at_least(least))
    }
}

impl Clone for Sleeps {
    /// Returns the delays of another request, starting with the first one.
    fn clone(&self) -> Self {
        self.backoff.sleeps()
    }
}

impl backoff::Backoff for Sleeps {
    type Future = Sleep;

    fn next_backoff(&mut self) -> Sleep {
        self.next_at_least(Duration::ZERO)
    }
}

impl Backoff {
    /// Returns the [delays](Self::delays) of one request as futures, for a policy of
    /// `tower::retry`.
    #[cfg_attr(docsrs, doc(cfg(feature = "retry")))]
    pub fn sleeps(self) -> Sleeps {
        Sleeps {
            backoff: self,
            delays: self.delays(),
        }
    }
}

impl backoff::MakeBackoff for Backoff {
    type Backoff = Sleeps;

    fn make_backoff(&mut self) -> Sleeps {
        self.sleeps()
    }
}

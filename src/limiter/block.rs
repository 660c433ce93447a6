//! Blocks of keys, as methods of a limiter.

use std::time::Duration;

use super::{Limiter, LimiterFuture, future::call};
use crate::{
    algorithm::{Algorithm, Blockable},
    error::Error,
    key::Key,
    store::{BlockFuture, Blocks, Check, MayFail, Store},
    time::Clock,
};

impl<Rule, S, C> Limiter<Rule, Blocks<S, C>>
where
    Rule: Algorithm,
    S: Store<Blockable<Rule>, Error: MayFail>,
    C: Clock + Clone,
{
    /// Refuses all calls of a key for `duration`, on every node that keeps [blocks](Blocks) in this store.
    ///
    /// Returns the time for which the key is blocked now: at least `duration`, because an earlier block may last longer. `None` if the
    /// store failed or had no room, and the key is not blocked.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Policy, prelude::*};
    ///
    /// let limiter = Limiter::new(Policy::new("api"), TokenBucket::per_second(10), Local::new().with_blocks());
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(limiter.block("mallory", minute)?.at_once(), Some(minute));
    ///
    /// let refused = limiter.check("mallory", Cost::ONE).at_once();
    /// assert!(!refused.is_admitted() && refused.retry_after() > Some(Duration::from_secs(59)));
    ///
    /// limiter.unblock("mallory").at_once();
    /// assert!(limiter.check("mallory", Cost::ONE).at_once().is_admitted());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the duration is zero or above 365 days.
    pub fn block(
        &self,
        key: impl Into<Key>,
        duration: Duration,
    ) -> Result<Check<LimiterFuture<BlockFuture<Rule, S>>>, Error> {
        Ok(call(self.store().block(self.policy(), key, duration)?))
    }

    /// Removes the block of a key. Its limit stays as it is.
    pub fn unblock(&self, key: impl Into<Key>) -> Check<LimiterFuture<S::Done>> {
        call(self.store().unblock(self.policy(), key))
    }
}

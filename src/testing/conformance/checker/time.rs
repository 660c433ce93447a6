//! Waiting.

use std::{fmt::Debug, future::Future, time::Duration};

use super::{CheckResult, Checker};
use crate::{
    algorithm::Algorithm,
    testing::conformance::{poll::unless, report::Breach, subject::Subject},
    time::{Clock, Timestamp},
};

/// The maximum time of an answer, if the suite has a `sleep`.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait if time cannot be moved.
const MAX_SLEEP: Duration = Duration::from_millis(500);
/// The longest wait if a clock can be moved: a year.
const MAX_ADVANCE: Duration = Duration::from_secs(365 * 86_400);

impl<R: Algorithm + Debug> Checker<'_, R> {
    /// Awaits a future, with a timeout if the suite has a `sleep`.
    pub(in super::super) async fn with_timeout<T>(
        &mut self,
        what: &str,
        future: impl Future<Output = T>,
    ) -> Result<T, Breach> {
        self.calls += 1;
        let output = match &self.suite.sleep {
            Some(sleep) => unless(future, sleep(TIMEOUT)).await,
            None => Some(future.await),
        };
        output.ok_or_else(|| self.breach(format!("{what} is not answered within {TIMEOUT:?}")))
    }

    /// Returns `true` if the suite can wait that long.
    pub(in super::super) fn can_wait(&self, wait: Duration) -> bool {
        match (&self.suite.clock, &self.suite.sleep) {
            (Some(_), _) => wait <= MAX_ADVANCE,
            (None, Some(_)) => wait <= MAX_SLEEP,
            (None, None) => false,
        }
    }

    /// Lets time pass.
    pub(in super::super) async fn pass(&mut self, wait: Duration) {
        match (&self.suite.clock, &self.suite.sleep) {
            (Some(clock), _) => {
                clock.advance(wait);
                self.model.saw(clock.now());
            }
            (None, Some(sleep)) => sleep(wait).await,
            (None, None) => return,
        }
        self.note(format!("{wait:?} pass"));
    }

    /// Lets time pass until the store's time is at least `due`.
    pub(in super::super) async fn until(
        &mut self,
        subject: &Subject,
        rule: &R,
        due: Timestamp,
    ) -> CheckResult {
        let mut least = 1;
        for _ in 0..24 {
            let now = self.look(subject, rule).await?.at();
            if now >= due {
                return Ok(());
            }
            let wait = due.saturating_since(now);
            // The store's clock may have a coarser resolution.
            self.pass(wait.max(Duration::from_nanos(least))).await;
            least *= 2;
        }
        Err(self.breach("the store's time does not advance"))
    }
}

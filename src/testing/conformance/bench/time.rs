//! Patience, and waiting.

use std::{fmt::Debug, future::Future, time::Duration};

use super::{Bench, Kept};
use crate::{
    algorithm::Algorithm,
    store::Store,
    testing::conformance::{place::Place, poll::unless, report::Breach},
    time::{Clock, Timestamp},
};

/// How long an answer may take where the suite can tell, by its `sleep`.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a wait may be where time cannot be moved.
const SHORT: Duration = Duration::from_millis(500);
/// The longest wait that a clock is moved by: a year.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

impl<R, S> Bench<'_, R, S>
where
    R: Algorithm + Debug,
    S: Store<R, Error: Debug>,
{
    /// An output, within what patience there is.
    pub(in super::super) async fn patiently<T>(
        &mut self,
        what: &str,
        future: impl Future<Output = T>,
    ) -> Result<T, Breach> {
        self.calls += 1;
        let output = match &self.suite.sleep {
            Some(sleep) => unless(future, sleep(PATIENCE)).await,
            None => Some(future.await),
        };
        output.ok_or_else(|| self.breach(format!("{what} is not answered within {PATIENCE:?}")))
    }

    /// Whether a wait can be waited for.
    pub(in super::super) fn can_wait(&self, wait: Duration) -> bool {
        match (&self.suite.clock, &self.suite.sleep) {
            (Some(_), _) => wait <= YEAR,
            (None, Some(_)) => wait <= SHORT,
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

    /// Lets time pass until the store says that it is so late.
    pub(in super::super) async fn until(
        &mut self,
        place: &Place,
        rule: &R,
        due: Timestamp,
    ) -> Kept {
        let mut least = 1;
        for _ in 0..24 {
            let now = self.look(place, rule).await?.at();
            if now >= due {
                return Ok(());
            }
            let wait = due.saturating_since(now);
            // A clock may count in coarser steps.
            self.pass(wait.max(Duration::from_nanos(least))).await;
            least *= 2;
        }
        Err(self.breach("time does not pass for the store, whatever is waited"))
    }
}

//! Look-ups in flight, each a task.

use std::{collections::HashMap, sync::Arc};

use tokio::{sync::watch, time::timeout};

use super::{
    Token,
    lookups::{Digest, Entry, Lookups, Outcome},
};
use crate::time::Timestamp;

/// The result of a flight, once there is one. An error is a task that panicked, or whose runtime has shut down.
pub(super) type FlightResult = watch::Receiver<Option<Outcome>>;

/// The look-ups in flight, one for each token.
#[derive(Default)]
pub(super) struct Flights {
    results: HashMap<Digest, FlightResult>,
    /// Number of those for tokens in the cache of active ones.
    renewals: usize,
}

impl Flights {
    pub(super) fn result(&self, digest: &Digest) -> Option<FlightResult> {
        self.results.get(digest).cloned()
    }

    pub(super) fn insert(&mut self, digest: Digest, renews: bool, result: FlightResult) {
        self.results.insert(digest, result);
        self.renewals += usize::from(renews);
    }

    pub(super) fn len(&self) -> usize {
        self.results.len()
    }

    /// Returns the number of those that renew a known token, or of the others.
    pub(super) fn count(&self, renews: bool) -> usize {
        match renews {
            true => self.renewals,
            false => self.len() - self.renewals,
        }
    }
}

/// One of them. It ends when this is dropped, also if its task panics.
pub(super) struct Flight {
    lookups: Arc<Lookups>,
    digest: Digest,
    renews: bool,
    has_result: bool,
}

impl Flight {
    pub(super) fn new(lookups: Arc<Lookups>, digest: Digest, renews: bool) -> Self {
        Self {
            lookups,
            digest,
            renews,
            has_result: false,
        }
    }

    /// Looks the token up, fills the cache, and answers those who wait.
    pub(super) async fn fly(
        mut self,
        token: Token,
        entry: Option<Entry>,
        began: Timestamp,
        sender: watch::Sender<Option<Outcome>>,
    ) {
        let lookups = Arc::clone(&self.lookups);
        // A copy for the log, from which it is taken out.
        let text = Token::new(token.expose());
        let result = timeout(lookups.settings.deadline, (lookups.look_up)(token)).await;
        let outcome = lookups.judge(result, &self.digest, text.expose());
        lookups.keep(self.digest, entry, began, &outcome);
        self.has_result = true;
        drop(self);
        sender.send_replace(Some(outcome));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut flights = self.lookups.flights();
        flights.results.remove(&self.digest);
        flights.renewals -= usize::from(self.renews);
        drop(flights);
        if !self.has_result {
            self.lookups.counters.aborted.add(1);
            let cause = "the look-up panicked, or its runtime has shut down";
            self.lookups.fail(cause.into(), "");
        }
    }
}

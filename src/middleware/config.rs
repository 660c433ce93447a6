//! Settings and counts that all clones of a service share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    outcome::Outcome,
    respond::{Refusal, Respond},
};

/// Settings of a service.
pub(super) struct Config<L, S, R> {
    pub(super) limits: L,
    pub(super) store: S,
    pub(super) respond: R,
    pub(super) counts: Arc<Counts>,
}

/// Counts of a layer, over all services that it made.
// Relaxed throughout: counts that are read for a report order nothing.
#[derive(Debug, Default)]
pub(super) struct Counts {
    cancelled: AtomicU64,
    misconfigured: AtomicU64,
}

impl Counts {
    /// Counts a delayed request that was dropped before its turn.
    pub(super) fn count_cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was refused because the server is set up wrongly.
    pub(super) fn count_misconfigured(&self) {
        self.misconfigured.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn cancelled(&self) -> u64 {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(super) fn misconfigured(&self) -> u64 {
        self.misconfigured.load(Ordering::Relaxed)
    }
}

impl<L, S, R> Config<L, S, R> {
    /// Hands the outcome to an admitted request if the responder wants it; returns the annotation for its response.
    #[inline]
    pub(super) fn admit<Req, Res, Err>(
        &self,
        req: &mut Req,
        outcome: impl FnOnce() -> Outcome,
    ) -> Option<R::Annotation>
    where
        R: Respond<Req, Res, Err>,
    {
        let wanted = self.respond.wants_outcome();
        wanted.then(|| self.respond.admit(req, outcome()))
    }

    /// Answers a refused request, and counts it if the refusal is the server's fault.
    #[inline]
    pub(super) fn refuse<Req, Res, Err>(&self, req: Req, refusal: Refusal) -> Result<Res, Err>
    where
        R: Respond<Req, Res, Err>,
    {
        if refusal.help().is_some() {
            self.counts.count_misconfigured();
        }
        self.respond.refuse(req, refusal)
    }
}

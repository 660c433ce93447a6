//! Settings and counts that all clones of a service share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    decision::Verdict,
    key::Key,
    observe::{Event, Observer},
    outcome::Outcome,
    policy::Policy,
    respond::{Refusal, Respond},
    store::Decisions,
};

/// Settings of a service.
pub(super) struct Config<L, S, R, O> {
    pub(super) limits: L,
    pub(super) store: S,
    pub(super) respond: R,
    pub(super) observer: O,
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

impl<L, S, R, O> Config<L, S, R, O> {
    /// Reports the decisions of a request, one for each policy and key that asked.
    #[inline]
    pub(super) fn observe<'a>(
        &self,
        asked: impl Iterator<Item = (&'a Policy, &'a Key)>,
        decisions: &Decisions,
    ) where
        O: Observer,
    {
        if O::SILENT {
            return;
        }
        let all_admit = decisions.is_admitted();
        for ((policy, key), decision) in asked.zip(decisions.as_slice()) {
            let event = Event::new(policy, key, decision);
            match decision.verdict() {
                Verdict::Refuse => self.observer.refused(&event),
                Verdict::Undecided { .. } => self.observer.undecided(&event),
                // Nothing was spent if another limit refuses.
                _ if !all_admit => {}
                Verdict::Allow => self.observer.admitted(&event),
                Verdict::Delay(wait) => self.observer.delayed(&event, wait),
            }
        }
    }

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

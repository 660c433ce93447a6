//! The keys of one part of the store that wait for it.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

use crate::{
    fleet::{
        one_task::OneTask,
        sync::{Agenda, Due},
    },
    time::Timestamp,
};

/// The keys of one [part of the store](crate::store::Backend::shard) that wait for it, found by
/// their fingerprints. One call to it is under way at a time.
#[derive(Default)]
pub(super) struct Line {
    agenda: Mutex<Agenda<u64>>,
    /// Wakes the task that calls the store.
    pub(super) wake: Notify,
    /// Told when a call waits for the store.
    pub(super) hurry: Notify,
    pub(super) task: OneTask,
    /// `true` from a failure to the next success.
    pub(super) is_down: AtomicBool,
}

/// The next step of a line.
pub(super) enum Next {
    Sync(Timestamp, u64),
    Idle(u64),
}

impl Line {
    /// Notes that a key is due at another instant than before, or with something else.
    pub(super) fn change(&self, fingerprint: u64, before: Due, after: Due) {
        let is_first = {
            let mut agenda = self.agenda();
            let is_first = agenda.next().is_none_or(|next| after.at < next);
            agenda.change(fingerprint, before, after);
            is_first && after != Due::NEVER
        };
        if is_first {
            self.wake.notify_one();
        }
    }

    /// Notes another instant from which on a key may be idle.
    pub(super) fn change_idle(
        &self,
        fingerprint: u64,
        before: Option<Timestamp>,
        after: Option<Timestamp>,
    ) {
        let is_first = {
            let mut agenda = self.agenda();
            let next = agenda.next();
            agenda.change_idle(fingerprint, before, after);
            after.is_some_and(|after| next.is_none_or(|next| after < next))
        };
        if is_first {
            self.wake.notify_one();
        }
    }

    /// Takes out what is to be done now.
    pub(super) fn take(&self, now: Timestamp) -> Option<Next> {
        let mut agenda = self.agenda();
        if let Some((due, fingerprint)) = agenda.take(now) {
            return Some(Next::Sync(due, fingerprint));
        }
        agenda.take_idle(now).map(Next::Idle)
    }

    /// Returns when there is something to do.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.agenda().next()
    }

    /// Returns the number of entries, of which each key has two at most.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.agenda().len()
    }

    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda<u64>> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The keys of one part of the store that wait for it.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{synced::Agenda, time::Timestamp};

/// The keys of one [part of the store](crate::store::Backend::shard) that wait for it, found by their fingerprints. One call to it is under way at a time.
#[derive(Default)]
pub(super) struct Line {
    entries: Mutex<Entries>,
    /// Wakes the task that calls the store.
    pub(super) wake: Notify,
    /// Told when a call waits for the store.
    pub(super) hurry: Notify,
    /// `true` while there is such a task.
    pub(super) is_served: AtomicBool,
    /// `true` from a failure to the next success.
    pub(super) is_down: AtomicBool,
}

#[derive(Default)]
struct Entries {
    agenda: Agenda<u64>,
    /// Keys that are looked at once they may be idle, in order.
    idle: VecDeque<(Timestamp, u64)>,
}

/// What is to be done next.
pub(super) enum Next {
    Sync(Timestamp, u64),
    Idle(u64),
}

impl Line {
    /// Notes that a key is due. Returns `true` if that is earlier than all others.
    pub(super) fn note(&self, fingerprint: u64, due: Timestamp, is_write: bool) {
        let is_first = {
            let agenda = &mut self.entries().agenda;
            let is_first = agenda.next().is_none_or(|next| due < next);
            agenda.note(fingerprint, due, is_write);
            is_first
        };
        if is_first {
            self.wake.notify_one();
        }
    }

    /// Notes when a key may be idle.
    pub(super) fn note_idle(&self, fingerprint: u64, at: Timestamp) {
        let is_first = {
            let idle = &mut self.entries().idle;
            idle.push_back((at, fingerprint));
            idle.len() == 1
        };
        if is_first {
            self.wake.notify_one();
        }
    }

    /// Takes out what is to be done now.
    pub(super) fn take(&self, now: Timestamp) -> Option<Next> {
        let mut entries = self.entries();
        if let Some((due, fingerprint)) = entries.agenda.take(now) {
            return Some(Next::Sync(due, fingerprint));
        }
        entries.idle.front().filter(|(at, _)| *at <= now)?;
        let (_, fingerprint) = entries.idle.pop_front()?;
        Some(Next::Idle(fingerprint))
    }

    /// Returns when there is something to do.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let entries = self.entries();
        let idle = entries.idle.front().map(|(at, _)| *at);
        entries.agenda.next().into_iter().chain(idle).min()
    }

    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

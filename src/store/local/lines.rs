//! Lines of calls that wait until calls in flight end: one for each key, in the order of arrival.
//!
//! A line is beside the state of its key, which does not know it. The first call of a line asks the
//! store when it becomes the first, and again after each release; the others sleep. A call that
//! leaves its line, for whatever reason, calls the next one. So a line never sleeps while there is
//! room: a release either precedes the ask of the first call, which then finds the room, or comes
//! after it, and then finds the call in the line.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Waker},
};

use super::Fingerprinter;
use crate::{algorithm::InFlight, key::Key, locks::lock, policy::Policy};

/// The lines of a store, shared by its clones.
// Public because a hidden method of `Backend` names it.
#[doc(hidden)]
pub struct Lines {
    seed: Fingerprinter,
    shards: [Mutex<Shard>; SHARDS],
    /// The number of calls in all lines, so that a release need not look for a line.
    waiting: AtomicUsize,
    tickets: AtomicU64,
}

/// The number of locks.
const SHARDS: usize = 16;

/// The lines that are not empty, by the fingerprint of the key.
type Shard = HashMap<u64, Line>;

#[derive(Default)]
struct Line {
    /// The sum of the costs of its calls.
    units: u64,
    /// By ticket, so that the first is the one that arrived first.
    calls: BTreeMap<u64, WaitingCall>,
}

struct WaitingCall {
    units: u64,
    /// Set if the call is to ask the store. It does so once it is the first.
    is_called: bool,
    /// `None` until it is polled.
    waker: Option<Waker>,
}

impl Line {
    /// Returns the ticket of the first call.
    fn first(&self) -> Option<u64> {
        self.calls.first_key_value().map(|(ticket, _)| *ticket)
    }

    /// Calls the first one; returns its waker, to be woken without the lock.
    fn call_first(&mut self) -> Option<Waker> {
        let mut first = self.calls.first_entry()?;
        let first = first.get_mut();
        first.is_called = true;
        first.waker.clone()
    }
}

impl Lines {
    pub(super) fn new(seed: Fingerprinter) -> Self {
        Self {
            seed,
            shards: Default::default(),
            waiting: AtomicUsize::new(0),
            tickets: AtomicU64::new(0),
        }
    }

    /// Returns the line of a key.
    pub(crate) fn line_of(&self, policy: &Policy, key: &Key) -> u64 {
        self.seed.fingerprint(policy, key, InFlight::STATES)
    }

    /// Returns the number of calls in all lines.
    // Relaxed, although it decides if a release looks for a line. A call joins before it asks, so
    // it is counted before it locks its state, or holds its slot in the table. A release reads the
    // count after it has done the same: it sees the call, unless it came first, and then the call
    // sees the room.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the place of a call in the order of arrival.
    pub(crate) fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the ticket of the first call in a line.
    pub(crate) fn first_in(&self, line: u64) -> Option<u64> {
        let shard = self.shard(line);
        shard.get(&line)?.first()
    }

    /// Joins a line, in the order of tickets. Returns `None` if more than `most` units would wait
    /// in it.
    pub(crate) fn join(
        self: &Arc<Self>,
        line: u64,
        ticket: u64,
        units: u64,
        most: u64,
    ) -> Option<Place> {
        let mut shard = self.shard(line);
        let waiting = shard.get(&line).map_or(0, |line| line.units);
        if waiting.saturating_add(units) > most {
            return None;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let joined = shard.entry(line).or_default();
        joined.units += units;
        let is_called = joined.first().is_none_or(|first| ticket < first);
        let call = WaitingCall {
            units,
            is_called,
            waker: None,
        };
        joined.calls.insert(ticket, call);
        Some(Place {
            lines: Arc::clone(self),
            line,
            ticket,
        })
    }

    /// Calls the first one in a line, after a release.
    pub(super) fn call_first_in(&self, line: u64) {
        let waker = self.shard(line).get_mut(&line).and_then(Line::call_first);
        wake(waker);
    }

    /// Calls the first one in each line.
    pub(super) fn call_all(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let wakers: Vec<_> = shard.values_mut().map(Line::call_first).collect();
            drop(shard);
            wakers.into_iter().for_each(wake);
        }
    }

    fn shard(&self, line: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[line as usize % SHARDS])
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl_debug!(Lines, |it| waiting = it.waiting());

/// The place of a call in a line. Dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct Place {
    lines: Arc<Lines>,
    line: u64,
    ticket: u64,
}

impl Place {
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    pub(crate) fn is_first(&self) -> bool {
        self.lines.first_in(self.line) == Some(self.ticket)
    }

    /// Returns `true` if the call is to ask the store, once for each time that it was called.
    /// Otherwise the task is woken when it is.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> bool {
        let mut shard = self.lines.shard(self.line);
        let Some(line) = shard.get_mut(&self.line) else {
            return false;
        };
        let first = line.first();
        let Some(own) = line.calls.get_mut(&self.ticket) else {
            return false;
        };
        match &mut own.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        first == Some(self.ticket) && mem::take(&mut own.is_called)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shard = self.lines.shard(self.line);
        let Some(line) = shard.get_mut(&self.line) else {
            return;
        };
        let first = line.first();
        let Some(own) = line.calls.remove(&self.ticket) else {
            return;
        };
        line.units -= own.units;
        self.lines.waiting.fetch_sub(1, Ordering::Relaxed);
        let next = (first == Some(self.ticket)).then(|| line.call_first());
        if line.calls.is_empty() {
            shard.remove(&self.line);
        }
        drop(shard);
        wake(next.flatten());
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicBool, task::Wake};

    use super::*;

    /// Set when a task is woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// The next step of a call; each is one that other threads cannot see a part of.
    enum Next {
        Ask,
        Join,
        Poll(Place),
        AskInTurn(Place),
        Leave(Place),
        GiveBack,
        ReadCount,
        CallFirst,
        Nothing,
    }

    /// Calls of one key that end, hang up and are called in any order of their steps: when none
    /// can go on, none waits.
    #[test]
    fn no_order_of_steps_loses_a_call() {
        const LINE: u64 = 7;
        let mut random = 1_u64;
        let mut below = |end: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % end
        };
        let (mut waited, mut hung_up) = (0, 0);
        for _ in 0..30_000 {
            let lines = Arc::new(Lines::new(Fingerprinter::random()));
            let most = 1 + below(2) as u64;
            let mut held = 0;
            let new = |_| (Next::Ask, Arc::<Woken>::default());
            let mut calls: Vec<(Next, Arc<Woken>)> = (0..5).map(new).collect();
            loop {
                let can_go_on = |(next, woken): &(Next, Arc<Woken>)| match next {
                    Next::Poll(_) => woken.0.load(Ordering::Relaxed),
                    Next::Nothing => false,
                    _ => true,
                };
                let ready = calls.iter().enumerate();
                let ready = ready.filter(|(_, call)| can_go_on(call));
                let ready: Vec<usize> = ready.map(|(index, _)| index).collect();
                let Some(&index) = ready.get(below(ready.len().max(1))) else {
                    break;
                };
                let (next, woken) = &mut calls[index];
                let hangs_up = below(8) == 0;
                *next = match mem::replace(next, Next::Nothing) {
                    Next::Poll(_) | Next::AskInTurn(_) if hangs_up => {
                        hung_up += 1;
                        Next::Nothing
                    }
                    Next::Ask if held < most => {
                        held += 1;
                        Next::GiveBack
                    }
                    Next::Ask => Next::Join,
                    Next::Join => {
                        waited += 1;
                        woken.0.store(true, Ordering::Relaxed);
                        let ticket = lines.ticket();
                        let place = lines.join(LINE, ticket, 1, u64::MAX);
                        place.map_or(Next::Nothing, Next::Poll)
                    }
                    Next::Poll(place) => {
                        woken.0.store(false, Ordering::Relaxed);
                        let waker = Waker::from(Arc::clone(woken));
                        match place.poll(&mut Context::from_waker(&waker)) {
                            true => Next::AskInTurn(place),
                            false => Next::Poll(place),
                        }
                    }
                    Next::AskInTurn(place) if held < most => {
                        held += 1;
                        Next::Leave(place)
                    }
                    Next::AskInTurn(place) => {
                        // A task polls again before it sleeps.
                        woken.0.store(true, Ordering::Relaxed);
                        Next::Poll(place)
                    }
                    Next::Leave(place) => {
                        drop(place);
                        Next::GiveBack
                    }
                    Next::GiveBack => {
                        held -= 1;
                        Next::ReadCount
                    }
                    Next::ReadCount if lines.waiting() > 0 => Next::CallFirst,
                    Next::CallFirst => {
                        lines.call_first_in(LINE);
                        Next::Nothing
                    }
                    Next::ReadCount | Next::Nothing => Next::Nothing,
                };
            }
            assert!(calls.iter().all(|(next, _)| matches!(next, Next::Nothing)));
            assert_eq!((held, lines.waiting()), (0, 0));
            assert!(lines.shards.iter().all(|shard| lock(shard).is_empty()));
        }
        assert!(waited > 10_000 && hung_up > 1_000, "{waited} {hung_up}");
    }

    #[test]
    fn a_line_is_in_the_order_of_tickets_and_bounded() {
        let lines = Arc::new(Lines::new(Fingerprinter::random()));
        let tickets = [0, 1, 2].map(|_| lines.ticket());
        let late = lines.join(7, tickets[2], 2, 5).unwrap();
        let early = lines.join(7, tickets[0], 2, 5).unwrap();
        assert!(lines.join(7, tickets[1], 2, 5).is_none());
        assert!(lines.join(8, tickets[1], 2, 5).is_some());
        assert_eq!(lines.first_in(7), Some(tickets[0]));
        assert!(early.is_first() && !late.is_first());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(early.poll(cx) && !early.poll(cx) && !late.poll(cx));
        drop(early);
        assert!(late.poll(cx) && !late.poll(cx));
        lines.call_all();
        assert!(late.poll(cx));
    }
}

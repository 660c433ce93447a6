//! Which call meets which fault.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use super::Fault;
use crate::testing::random::Random;

/// Switches the faults of a [`Faulty`](super::Faulty) store, and counts them. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

/// How often a [`Faulty`](super::Faulty) store did what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Calls that went to the store as they were.
    pub passed: u64,
    /// Calls that met [`Fault::Unavailable`].
    pub unavailable: u64,
    /// Calls that met [`Fault::Contended`].
    pub contended: u64,
    /// Calls that met [`Fault::Lost`].
    pub lost: u64,
    /// Calls that met [`Fault::Silent`].
    pub silent: u64,
    /// Calls that met [`Fault::Late`].
    pub late: u64,
    /// Calls that met [`Fault::Held`], whether they are released or not.
    pub held: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Comes first.
    script: VecDeque<Option<Fault>>,
    then: Then,
    counts: FaultCounts,
    /// How often what is held was released.
    released: u64,
    wakers: Vec<Waker>,
}

/// What calls meet that no script names.
#[derive(Debug, Default)]
enum Then {
    #[default]
    Nothing,
    Always(Fault),
    Chance {
        random: Random,
        once_in: u64,
        faults: Vec<Fault>,
    },
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next calls meet these, one each, `None` being none; those after them what else is told.
    ///
    /// Goes on where an earlier script ends.
    pub fn script(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.lock().script.extend(faults);
    }

    /// Each call meets this fault, until another word.
    pub fn always(&self, fault: Fault) {
        self.lock().then = Then::Always(fault);
    }

    /// One call in `once_in` meets one of these faults, by chance: the same calls for the same seed and order.
    ///
    /// A list without faults is none.
    pub fn by_chance(&self, seed: u64, once_in: u64, faults: impl IntoIterator<Item = Fault>) {
        self.lock().then = Then::Chance {
            random: Random::new(seed),
            once_in,
            faults: faults.into_iter().collect(),
        };
    }

    /// No call meets a fault any more. What is held stays held.
    pub fn none(&self) {
        let mut state = self.lock();
        state.script.clear();
        state.then = Then::Nothing;
    }

    /// Answers all calls that [are held](Fault::Held).
    pub fn release(&self) {
        let wakers = {
            let mut state = self.lock();
            state.released += 1;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How often what happened, all clones of the store together.
    pub fn counts(&self) -> FaultCounts {
        self.lock().counts
    }

    /// What the next call meets; counted.
    pub(super) fn next(&self) -> Option<Fault> {
        let mut state = self.lock();
        let fault = match state.script.pop_front() {
            Some(scripted) => scripted,
            None => state.then.draw(),
        };
        let counts = &mut state.counts;
        let count = match fault {
            None => &mut counts.passed,
            Some(Fault::Unavailable) => &mut counts.unavailable,
            Some(Fault::Contended) => &mut counts.contended,
            Some(Fault::Lost) => &mut counts.lost,
            Some(Fault::Silent) => &mut counts.silent,
            Some(Fault::Late(_)) => &mut counts.late,
            Some(Fault::Held) => &mut counts.held,
        };
        *count += 1;
        fault
    }

    pub(super) fn released(&self) -> u64 {
        self.lock().released
    }

    /// Whether what was held since `since` is released; else `waker` is woken when it is.
    pub(super) fn is_released(&self, since: u64, waker: &Waker) -> bool {
        let mut state = self.lock();
        if state.released > since {
            return true;
        }
        if !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        false
    }
}

impl Then {
    fn draw(&self) -> Option<Fault> {
        match self {
            Self::Nothing => None,
            Self::Always(fault) => Some(*fault),
            Self::Chance {
                random,
                once_in,
                faults,
            } => {
                let is_hit = random.once_in(*once_in);
                // Drawn in any case: what is hit later does not depend on what was hit before.
                let index = random.index(faults.len());
                faults.get(index).copied().filter(|_| is_hit)
            }
        }
    }
}

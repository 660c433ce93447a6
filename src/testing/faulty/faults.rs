//! The switch of a faulty store.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use super::Fault;
use crate::testing::shared_random::SharedRandom;

/// Switches the faults of a [`Faulty`](super::Faulty) store, and counts them. Clones share one switch.
///
/// # Examples
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket, store::{Ask, Local, Store, StoreExt}};
/// use tollgate::testing::{Fault, Faulty};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let faulty = Faulty::new(Local::new());
/// let faults = faulty.faults();
/// let store = faulty.fail_open();
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(2));
/// let ask = || [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
///
/// faults.always(Fault::Unavailable);
/// let Ok(during) = store.acquire(&ask()).await;
/// faults.none();
/// let Ok(after) = store.acquire(&ask()).await;
/// assert!(during.as_slice()[0].is_undecided() && !after.as_slice()[0].is_undecided());
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<FaultPlan>>);

/// The numbers of calls of a [`Faulty`](super::Faulty) store, by their faults.
///
/// # Examples
///
/// ```
/// use tollgate::{store::Local, TokenBucket, testing::{FaultCounts, Faulty}};
///
/// let counts: FaultCounts = Faulty::new(Local::<TokenBucket>::new()).faults().counts();
/// assert_eq!((counts.passed, counts.lost), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Calls without a fault.
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
    /// Calls that met [`Fault::Held`], released or not.
    pub held: u64,
}

#[derive(Debug, Default)]
struct FaultPlan {
    /// The faults of the next calls, before `default` applies.
    script: VecDeque<Option<Fault>>,
    default: DefaultFault,
    counts: FaultCounts,
    /// The number of calls of `release`.
    released: u64,
    wakers: Vec<Waker>,
}

/// The fault of calls beyond the script.
#[derive(Debug, Default)]
enum DefaultFault {
    #[default]
    Nothing,
    Always(Fault),
    Chance {
        random: SharedRandom,
        once_in: u64,
        faults: Vec<Fault>,
    },
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, FaultPlan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the faults of the next calls, one for each; `None` is a call without a fault.
    ///
    /// Appends to an earlier script. Calls after the script have the default fault.
    pub fn script(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.lock().script.extend(faults);
    }

    /// Sets the default fault: each call beyond the script meets this one.
    pub fn always(&self, fault: Fault) {
        self.lock().default = DefaultFault::Always(fault);
    }

    /// Sets a random default fault: one call in `once_in` meets one of these faults.
    ///
    /// The faults are reproducible for a seed and an order of calls. An empty list is no fault.
    pub fn by_chance(&self, seed: u64, once_in: u64, faults: impl IntoIterator<Item = Fault>) {
        self.lock().default = DefaultFault::Chance {
            random: SharedRandom::new(seed),
            once_in,
            faults: faults.into_iter().collect(),
        };
    }

    /// Removes the script and the default fault. Held calls stay held.
    pub fn none(&self) {
        let mut state = self.lock();
        state.script.clear();
        state.default = DefaultFault::Nothing;
    }

    /// Releases all [held](Fault::Held) calls.
    pub fn release(&self) {
        let wakers = {
            let mut state = self.lock();
            state.released += 1;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the numbers of calls of all clones of the store, by their faults.
    pub fn counts(&self) -> FaultCounts {
        self.lock().counts
    }

    /// Returns the fault of the next call, and counts it.
    pub(super) fn next(&self) -> Option<Fault> {
        let mut state = self.lock();
        let fault = match state.script.pop_front() {
            Some(scripted) => scripted,
            None => state.default.draw(),
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

    /// Returns `true` if calls held since release `since` are released. Otherwise `waker` is woken by the next release.
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

impl DefaultFault {
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
                // Drawn in any case, so that later draws do not depend on this one.
                let index = random.index(faults.len());
                faults.get(index).copied().filter(|_| is_hit)
            }
        }
    }
}

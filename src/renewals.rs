//! Tasks of what calls hold: renewals under a lease, and reports of maximal holds that strike.
//!
//! A task for each such charge moves it to the present every third of the lease. What comes due
//! together goes out together, by the queues of stores. The permit and its task share the charge:
//! a permit that is dropped gives it back at once, or leaves that to a renewal that is under way,
//! so neither can overtake the other one.
//!
//! A renewal whose result is not known may have been made. The charge lies nowhere then: the next
//! renewal adds its units once more, and nobody takes back what was added before, which is over
//! with the lease. So a failure can refuse too much, and never admits too much.
//!
//! A maximal hold strikes at an instant at which nobody may ask about its key. So the task that
//! renews the charge reports it, or without a lease one that only waits, which is made only for
//! layers with an observer.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::{
    algorithm::Renewal,
    charging::ChargedLimit,
    decision::Charge,
    locks::lock,
    permit::Release,
    store::Renewed,
    time::{Clock, LeaseClock, Timestamp},
};

/// A charge that a task renews until this is dropped, which gives it back.
pub(crate) struct Keeper {
    held: Arc<KeptCharge>,
    task: AbortHandle,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.held.end() {
            self.task.abort();
        }
    }
}

/// The task that reports the end of a maximal hold, until this is dropped.
pub(crate) struct Watch {
    task: AbortHandle,
    /// Set by whoever reports the end of the hold first: this task, or that of the call.
    is_over: Arc<AtomicBool>,
}

impl Watch {
    /// Returns `true` if the end of the hold was reported, and ends the watch otherwise.
    pub(crate) fn end(&self) -> bool {
        // Nothing but the report is ordered by it.
        self.is_over.swap(true, Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reports in a task of its own that a call outlasts the maximal hold, which is over in `over_in`.
/// Returns `None` outside of a runtime of tokio.
pub(crate) fn watch(
    layer: &Arc<dyn Release>,
    limit: &ChargedLimit,
    charge: &Charge,
    over_in: Duration,
) -> Option<Watch> {
    let runtime = Handle::try_current().ok()?;
    let (layer, limit, units) = (Arc::clone(layer), limit.clone(), charge.cost);
    let is_over = Arc::new(AtomicBool::new(false));
    let is_over_here = Arc::clone(&is_over);
    let task = runtime.spawn(async move {
        sleep(over_in).await;
        if !is_over_here.swap(true, Ordering::Relaxed) {
            layer.outlasted(&limit, units);
        }
    });
    let task = task.abort_handle();
    Some(Watch { task, is_over })
}

/// A charge that its permit and its task share.
struct KeptCharge {
    layer: Arc<dyn Release>,
    limit: ChargedLimit,
    state: Mutex<KeptState>,
    runtime: Handle,
}

enum KeptState {
    /// The charge, as the store has it.
    Held(Charge),
    /// A renewal is under way, and ends with the charge.
    Renewing,
    /// The permit is gone: whoever has the charge gives it back.
    Ended,
}

/// Renews a charge in a task of its own. Returns `None` outside of a runtime of tokio.
pub(crate) fn keep(
    layer: &Arc<dyn Release>,
    limit: &ChargedLimit,
    charge: &Charge,
    renewal: Renewal,
) -> Option<Keeper> {
    let runtime = Handle::try_current().ok()?;
    let held = Arc::new(KeptCharge {
        layer: Arc::clone(layer),
        limit: limit.clone(),
        state: Mutex::new(KeptState::Held(charge.duplicate())),
        runtime: runtime.clone(),
    });
    let task = runtime.spawn(renew(Arc::clone(&held), charge.at, renewal));
    Some(Keeper {
        held,
        task: task.abort_handle(),
    })
}

/// The longest time for which the answer to a renewal is awaited. What ends meanwhile is given back
/// after it.
const MOST_RENEWING: Duration = Duration::from_secs(5);

/// Renews a charge until its permit is dropped, or a maximal hold is over.
async fn renew(held: Arc<KeptCharge>, charged_at: Timestamp, renewal: Renewal) {
    // It counts the time for which a machine was suspended, as the clock of the store does.
    let begun = LeaseClock.now();
    let period = (renewal.lease / 3).max(Duration::from_millis(1));
    while !held.is_over() {
        let held_for = LeaseClock.now().saturating_since(begun);
        let left = renewal.max_hold.map(|hold| hold.saturating_sub(held_for));
        if left == Some(Duration::ZERO) {
            held.outlasted();
            return;
        }
        sleep(left.map_or(period, |left| left.min(period))).await;
        let Some(renewing) = KeptCharge::begin(&held) else {
            return;
        };
        let held_for = LeaseClock.now().saturating_since(begun);
        let to = charged_at.saturating_add(held_for);
        renewing.renew(to, period.min(MOST_RENEWING)).await;
    }
}

impl KeptCharge {
    fn state(&self) -> MutexGuard<'_, KeptState> {
        lock(&self.state)
    }

    fn is_over(&self) -> bool {
        matches!(*self.state(), KeptState::Ended)
    }

    /// Gives the charge back, unless a renewal is under way, which then does it. Returns `false` in
    /// that case.
    fn end(&self) -> bool {
        // Unlocked: observers are called.
        let last = mem::replace(&mut *self.state(), KeptState::Ended);
        match last {
            KeptState::Held(charge) => {
                // A permit may be dropped anywhere, and remote stores settle in the background.
                let _entered = Handle::try_current().is_err().then(|| self.runtime.enter());
                self.layer.release(&self.limit, charge);
            }
            KeptState::Renewing => return false,
            KeptState::Ended => {}
        }
        true
    }

    /// Gives the charge back at the end of a maximal hold, and reports that its call goes on.
    fn outlasted(&self) {
        let last = mem::replace(&mut *self.state(), KeptState::Ended);
        if let KeptState::Held(charge) = last {
            self.layer.outlasted(&self.limit, charge.cost);
            self.layer.give_back(&self.limit, charge);
        }
    }

    /// Begins a renewal; returns `None` if the permit is gone.
    fn begin(held: &Arc<Self>) -> Option<Renewing> {
        let mut state = held.state();
        let KeptState::Held(charge) = &*state else {
            return None;
        };
        let charge = charge.duplicate();
        *state = KeptState::Renewing;
        Some(Renewing {
            held: Arc::clone(held),
            charge,
        })
    }
}

/// The instant of units whose renewal may have been made or not. A charge at it has ended long ago,
/// so a settlement takes nothing away, and the next renewal adds the units anew: they may be held
/// twice until their lease ends, and are never lost.
const NOWHERE: Timestamp = Timestamp::from_nanos(0);

/// A renewal under way. Dropped, it hands the charge back to the permit, or gives it back if that
/// is gone.
struct Renewing {
    held: Arc<KeptCharge>,
    charge: Charge,
}

impl Renewing {
    /// Moves the units to an instant.
    async fn renew(mut self, to: Timestamp, within: Duration) {
        let from = self.charge.at;
        // Scripts count microseconds.
        let delay = Duration::from_micros(to.nanos_since(from) / 1000);
        let moved = self.charge.duplicate().with_delay(Some(delay));
        // Until the store has answered, nobody knows when the units end, and it stays so if this
        // future is dropped.
        self.charge.at = NOWHERE;
        let renewal = self.held.layer.renew(&self.held.limit, moved);
        self.charge.at = match timeout(within, renewal).await {
            Ok(Renewed::Made) => from.saturating_add(delay),
            Ok(Renewed::NotMade) => from,
            Ok(Renewed::Unknown) | Err(_) => return,
        };
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        let state = KeptState::Held(self.charge.duplicate());
        let last = mem::replace(&mut *self.held.state(), state);
        if let KeptState::Ended = last {
            self.held.end();
        }
    }
}

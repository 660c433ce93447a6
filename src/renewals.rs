//! Renewals of what a call holds under a lease.
//!
//! Each such charge has a task that owns it until its permit is dropped: it renews the charge, and
//! then gives it back, one after the other, so neither can overtake the other one. The charges of
//! a node come due together, so the queues of stores send their renewals in few requests.
//!
//! A renewal that fails may have been made. The charge counts as lying nowhere then: the next
//! renewal adds its units once more, and nobody takes back what was added before, which is over
//! with the lease. So a failure can refuse too much, and never admits too much.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{sleep, timeout},
};

use crate::{
    algorithm::Renewal,
    charging::ChargedLimit,
    decision::Charge,
    permit::Release,
    random::seed,
    time::{Clock, LeaseClock, Timestamp},
};

/// The task of a charge goes on until this is dropped, and then gives it back.
pub(crate) type Keeper = oneshot::Sender<Infallible>;

/// Renews a charge in a task of its own. Returns `None` outside of a runtime of tokio.
pub(crate) fn keep(
    layer: &Arc<dyn Release>,
    limit: &ChargedLimit,
    charge: &Charge,
    renewal: Renewal,
) -> Option<Keeper> {
    let runtime = Handle::try_current().ok()?;
    let (keeper, ended) = oneshot::channel();
    let held = KeptCharge {
        layer: Arc::clone(layer),
        limit: limit.clone(),
        charge: charge.duplicate(),
    };
    runtime.spawn(renew_until(ended, held, renewal));
    Some(keeper)
}

/// A charge that its task gives back when it ends.
struct KeptCharge {
    layer: Arc<dyn Release>,
    limit: ChargedLimit,
    charge: Charge,
}

impl Drop for KeptCharge {
    fn drop(&mut self) {
        self.layer.release(&self.limit, self.charge.duplicate());
    }
}

/// Renews a charge until its permit is dropped, or a maximal hold is over.
async fn renew_until(
    mut ended: oneshot::Receiver<Infallible>,
    mut held: KeptCharge,
    renewal: Renewal,
) {
    // It counts the time for which a machine was suspended, as the clock of the store does.
    let (begun, charged_at) = (LeaseClock.now(), held.charge.at);
    let period = renewal.lease / 3;
    loop {
        let held_for = LeaseClock.now().saturating_since(begun);
        let left = renewal.max_hold.map(|hold| hold.saturating_sub(held_for));
        if left == Some(Duration::ZERO) {
            return;
        }
        // By the clock of the store, as of the answer.
        let due_in = until_due(charged_at.saturating_add(held_for), period);
        tokio::select! {
            _ = &mut ended => return,
            () = sleep(left.map_or(due_in, |left| left.min(due_in))) => {}
        }
        let held_for = LeaseClock.now().saturating_since(begun);
        held.renew(charged_at.saturating_add(held_for), period)
            .await;
    }
}

impl KeptCharge {
    /// Moves the units to an instant.
    async fn renew(&mut self, to: Timestamp, within: Duration) {
        // Scripts count microseconds.
        let to = Timestamp::from_nanos(to.as_nanos() / 1000 * 1000);
        let delay = Duration::from_nanos(to.nanos_since(self.charge.at));
        let moved = self.charge.duplicate().with_delay(Some(delay));
        // Lies nowhere until it is known to be moved, also if this is cancelled.
        self.charge.at = Timestamp::default();
        let renewal = self.layer.renew(&self.limit, moved);
        if timeout(within, renewal).await == Ok(true) {
            self.charge.at = to;
        }
    }
}

/// Returns the time until the charges of this process come due, at instants that nodes do not have
/// in common.
fn until_due(now: Timestamp, period: Duration) -> Duration {
    static OFFSET: OnceLock<u64> = OnceLock::new();
    let offset = *OFFSET.get_or_init(|| seed() >> 1);
    let period = period.as_nanos() as u64;
    let since_due = (now.as_nanos() % period + offset % period) % period;
    Duration::from_nanos(period - since_due)
}

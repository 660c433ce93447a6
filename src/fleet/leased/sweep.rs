//! The task that forgets keys whose units have ended.
//!
//! A task forgets them, not calls: after a spike no calls may come, and the keys would stay. It
//! lives only while there are keys: a new key wants it, and the next call outside of the locks
//! spawns it. In a round it looks at 32 keys of each shard, so no lock is held for long. A key that
//! has been idle for less than two lease durations stays: it asks ahead with its next call, and
//! without that, seldom called nodes asked the store for 6 % more calls (`figures/fleet.md`).

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::call::Inner;
use crate::{algorithm::Leasable, fleet::one_task::Running, store::StoreError, time::Clock};

/// The time between two rounds while more keys are due, so that other tasks have their turn.
const PAUSE: Duration = Duration::from_millis(1);
/// The shortest time between two rounds otherwise, so that keys are looked at together.
const SHORTEST: Duration = Duration::from_millis(10);
/// The longest time between two rounds, because a new key may be due before all others.
const LONGEST: Duration = Duration::from_secs(1);

impl<S, Rule, C> Inner<S, Rule, C>
where
    S: Send + Sync + 'static,
    Rule: Leasable,
    C: Clock + Send + Sync + 'static,
{
    /// Lets a task forget keys whose units have ended, as long as there are keys.
    pub(super) fn sweep(self: &Arc<Self>) {
        let task = &self.book.sweeping;
        if task.is_due() {
            // Outside of a runtime nothing is forgotten until a call has one.
            let _: Result<(), StoreError> =
                task.spawn(|running| sweep(Arc::downgrade(self), running));
        }
    }
}

async fn sweep<S, Rule, C>(inner: Weak<Inner<S, Rule, C>>, mut running: Running)
where
    Rule: Leasable,
    C: Clock,
{
    loop {
        let Some(strong) = inner.upgrade() else {
            return;
        };
        running.begin();
        let now = strong.config.clock.now();
        let next = strong.book.forget_idle(now);
        drop(strong);
        let wait = match next {
            Some(next) if next <= now => PAUSE,
            Some(next) => next.saturating_since(now).clamp(SHORTEST, LONGEST),
            None => match running.end() {
                Ok(()) => return,
                Err(again) => {
                    running = again;
                    continue;
                }
            },
        };
        running.sleep(wait).await;
    }
}

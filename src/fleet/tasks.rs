//! Background tasks: one at most of each kind, and another one after a runtime was shut down.
//!
//! A task forgets idle keys, not calls: after a spike no calls may come, and the keys would stay.
//! It lives only while there are keys: a new key wants it, and the next call outside of the locks
//! spawns it.

use std::{
    future::Future,
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::shared::{Clocked, Shared};
use crate::{
    store::{StoreError, engine::runtime},
    time::Timestamp,
};

const IS_RUNNING: u8 = 1;
const IS_WANTED: u8 = 2;

/// A background task that runs at most once at a time. When this is dropped, the task's
/// [sleep](Running::sleep) ends.
#[derive(Default)]
pub(super) struct OneTask(Arc<TaskState>);

#[derive(Default)]
struct TaskState {
    flags: AtomicU8,
    wake: Notify,
}

/// The task's side of a [`OneTask`].
pub(super) struct Running {
    state: Arc<TaskState>,
    has_ended: bool,
}

impl OneTask {
    pub(super) fn is_running(&self) -> bool {
        self.0.flags.load(Ordering::Acquire) & IS_RUNNING != 0
    }

    /// Records that there is something to do.
    pub(super) fn want(&self) {
        // Reads first, so that few calls write and threads do not contend.
        if self.0.flags.load(Ordering::Acquire) & IS_WANTED == 0 {
            self.0.flags.fetch_or(IS_WANTED, Ordering::AcqRel);
        }
    }

    /// Returns `true` if there is something to do and no task runs.
    pub(super) fn is_due(&self) -> bool {
        self.0.flags.load(Ordering::Acquire) == IS_WANTED
    }

    /// Spawns the task if there is none.
    ///
    /// # Errors
    ///
    /// Outside of a runtime of tokio, if there is none.
    pub(super) fn spawn<F>(&self, work: impl FnOnce(Running) -> F) -> Result<(), StoreError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.is_running() {
            return Ok(());
        }
        let runtime = runtime()?;
        let before = self.0.flags.fetch_or(IS_RUNNING, Ordering::AcqRel);
        if before & IS_RUNNING == 0 {
            runtime.spawn(work(Running {
                state: Arc::clone(&self.0),
                has_ended: false,
            }));
        }
        Ok(())
    }
}

impl Drop for OneTask {
    fn drop(&mut self) {
        self.0.wake.notify_one();
    }
}

impl Running {
    /// Begins to do all that was wanted so far.
    pub(super) fn begin(&self) {
        self.state.flags.fetch_and(!IS_WANTED, Ordering::AcqRel);
    }

    /// Ends the task, unless something was wanted since it [began](Self::begin).
    /// Returns `true` if it has ended.
    pub(super) fn end(&mut self) -> bool {
        let (flags, order) = (&self.state.flags, Ordering::AcqRel);
        let ended = flags.compare_exchange(IS_RUNNING, 0, order, Ordering::Acquire);
        self.has_ended = ended.is_ok();
        self.has_ended
    }

    /// Sleeps for `time`, or until the [`OneTask`] is dropped.
    pub(super) async fn sleep(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.state.wake.notified()).await;
    }
}

impl Drop for Running {
    /// The task may end with its runtime or by a panic. Then the next call spawns another one.
    fn drop(&mut self) {
        if !self.has_ended {
            self.state.flags.store(IS_WANTED, Ordering::Release);
        }
    }
}

/// Keys of which the idle ones are forgotten.
pub(super) trait Sweep: Send + Sync + 'static {
    fn sweeping(&self) -> &OneTask;

    /// Forgets some idle keys. Returns the instant at which the next one is to be looked at; `None`
    /// if there are no keys.
    fn forget_idle(&self, now: Timestamp) -> Option<Timestamp>;
}

/// Lets a task forget idle keys, as long as there are keys.
pub(super) fn sweep<S, K, Config>(shared: &Arc<Shared<S, K, Config>>)
where
    S: Send + Sync + 'static,
    K: Sweep,
    Config: Clocked + Send + Sync + 'static,
{
    let task = shared.keys.sweeping();
    if task.is_due() {
        // Outside of a runtime nothing is forgotten until a call has one.
        let _: Result<(), StoreError> =
            task.spawn(|running| sweep_all(Arc::downgrade(shared), running));
    }
}

/// The time between two rounds while more keys are due, so that other tasks have their turn.
const PAUSE: Duration = Duration::from_millis(1);
/// The shortest time between two rounds otherwise, so that keys are looked at together.
const SHORTEST: Duration = Duration::from_millis(10);
/// The longest time between two rounds, because a new key may be due before all others.
const LONGEST: Duration = Duration::from_secs(1);

async fn sweep_all<S, K, Config>(shared: Weak<Shared<S, K, Config>>, mut running: Running)
where
    K: Sweep,
    Config: Clocked,
{
    loop {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        running.begin();
        let now = strong.now();
        let next = strong.keys.forget_idle(now);
        drop(strong);
        let wait = match next {
            Some(next) if next <= now => PAUSE,
            Some(next) => next.saturating_since(now).clamp(SHORTEST, LONGEST),
            None if running.end() => return,
            None => continue,
        };
        running.sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_wanted_while_the_task_ends_is_done() {
        let task = OneTask::default();
        task.want();
        assert!(task.is_due());
        let (sender, receiver) = std::sync::mpsc::channel();
        let send = |running| {
            sender.send(running).unwrap();
            std::future::ready(())
        };
        task.spawn(send).unwrap();
        let mut running = receiver.try_recv().unwrap();
        assert!(task.is_running() && !task.is_due());
        task.spawn(|_| async { panic!("there is a task") }).unwrap();
        running.begin();
        task.want();
        assert!(!running.end());
        running.begin();
        assert!(running.end());
        assert!(!task.is_running() && !task.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_dropped_is_due_again() {
        let task = OneTask::default();
        let sleeps = |running: Running| async move { running.sleep(Duration::MAX).await };
        task.spawn(sleeps).unwrap();
        assert!(task.is_running());
        let tasks = || {
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks()
        };
        assert_eq!(tasks(), 1);
        let state = Arc::clone(&task.0);
        drop(task);
        while tasks() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(OneTask(state).is_due());
    }
}

//! Waiting, always with an end.

use std::{
    collections::VecDeque,
    sync::{Condvar, LazyLock, Mutex, Once, PoisonError},
    thread,
    time::{Duration, Instant},
};

const PAUSE: Duration = Duration::from_millis(5);

/// Polls until `look` gives a value, and returns it.
///
/// # Panics
///
/// After `limit`, with `what` was expected and what `look` saw last.
#[track_caller]
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<T, String>,
) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(seen) if start.elapsed() > limit => {
                panic!("expected within {limit:?}: {what}; seen last: {seen}")
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// How late a tokio sleep wakes when nothing else is to do: the latest of forty.
///
/// A test of a deadline allows ten times this much. Reads real time, also inside a runtime whose
/// time is paused.
pub fn idle_wakeup() -> Duration {
    const SLEEP: Duration = Duration::from_millis(5);
    let measure = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut latest = Duration::ZERO;
            for _ in 0..40 {
                let start = Instant::now();
                tokio::time::sleep(SLEEP).await;
                latest = latest.max(start.elapsed().saturating_sub(SLEEP));
            }
            latest
        })
    };
    thread::spawn(measure).join().unwrap()
}

/// By how much a call that began at `start` may miss its deadline: ten times the latest wake-up, measured when
/// nothing else was to do, and by a thread that does nothing else since `start`. A machine that stands still is
/// late for everybody.
pub fn slack_since(start: Instant) -> Duration {
    const SLEEP: Duration = Duration::from_millis(5);
    const KEPT: usize = 20_000;
    static IDLE: LazyLock<Duration> = LazyLock::new(idle_wakeup);
    static SEEN: Mutex<VecDeque<(Instant, Duration)>> = Mutex::new(VecDeque::new());
    static WATCH: Once = Once::new();
    let seen = || SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    WATCH.call_once(|| {
        thread::spawn(move || {
            loop {
                let start = Instant::now();
                thread::sleep(SLEEP);
                let late = start.elapsed().saturating_sub(SLEEP);
                let mut seen = seen();
                if seen.len() == KEPT {
                    seen.pop_front();
                }
                seen.push_back((start + SLEEP + late, late));
            }
        });
    });
    let seen = seen();
    let since = seen.iter().rev().take_while(|(end, _)| *end >= start);
    10 * since.map(|(_, late)| *late).fold(*IDLE, Duration::max)
}

static HEAVY: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// The right to run many processes at once: one holder in this process, the others wait.
#[derive(Debug)]
pub(super) struct Turn(());

impl Turn {
    /// # Panics
    ///
    /// After five minutes: a test that holds one turn and takes a second waits for itself.
    pub(super) fn take() -> Self {
        let limit = Duration::from_secs(300);
        let (taken, freed) = &HEAVY;
        let taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, _) = freed
            .wait_timeout_while(taken, limit, |taken| *taken)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(
            !*taken,
            "expected within {limit:?}: the cluster or sentinel before this one is dropped (a test can hold one)"
        );
        *taken = true;
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (taken, freed) = &HEAVY;
        *taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        freed.notify_one();
    }
}

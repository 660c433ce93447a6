//! Waiting with a time limit.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Condvar, LazyLock, Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

const PAUSE: Duration = Duration::from_millis(5);

/// Polls until `look` returns `Ok`, and returns the value.
///
/// # Panics
///
/// After `limit`, with `what` was expected and the last error of `look`.
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

/// Returns the delay with which a tokio sleep wakes on an idle machine: the longest of forty.
///
/// A test of a deadline allows ten times this much. It measures real time, also inside a runtime
/// whose time is paused.
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

const NAP: Duration = Duration::from_millis(5);

/// The delays of threads and tasks that only sleep.
#[derive(Default)]
struct Naps {
    /// The end of each nap, and its delay.
    ended: VecDeque<(Instant, Duration)>,
    /// The start of each current nap, by sleeper.
    under_way: BTreeMap<u64, Instant>,
}

static NAPS: LazyLock<Mutex<Naps>> = LazyLock::new(Mutex::default);

fn naps() -> MutexGuard<'static, Naps> {
    NAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread or task that sleeps repeatedly.
struct Sleeper(u64);

impl Sleeper {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }

    fn wakes(&self) {
        const KEPT: usize = 50_000;
        let mut naps = naps();
        let now = Instant::now();
        if let Some(begun) = naps.under_way.insert(self.0, now) {
            if naps.ended.len() == KEPT {
                naps.ended.pop_front();
            }
            naps.ended.push_back((now, now - begun));
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        naps().under_way.remove(&self.0);
    }
}

/// Returns the time by which a call that began at `start` may miss its deadline: ten times the
/// longest delay of a wake-up, on the idle machine and since `start`. If the machine stalls, the
/// sleepers are late, too.
pub fn slack_since(start: Instant) -> Duration {
    static IDLE: LazyLock<Duration> = LazyLock::new(idle_wakeup);
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        thread::spawn(|| {
            let sleeper = Sleeper::new();
            loop {
                sleeper.wakes();
                thread::sleep(NAP);
            }
        });
    });
    let idle = *IDLE;
    let naps = naps();
    let ended = naps.ended.iter().rev();
    let since = ended.take_while(|(end, _)| *end >= start).map(|nap| nap.1);
    let under_way = naps.under_way.values().map(Instant::elapsed);
    let late = since.chain(under_way).map(|nap| nap.saturating_sub(NAP));
    10 * late.fold(idle, Duration::max)
}

/// Waits for a future that must end within `limit` plus the [slack](slack_since) of this machine.
///
/// # Panics
///
/// If it takes longer.
pub async fn in_time<T>(limit: Duration, what: impl Future<Output = T>) -> T {
    // The first call measures for a while.
    slack_since(Instant::now());
    let start = Instant::now();
    let value = what.await;
    let (took, slack) = (start.elapsed(), slack_since(start));
    assert!(
        took <= limit + slack,
        "expected within {limit:?} and {slack:?}, took {took:?}"
    );
    value
}

/// Includes the wake-ups of this runtime's tasks in [`slack_since`].
pub fn watch_this_runtime() {
    tokio::spawn(async {
        let sleeper = Sleeper::new();
        loop {
            sleeper.wakes();
            tokio::time::sleep(NAP).await;
        }
    });
}

static HEAVY: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// The right to run many processes at once. A process has one holder, and others wait.
#[derive(Debug)]
pub(super) struct Turn(());

impl Turn {
    /// # Panics
    ///
    /// After five minutes. A test that holds one turn and takes another waits for itself.
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

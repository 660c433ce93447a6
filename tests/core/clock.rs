//! The clocks, through the public API.

use std::{
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate::{
    Timestamp,
    time::{Clock, SystemClock},
};

#[expect(clippy::disallowed_methods, reason = "the reference")]
fn unix() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::default().saturating_add(since.unwrap_or_default())
}

/// Returns how far a clock is from Unix time, which is read before and after it: the thread may
/// pause in between.
fn off(clock: &impl Clock) -> Duration {
    let before = unix();
    let now = clock.now();
    let after = unix();
    now.saturating_since(after)
        .max(before.saturating_since(now))
}

#[test]
fn system_clock_starts_at_unix_time_and_stays_there() {
    let clock = SystemClock::new();
    assert!(off(&clock) < Duration::from_millis(50));
    thread::sleep(Duration::from_millis(2500));
    assert!(off(&clock) < Duration::from_millis(50));
}

#[test]
fn system_clock_never_falls_on_any_thread() {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let clock = SystemClock::default();
                assert!(clock.is_monotonic());
                let start = clock.now();
                let mut seen = start;
                while seen.saturating_since(start) < Duration::from_millis(2500) {
                    for _ in 0..1_000 {
                        let now = clock.now();
                        assert!(now >= seen, "{seen:?} then {now:?}");
                        seen = now;
                    }
                    // Leaves the processors to others, most of the time.
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
    });
}

#[test]
fn all_system_clocks_return_the_same_time() {
    let (one, other) = (SystemClock::new(), SystemClock::default());
    let before = one.now();
    let between = other.now();
    assert!(before <= between && between <= one.now());
    assert_eq!(format!("{one:?}"), "SystemClock { .. }");
}

#[cfg(feature = "test-util")]
#[test]
fn manual_clock_moves_only_when_set_and_together_with_its_clones() {
    use tollgate::time::ManualClock;

    let clock = ManualClock::new(Timestamp::from_nanos(7));
    let clone = clock.clone();
    assert_eq!(clone.now(), Timestamp::from_nanos(7));
    clock.advance(Duration::from_nanos(3));
    assert_eq!(clone.now(), Timestamp::from_nanos(10));
    clone.set(Timestamp::from_nanos(2));
    assert_eq!(clock.now(), Timestamp::from_nanos(2));
    clock.advance(Duration::MAX);
    assert_eq!(clock.now(), Timestamp::MAX);
    let day = 1_767_225_600_000_000_000;
    assert_eq!(ManualClock::default().now(), Timestamp::from_nanos(day));
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn tokio_clock_follows_paused_time() {
    use tollgate::time::TokioClock;

    let clock = TokioClock::new();
    let before = clock.now();
    assert!(off(&clock) < Duration::from_secs(1));
    assert_eq!(clock.now(), before);
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(
        clock.now().saturating_since(before),
        Duration::from_secs(3600)
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    let slept = clock.now().saturating_since(before);
    assert!(slept >= Duration::from_secs(3660) && slept < Duration::from_secs(3661));
}

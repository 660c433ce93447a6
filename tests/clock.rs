//! The clocks as a user meets them.

use std::{
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate::{
    Timestamp,
    clock::{Clock, CoarseClock, SystemClock},
};

#[expect(clippy::disallowed_methods, reason = "the truth to compare with")]
fn unix() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::default().saturating_add(since.unwrap_or_default())
}

fn apart(a: Timestamp, b: Timestamp) -> Duration {
    a.saturating_since(b).max(b.saturating_since(a))
}

#[test]
fn system_clock_starts_at_unix_time_and_stays_there() {
    let clock = SystemClock::new();
    assert!(apart(clock.now(), unix()) < Duration::from_millis(50));
    thread::sleep(Duration::from_millis(2500));
    assert!(apart(clock.now(), unix()) < Duration::from_millis(50));
}

fn never_falls_on_any_thread<C: Clock + Default>() {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let clock = C::default();
                assert!(clock.is_monotone());
                let start = clock.now();
                let mut seen = start;
                while seen.saturating_since(start) < Duration::from_millis(2500) {
                    let now = clock.now();
                    assert!(now >= seen, "{seen:?} then {now:?}");
                    seen = now;
                }
            });
        }
    });
}

#[test]
fn system_clock_never_falls_on_any_thread() {
    never_falls_on_any_thread::<SystemClock>();
}

#[test]
fn coarse_clock_never_falls_on_any_thread() {
    never_falls_on_any_thread::<CoarseClock>();
}

#[test]
fn all_system_clocks_tell_one_time() {
    let (one, other) = (SystemClock::new(), SystemClock::default());
    let before = one.now();
    let between = other.now();
    assert!(before <= between && between <= one.now());
    assert_eq!(format!("{one:?}"), "SystemClock { .. }");
}

/// How far `coarse` is behind, and that it is not ahead by more than two cores' counters may differ.
fn lag(coarse: CoarseClock) -> Duration {
    let exact = SystemClock::new();
    let before = exact.now();
    let now = coarse.now();
    assert!(now.saturating_since(exact.now()) < Duration::from_millis(1));
    before.saturating_since(now)
}

/// The least lag of as many readings as one comparison is among.
fn least_lag(coarse: CoarseClock) -> Duration {
    (0..64).map(|_| lag(coarse)).min().unwrap_or_default()
}

/// Reads as fast as it can until the clock stands still between two readings: it is being updated.
fn read_until_coarse(coarse: CoarseClock) {
    for _ in 0..10_000_000 {
        let before = coarse.now();
        let exact = SystemClock::new().now();
        if coarse.now() == before && SystemClock::new().now() > exact {
            return;
        }
    }
    panic!("the updater never woke");
}

#[test]
fn one_of_64_readings_of_the_coarse_clock_lags_by_its_resolution_at_most() {
    let coarse = CoarseClock::new();
    for pause in [0, 0, 1, 5, 20, 50, 0, 100, 1] {
        thread::sleep(Duration::from_millis(pause));
        for _ in 0..2000 {
            let least = least_lag(coarse);
            assert!(least <= CoarseClock::RESOLUTION, "{least:?}");
        }
    }
}

#[test]
fn most_readings_of_the_coarse_clock_lag_by_little() {
    let exact = SystemClock::new();
    let tick = Duration::from_millis(1);
    let late = |_| {
        let before = exact.now();
        thread::sleep(tick);
        exact.now().saturating_since(before).saturating_sub(tick)
    };
    let wake_up = (0..20).map(late).max().unwrap_or_default();
    let most = CoarseClock::RESOLUTION + 10 * wake_up;

    let coarse = CoarseClock::new();
    read_until_coarse(coarse);
    let lags: Vec<_> = (0..500_000).map(|_| lag(coarse)).collect();
    let beyond = lags.iter().filter(|lag| **lag > most).count();
    assert!(
        beyond < lags.len() / 2,
        "{beyond} of {} beyond {most:?}",
        lags.len()
    );
}

#[test]
fn coarse_clock_goes_on_after_its_updater_was_idle() {
    let coarse = CoarseClock::new();
    for _ in 0..3 {
        read_until_coarse(coarse);
        let before = coarse.now();
        thread::sleep(Duration::from_millis(200));
        assert!(least_lag(coarse) <= CoarseClock::RESOLUTION);
        let passed = coarse.now().saturating_since(before);
        // The system's clock may be slewed by 0.1 ms.
        assert!(passed >= Duration::from_millis(199) - CoarseClock::RESOLUTION);
    }
}

/// The threads of this process that update coarse clocks: how often each one has slept.
#[cfg(target_os = "linux")]
fn updaters() -> Vec<u64> {
    use std::fs::{read_dir, read_to_string};

    let status = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread of another test may have ended by now.
        let status = read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            Some(line[name.len()..].trim())
        };
        let ours = field("Name:")? == "tollgate-clock";
        let slept = field("voluntary_ctxt_switches:")?.parse().unwrap();
        ours.then_some(slept)
    };
    let tasks = read_dir("/proc/self/task").unwrap();
    tasks.filter_map(status).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn coarse_clocks_share_an_updater_that_sleeps_when_they_are_gone() {
    {
        let clocks = [CoarseClock::new(), CoarseClock::default()];
        thread::scope(|scope| {
            for clock in clocks {
                scope.spawn(move || read_until_coarse(clock));
            }
        });
        assert_eq!(format!("{:?}", clocks[0]), "CoarseClock { .. }");
    }
    assert_eq!(updaters().len(), 1);
    // Other tests may keep it awake for some seconds.
    let asleep = (0..300).find_map(|_| {
        let before = updaters();
        thread::sleep(Duration::from_millis(100));
        (before == updaters()).then_some(before)
    });
    let asleep = asleep.expect("an updater at rest");
    read_until_coarse(CoarseClock::new());
    let woken = (0..300).any(|_| {
        thread::sleep(Duration::from_millis(10));
        updaters() > asleep
    });
    assert!(woken);
}

#[cfg(feature = "test-util")]
#[test]
fn manual_clock_moves_only_when_told_and_with_its_clones() {
    use tollgate::clock::ManualClock;

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
    use tollgate::clock::TokioClock;

    let clock = TokioClock::new();
    let before = clock.now();
    assert!(apart(before, unix()) < Duration::from_secs(1));
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

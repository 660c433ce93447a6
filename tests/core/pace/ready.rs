//! Waiting in line for the budget, in tokio's paused time.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::poll;
use tokio::{task::JoinSet, time};
use tollgate::{
    Charge, Cost, Decision, Quota, Timestamp, TokenBucket, Verdict,
    algorithm::{Algorithm, Step},
    pace::Pacer,
    time::{Clock, SystemClock, TokioClock},
};

use super::{BASE, Lifetime, MILLI, Paused, SECOND, Spaced, cost};

/// Returns the nanoseconds since the start.
fn since(clock: &impl Clock) -> u64 {
    clock.now().as_nanos() - BASE
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the instants at which this many units are spent one by one.
async fn instants<A: Algorithm>(rule: A, units: u64) -> Vec<u64> {
    let clock = Paused::new();
    let pacer = Pacer::with_clock(rule, clock);
    let mut instants = Vec::new();
    for _ in 0..units {
        pacer.until_ready().await.unwrap();
        instants.push(since(&clock));
    }
    instants
}

/// Asserts that at most burst + rate · Δt pass from any unit to any later one.
fn assert_rate(instants: &[u64], burst: u64, quota: Quota) {
    let (amount, period) = (u128::from(quota.amount()), u128::from(quota.period_nanos()));
    for (i, from) in instants.iter().enumerate() {
        for (n, until) in instants[i..].iter().enumerate() {
            let beyond = (n as u128 + 1).saturating_sub(u128::from(burst));
            let span = u128::from(until - from);
            assert!(beyond * period <= span * amount, "{} in {span} ns", n + 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_items_take_exactly_what_the_rule_says() {
    for burst in [1, 10, 100] {
        let rule = TokenBucket::per_second(100).burst(burst);
        let instants = instants(rule, 1000).await;
        let expected: Vec<_> = (0..1000_u64)
            .map(|nth| (nth + 1).saturating_sub(burst) * 10 * MILLI)
            .collect();
        assert_eq!(instants, expected);
        assert_rate(&instants, burst, rule.quota());
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_compensates_for_late_timers() {
    // 333⅓ ms apart, and a timer of milliseconds: with a burst of 1 the rest of a millisecond is
    // lost each time.
    let rule = TokenBucket::per_second(3).burst(1);
    let slower: Vec<_> = (0..300).map(|nth| nth * 334 * MILLI).collect();
    assert_eq!(instants(rule, 300).await, slower);

    let rule = rule.burst(2);
    let instants = instants(rule, 300).await;
    let expected: Vec<_> = (0..300_u64)
        .map(|nth| (nth.saturating_sub(1) * SECOND).div_ceil(3).div_ceil(MILLI) * MILLI)
        .collect();
    assert_eq!(instants, expected);
    assert_rate(&instants, 2, rule.quota());
}

/// Starts tasks in this order, a millisecond apart. Returns the order and the time in which they
/// are served.
async fn served<A>(rule: A, costs: &[u64]) -> Vec<(usize, u64)>
where
    A: Algorithm,
{
    let clock = Paused::new();
    let pacer = Pacer::with_clock(rule, clock);
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for (nth, units) in costs.iter().enumerate() {
        let (pacer, served, units) = (pacer.clone(), served.clone(), cost(*units));
        tasks.spawn(async move {
            pacer.until_ready_for(units).await.unwrap();
            served.lock().unwrap().push((nth, since(&clock) / MILLI));
        });
        time::sleep(millis(1)).await;
    }
    tasks.join_all().await;
    let served = served.lock().unwrap();
    served.clone()
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_are_served_in_order_for_any_cost() {
    // A token each 100 ms, and five at the start.
    let rule = TokenBucket::per_second(10).burst(5);
    assert_eq!(
        served(rule, &[3, 5, 1, 1, 4, 2]).await,
        [(0, 0), (1, 300), (2, 400), (3, 500), (4, 900), (5, 1100)]
    );
    let rule = Spaced::new(100 * MILLI, 2);
    // A call that departs as one delays the next by the intervals of all its units.
    assert_eq!(
        served(rule.clone(), &[1, 3, 1, 2, 1]).await,
        [(0, 0), (1, 100), (2, 400), (3, 500), (4, 700)]
    );
    // Or it departs with the last of them.
    let rule = Spaced { last: true, ..rule };
    assert_eq!(
        served(rule, &[1, 3, 1, 2, 1]).await,
        [(0, 0), (1, 300), (2, 400), (3, 600), (4, 700)]
    );
}

#[tokio::test(start_paused = true)]
async fn no_call_overtakes_waiting_calls() {
    let clock = Paused::new();
    let pacer = Pacer::with_clock(TokenBucket::per_second(10).burst(3), clock);
    assert!(pacer.spend(clock.now(), cost(2)).is_some());
    {
        let mut waiting = pin!(pacer.until_ready_for(cost(3)));
        assert!(poll!(waiting.as_mut()).is_pending());
        // One token is there, and the first in line waits for two more.
        assert_eq!(pacer.look(clock.now()).remaining(), Some(1));
        assert!(!pacer.clone().can_do_work(clock.now()));
        waiting.await.unwrap();
        assert_eq!(since(&clock), 200 * MILLI);
    }
    time::advance(millis(100)).await;
    assert!(pacer.can_do_work(clock.now()));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_spends_nothing_and_the_next_call_continues() {
    let clock = Paused::new();
    let pacer = Pacer::with_clock(TokenBucket::per_second(10).burst(5), clock);
    pacer.until_ready_for(cost(5)).await.unwrap();
    let second = pacer.until_ready();
    {
        let mut first = pin!(pacer.until_ready_for(cost(5)));
        let mut dropped_in_line = Box::pin(pacer.until_ready_for(cost(4)));
        let mut second = pin!(second);
        assert!(poll!(first.as_mut()).is_pending());
        assert!(poll!(dropped_in_line.as_mut()).is_pending());
        assert!(poll!(second.as_mut()).is_pending());
        time::sleep(millis(250)).await;
        assert!(poll!(first.as_mut()).is_pending());
        drop(dropped_in_line);
        first.set(pacer.until_ready_for(cost(5)));
        // It has left the line, and rejoins at the end.
        assert!(poll!(first.as_mut()).is_pending());
        second.await.unwrap();
        assert_eq!(since(&clock), 250 * MILLI);
        first.await.unwrap();
        assert_eq!(since(&clock), 600 * MILLI);
    }
    assert_eq!(pacer.look(clock.now()).remaining(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_dropped_during_a_delay_spends_nothing() {
    let spaced = Spaced::new(100 * MILLI, 5);
    let clock = Paused::new();
    // The rule cannot refund.
    let pacer = Pacer::with_clock((spaced, TokenBucket::per_second(1000)), clock);
    pacer.until_ready().await.unwrap();
    let before = pacer.look(clock.now());
    for _ in 0..50 {
        let mut dropped = pin!(pacer.until_ready_for(cost(2)));
        assert!(poll!(dropped.as_mut()).is_pending());
    }
    assert_eq!(pacer.look(clock.now()), before);
    {
        let mut dropped = pin!(pacer.until_ready());
        assert!(poll!(dropped.as_mut()).is_pending());
        time::sleep(millis(30)).await;
        assert!(poll!(dropped.as_mut()).is_pending());
    }
    pacer.until_ready().await.unwrap();
    assert_eq!(since(&clock), 100 * MILLI);
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_waited_for_and_departures_keep_the_rate() {
    let rule = Spaced::new(10 * MILLI, 0);
    let expected: Vec<_> = (0..1000).map(|nth| nth * 10 * MILLI).collect();
    let refusing = instants(rule.clone(), 1000).await;
    assert_eq!(refusing, expected);
    let rule = Spaced { queue: 50, ..rule };
    assert_eq!(instants(rule.clone(), 1000).await, expected);

    // With work in between and an idle time, the departures stay on their grid, and no unused ones
    // accumulate.
    let clock = Paused::new();
    let pacer = Pacer::with_clock(rule, clock);
    let mut departures = Vec::new();
    for work in [4, 7, 9, 1, 55, 0, 3] {
        let ready = pacer.until_ready().await.unwrap();
        assert!(ready.is_admitted() && { ready }.take_charge().is_some());
        departures.push(since(&clock) / MILLI);
        time::sleep(millis(work)).await;
    }
    assert_eq!(departures, [0, 10, 20, 30, 40, 95, 105]);
}

#[tokio::test(start_paused = true)]
async fn a_late_waking_does_not_slow_a_rule_that_delays() {
    // 1.5 ms apart, and a timer of milliseconds.
    let rule = Spaced::new(1_500_000, 50);
    let instants = instants(rule, 100).await;
    let expected: Vec<_> = (0..100_u64)
        .map(|nth| (nth * 1_500_000).div_ceil(MILLI) * MILLI)
        .collect();
    assert_eq!(instants, expected);
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_can_never_pass_is_an_error_and_the_next_call_continues() {
    let clock = TokioClock::new();
    let pacer = Pacer::with_clock(TokenBucket::per_second(10), clock);
    let never = pacer.until_ready_for(cost(11)).await.unwrap_err();
    assert_eq!((never.cost(), never.limit()), (cost(11), Some(10)));
    let text = "a cost of 11 can never pass: expected at most 10, the capacity of the rule; \
                split the work, or choose a larger capacity";
    assert_eq!(never.to_string(), text);
    assert_eq!(format!("{never:?}"), format!("NeverReady({text})"));
    assert!(pacer.until_ready_for(cost(u64::MAX)).await.is_err());
    assert_eq!(
        pacer.until_ready_for(cost(10)).await.unwrap().remaining(),
        Some(0)
    );
    let spaced = Pacer::with_clock(Spaced::new(MILLI, 3), clock);
    spaced.until_ready().await.unwrap();
    assert!(spaced.until_ready_for(cost(5)).await.is_err());

    let lifetime = Pacer::with_clock(Lifetime(2), clock);
    for _ in 0..2 {
        lifetime.until_ready().await.unwrap();
    }
    let never = lifetime.until_ready().await.unwrap_err();
    assert_eq!(
        never.to_string(),
        "a cost of 1 will never pass again: expected a rule that refills; \
         choose another rule, or a new pacer"
    );
}

#[tokio::test(start_paused = true)]
async fn waits_are_extended_for_a_clock_slewed_slow() {
    let clock = Paused {
        slow: 500,
        ..Paused::new()
    };
    let begun = time::Instant::now();
    let pacer = Pacer::with_clock(TokenBucket::per_minute(1), clock);
    for nth in 0..20 {
        pacer.until_ready().await.unwrap();
        assert!(since(&clock) >= nth * 60 * SECOND);
    }
    // 19 minutes, 500 ppm of them, and at most two wake-ups of a millisecond each.
    assert!(begun.elapsed() >= millis(1_140_570));
    assert!(begun.elapsed() <= millis(1_140_571 + 19 * 2));
}

/// Always refuses, with a wait of zero.
#[derive(Clone, Debug)]
struct ZeroWait(Arc<AtomicU64>);

impl Algorithm for ZeroWait {
    type State = ();

    fn step(&self, _: &mut Option<()>, now: Timestamp, cost: Cost) -> Step {
        self.0.fetch_add(1, Ordering::Relaxed);
        let refused = Decision::new(Verdict::Refuse, now, cost.get());
        Step::Kept(refused.with_retry_after(Some(Duration::ZERO)))
    }

    fn look(&self, _: Option<&()>, now: Timestamp) -> Decision {
        Decision::new(Verdict::Refuse, now, 0)
    }

    fn settle(&self, _: &mut Option<()>, _: &Charge, _: Timestamp, _: u64) {}

    fn forgettable_at(&self, _: &()) -> Timestamp {
        Timestamp::MAX
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_returns_zero_waits_does_not_keep_the_thread_busy() {
    let asked = Arc::new(AtomicU64::new(0));
    let pacer = Pacer::with_clock(ZeroWait(asked.clone()), TokioClock::new());
    assert!(
        time::timeout(millis(100), pacer.until_ready())
            .await
            .is_err()
    );
    assert!((50..=101).contains(&asked.load(Ordering::Relaxed)));
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_decades_does_not_panic_and_can_be_dropped() {
    let rule = TokenBucket::new(Quota::new(1, Duration::from_secs(24 * 365 * 86_400)));
    let pacer = Pacer::with_clock(rule, TokioClock::new());
    pacer.until_ready().await.unwrap();
    let mut waiting = pin!(pacer.until_ready());
    assert!(poll!(waiting.as_mut()).is_pending());
}

#[test]
fn the_futures_can_be_sent() {
    fn sent<F: Future + Send>(future: F) -> F {
        future
    }
    let pacer = Pacer::new(TokenBucket::per_second(1));
    drop(sent(pacer.until_ready()));
    drop(sent(pacer.until_ready_for(cost(2))));
}

/// Tasks on several threads that wait, and one that does not. Together they never exceed the rule.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_together_spend_what_the_rule_allows() {
    let rule = TokenBucket::per_second(20_000).burst(10);
    let clock = SystemClock::new();
    let pacer = Pacer::new(rule);
    let begun = clock.now();
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let pacer = pacer.clone();
        tasks.spawn(async move {
            for nth in 0..100 {
                let units = cost(1 + (nth + task) % 3);
                pacer.until_ready_for(units).await.unwrap();
            }
            (0..100).map(|nth| 1 + (nth + task) % 3).sum::<u64>()
        });
    }
    tasks.spawn(async move {
        let mut spent = 0;
        for _ in 0..2000 {
            spent += u64::from(pacer.can_do_work(clock.now()));
            tokio::task::yield_now().await;
        }
        spent
    });
    let spent: u64 = tasks.join_all().await.into_iter().sum();
    let span = clock.now().saturating_since(begun).as_nanos();
    assert!(spent >= 799);
    assert!(u128::from(spent - 10) * u128::from(SECOND) <= span * 20_000);
}

//! One turn after the other, in tokio's paused time.

use std::{pin::pin, time::Duration};

use futures_util::poll;
use tokio::time;
use tollgate::{
    TokenBucket,
    pace::{Pacer, RoundRobin, Turn, Turns},
    time::Clock,
};

use super::{MILLI, Paused, SECOND, at};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn second(senders: usize) -> RoundRobin {
    RoundRobin::new(Duration::from_secs(1), senders)
}

#[tokio::test(start_paused = true)]
async fn every_sender_has_its_turn_once_a_second() {
    let clock = Paused::new();
    let mut turns = Turns::new(second(100), clock);
    for nth in 1..=1000 {
        let turn = turns.next_turn().await;
        let expected = Turn {
            sender: nth % 100,
            begins: at(nth as u64 * 10 * MILLI),
            ends: at((nth as u64 + 1) * 10 * MILLI),
            missed: 0,
        };
        assert_eq!((turn, clock.now()), (expected, expected.begins));
    }
}

#[tokio::test(start_paused = true)]
async fn missed_turns_are_counted_and_no_turn_comes_twice() {
    let clock = Paused::new();
    let mut turns = Turns::new(second(10), clock);
    let mut served = Vec::new();
    for work in [0, 99, 100, 101, 199, 250, 0, 1000, 3300, 0] {
        let turn = turns.next_turn().await;
        served.push((
            turn.sender,
            turn.missed,
            clock.now().saturating_since(turn.begins),
        ));
        time::sleep(millis(work)).await;
    }
    let on_time = Duration::ZERO;
    assert_eq!(
        served,
        [
            (1, 0, on_time),
            (2, 0, on_time),
            (3, 0, on_time),
            (4, 0, on_time),
            // 101 ms: the next turn has begun.
            (5, 0, millis(1)),
            // 199 ms from there.
            (7, 1, on_time),
            (9, 1, millis(50)),
            (0, 0, on_time),
            (0, 9, on_time),
            (3, 32, on_time),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn senders_come_and_go() {
    let clock = Paused::new();
    let mut turns = Turns::new(second(10), clock);
    assert_eq!(turns.next_turn().await.sender, 1);
    // The turn ended at 200 ms, when four senders are in their first turn.
    turns.set_schedule(second(4));
    for (sender, begins, now) in [(0, 0, 200), (1, 250, 250), (2, 500, 500)] {
        let turn = turns.next_turn().await;
        assert_eq!((turn.sender, turn.missed), (sender, 0));
        assert_eq!(
            (turn.begins, clock.now()),
            (at(begins * MILLI), at(now * MILLI))
        );
    }
    turns.set_schedule(second(1));
    let turn = turns.next_turn().await;
    assert_eq!(
        (turn.sender, turn.begins, turn.ends),
        (0, at(0), at(SECOND))
    );
    assert_eq!(clock.now(), at(750 * MILLI));
    time::sleep(Duration::from_secs(3)).await;
    assert_eq!(turns.next_turn().await.missed, 2);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_takes_no_turn() {
    let mut turns = Turns::new(second(10), Paused::new());
    for _ in 0..5 {
        let mut dropped = pin!(turns.next_turn());
        assert!(poll!(dropped.as_mut()).is_pending());
    }
    time::sleep(millis(30)).await;
    let turn = turns.next_turn().await;
    assert_eq!(
        (turn.sender, turn.begins, turn.missed),
        (1, at(100 * MILLI), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn slices_shorter_than_the_timer_are_counted_as_missed() {
    let clock = Paused::new();
    let mut turns = Turns::new(RoundRobin::new(millis(1), 7), clock);
    let (mut served, mut missed) = (0, 0);
    for _ in 0..100 {
        let turn = turns.next_turn().await;
        assert!(turn.begins <= clock.now() && clock.now() < turn.ends);
        served += 1;
        missed += turn.missed;
    }
    // From the second turn of the first millisecond to the first one of the hundredth.
    assert_eq!((served, missed), (100, 100 * 7 - 1 - 99));
}

#[tokio::test(start_paused = true)]
async fn a_turn_waits_for_a_clock_that_stepped_back() {
    #[derive(Clone)]
    struct Stepping(Paused);
    impl Clock for Stepping {
        fn now(&self) -> tollgate::Timestamp {
            let now = self.0.now();
            if now < at(SECOND) {
                now
            } else {
                tollgate::Timestamp::from_nanos(now.as_nanos() - SECOND / 2)
            }
        }
    }
    let clock = Stepping(Paused::new());
    let mut turns = Turns::new(second(10), clock.clone());
    let mut last = at(0);
    for nth in 1..=20 {
        let turn = turns.next_turn().await;
        assert_eq!((turn.sender, turn.missed), (nth % 10, 0));
        assert!(turn.begins > last && clock.now() >= turn.begins);
        last = turn.begins;
    }
    assert_eq!(last, at(2 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn one_task_serves_a_hundred_senders_within_their_limits() {
    let clock = Paused::new();
    let limit = |sender: usize| 1 + sender as u64 % 4;
    let pacers: Vec<_> = (0..100)
        .map(|sender| Pacer::with_clock(TokenBucket::per_second(limit(sender)), clock))
        .collect();
    let mut turns = Turns::new(second(100), clock);
    let mut sent = [0; 100];
    for _ in 0..3000 {
        let turn = turns.next_turn().await;
        assert_eq!(turn.missed, 0);
        while clock.now() < turn.ends && pacers[turn.sender].can_do_work(clock.now()) {
            sent[turn.sender] += 1;
            time::sleep(millis(1)).await;
        }
    }
    for (sender, sent) in sent.into_iter().enumerate() {
        // 30 turns, and everything that the limit admits within each second.
        assert!(
            (limit(sender) * 30 - 1..=limit(sender) * 30).contains(&sent),
            "{sender}: {sent}"
        );
    }
}

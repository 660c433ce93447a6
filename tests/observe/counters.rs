//! Counters, event by event and from many threads.

use std::{num::NonZeroU64, thread, time::Duration};

use tollgate::{
    Decision, Policy, Quota, Timestamp, Verdict,
    key::{Key, MissingKey},
    observe::{Event, EventCounters, EventCounts, Observer},
};

fn decision(verdict: Verdict) -> Decision {
    let limit = NonZeroU64::MIN;
    Decision::new(verdict, Timestamp::from_nanos(1 << 60), 1)
        .with_limit(limit, Quota::per_second(limit.get()))
}

const WAIT: Duration = Duration::from_secs(3);

/// Reports the events numbered 0 to 11, and counts them the obvious way.
fn report(observer: &impl Observer, number: usize, counts: &mut EventCounts) {
    let (policy, key) = (Policy::new("api"), Key::from("alice"));
    let [allow, delay, refuse, open, closed] = [
        Verdict::Allow,
        Verdict::Delay(WAIT),
        Verdict::Refuse,
        Verdict::Undecided { admitted: true },
        Verdict::Undecided { admitted: false },
    ]
    .map(decision);
    let event = |decision| Event::new(&policy, &key, decision);
    match number {
        0 => {
            observer.admitted(&event(&allow));
            counts.admitted += 1;
        }
        1 => {
            observer.delayed(&event(&delay), WAIT);
            counts.delayed += 1;
        }
        2 => {
            observer.refused(&event(&refuse));
            counts.refused += 1;
        }
        3 => {
            observer.undecided(&event(&open));
            counts.undecided_admitted += 1;
        }
        4 => {
            observer.undecided(&event(&closed));
            counts.undecided_refused += 1;
        }
        5 => {
            observer.exempt();
            counts.exempt += 1;
        }
        6 => {
            observer.missing_key(&MissingKey::new("none"));
            counts.missing_key += 1;
        }
        7 => {
            observer.settled(&policy, &key, 5, 3);
            counts.settled += 1;
        }
        8 => {
            observer.dry_run(&event(&refuse));
            counts.dry_run_refused += 1;
        }
        9..12 => {
            observer.dry_run(&event([&allow, &delay, &open][number - 9]));
            counts.dry_run_passed += 1;
        }
        _ => panic!("no event {number}"),
    }
}

#[test]
fn each_event_has_a_count() {
    for number in 0..12 {
        let (counters, mut expected) = (EventCounters::new(), EventCounts::default());
        report(&counters, number, &mut expected);
        assert_ne!(expected, EventCounts::default());
        assert_eq!(counters.snapshot(), expected, "{number}");
    }
}

#[test]
fn counters_of_several_threads_are_exact() {
    const THREADS: usize = 200;
    let (counters, mut expected) = (EventCounters::new(), EventCounts::default());
    // More threads than stripes. Those that come later use the stripes again.
    for wave in 0..2 {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let counters = counters.clone();
                thread::spawn(move || {
                    let mut counts = EventCounts::default();
                    for round in 0..500 {
                        report(&counters, (thread + wave + 5 * round) % 12, &mut counts);
                    }
                    counts
                })
            })
            .collect();
        for thread in threads {
            let counts = thread.join().unwrap();
            expected.admitted += counts.admitted;
            expected.delayed += counts.delayed;
            expected.refused += counts.refused;
            expected.undecided_admitted += counts.undecided_admitted;
            expected.undecided_refused += counts.undecided_refused;
            expected.exempt += counts.exempt;
            expected.missing_key += counts.missing_key;
            expected.settled += counts.settled;
            expected.dry_run_refused += counts.dry_run_refused;
            expected.dry_run_passed += counts.dry_run_passed;
        }
        assert_eq!(counters.snapshot(), expected);
    }
}

#[test]
fn decisions_are_those_with_an_effect() {
    let (counters, mut expected) = (EventCounters::new(), EventCounts::default());
    (0..12).for_each(|number| report(&counters, number, &mut expected));
    assert_eq!(counters.snapshot().decisions(), 5);
    assert_eq!(counters.snapshot().undecided(), 2);
}

//! The figure `pacing` against slow models.

use crate::{
    drawn::{draw, within_a_percent},
    slow::{Kind, Limit, Limiter, most_in_window},
};

/// Times are in microseconds.
const SECOND: u64 = 1_000_000;
const TENTH: u64 = SECOND / 10;
const WORK: u64 = 10;
const POLL: u64 = 100;

const KINDS: [(&str, Kind); 6] = [
    ("fixed_window", Kind::Fixed),
    ("sliding_log", Kind::Perfect),
    ("token_bucket", Kind::Tokens),
    ("sliding_window", Kind::Weighted(1)),
    ("sliding_window_4+1", Kind::Weighted(4)),
    ("leaky_bucket_queue", Kind::Queue),
];

/// Scenarios without the phase, and their pauses in tenths of a second.
const PAUSES: [(&str, &[(u64, u64)]); 4] = [
    ("plain", &[]),
    ("pause_0.5s", &[(40, 45), (60, 65)]),
    ("pause_1.0s", &[(40, 50), (60, 70)]),
    ("pause_2.0s", &[(40, 60), (65, 85)]),
];

/// Returns when each item begins and when the last one is done, after the launch.
fn work(kind: Kind, phase: u64, pauses: &[(u64, u64)]) -> (Vec<u64>, u64) {
    let limit = Limit {
        amount: 1000,
        window: SECOND,
    };
    let (mut limiter, mut now, mut items) = (Limiter::new(limit, kind), 0, Vec::new());
    while items.len() < 10_000 {
        for (begin, end) in pauses {
            if (begin * TENTH..end * TENTH).contains(&now) {
                now = end * TENTH;
            }
        }
        if limiter.admits(phase + now) {
            items.push(now);
            now += WORK;
        } else {
            now += POLL;
        }
    }
    (items, now)
}

#[test]
fn items_are_those_of_the_slow_model() {
    let drawn = draw("pacing");
    let summary = drawn.table("pacing_summary.csv");
    for (phase_name, phase) in [("phase0.0", 0), ("phase0.3", 3 * TENTH)] {
        for (name, pauses) in PAUSES {
            let scenario = format!("{name}_{phase_name}");
            let table = drawn.table(&format!("pacing_{scenario}.csv"));
            for (rule, kind) in KINDS {
                let (items, finish) = work(kind, phase, pauses);
                let of = format!("{scenario} {rule}");
                let mut sum = 0;
                for row in table.rows() {
                    let tenth = row.number("tenth") as u64;
                    let model = items.iter().filter(|item| **item / TENTH == tenth).count();
                    within_a_percent(row.number(rule), model as f64, &format!("{of} {tenth}"));
                    sum += model;
                }
                assert_eq!(sum, items.len(), "{of}: all tenths have a row");
                let row = summary
                    .rows()
                    .find(|row| (row.text("scenario"), row.text("rule")) == (&*scenario, rule));
                let row = row.expect("a row");
                let most = most_in_window(&items, SECOND) as f64;
                within_a_percent(row.number("most_in_any_second"), most, &of);
                within_a_percent(row.number("finish_ms"), finish as f64 / 1000.0, &of);
                let in_pause = |tenth: u64| {
                    pauses
                        .iter()
                        .any(|(from, to)| (*from..*to).contains(&tenth))
                };
                let idle = |tenth: &u64| {
                    !in_pause(*tenth) && !items.iter().any(|item| item / TENTH == *tenth)
                };
                let tenths = items.last().expect("an item") / TENTH;
                let idle = (0..tenths).filter(idle).count();
                assert_eq!(row.number("idle_tenths"), idle as f64, "{of}");
            }
        }
    }
}

#[test]
fn senders_send_what_they_send_in_the_slow_model() {
    let table = draw("pacing --items 1").table("pacing_senders.csv");
    for senders in [1, 2, 10, 50, 100] {
        let limit = Limit {
            amount: 1000 / senders,
            window: SECOND,
        };
        for (rule, kind) in KINDS {
            let limiter = |_| Limiter::new(limit, kind);
            let mut limiters: Vec<_> = (0..senders).map(limiter).collect();
            let mut now = 0;
            while now < 10 * SECOND {
                let sender = now % SECOND * senders / SECOND;
                now += if limiters[sender as usize].admits(now) {
                    WORK
                } else {
                    POLL
                };
            }
            let sent: Vec<_> = limiters
                .iter()
                .map(|limiter| limiter.calls().len())
                .collect();
            let row = table
                .rows()
                .find(|row| (row.number("senders"), row.text("rule")) == (senders as f64, rule));
            let row = row.expect("a row");
            let check = |column, model: usize| {
                within_a_percent(
                    row.number(column),
                    model as f64,
                    &format!("{senders} {rule} {column}"),
                );
            };
            check("items", sent.iter().sum());
            check("least_per_sender", sent.iter().min().copied().unwrap_or(0));
            check("most_per_sender", sent.iter().max().copied().unwrap_or(0));
        }
    }
}

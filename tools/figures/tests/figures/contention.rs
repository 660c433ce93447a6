//! The race for one row, against a model of its own.

use std::{collections::HashSet, fs, path::Path, time::Duration};

use figures::contention::{BackoffKind, Contenders, Exponent, simulate, trial};

use crate::drawn::{checked_in, draw, files, run};

const MS: Duration = Duration::from_millis(1);

fn contenders(clients: &[usize]) -> Contenders {
    Contenders {
        clients: clients.to_vec(),
        over_time: 10,
        ..Contenders::default()
    }
}

/// Without variance all clients move in step, and one of them succeeds in each round of four ways.
#[test]
fn in_step_one_client_succeeds_in_each_round() {
    let in_step = Contenders {
        deviation: Duration::ZERO,
        ..Contenders::default()
    };
    for clients in [1, 2, 5, 20] {
        let race = trial(&in_step, BackoffKind::None, clients, 0);
        assert_eq!(race.writes.len(), clients * (clients + 1) / 2);
        assert_eq!(
            u128::from(race.finished),
            clients as u128 * 40 * MS.as_nanos()
        );
    }
    // The client that fails k times waits 10, 20, 40 ms and so on.
    let race = trial(&in_step, BackoffKind::Exponential, 5, 0);
    let waits = 10 + 20 + 40 + 80;
    assert_eq!(race.writes.len(), 15);
    assert_eq!(u128::from(race.finished), (5 * 40 + waits) * MS.as_nanos());
    // The delays stop to grow at the cap.
    let capped = Contenders {
        cap: 25 * MS,
        ..in_step
    };
    let race = trial(&capped, BackoffKind::Exponential, 5, 0);
    assert_eq!(
        u128::from(race.finished),
        (5 * 40 + 10 + 20 + 25 + 25) * MS.as_nanos()
    );
}

#[test]
fn equal_seeds_give_equal_numbers() {
    let settings = Contenders {
        trials: 3,
        ..contenders(&[7])
    };
    let numbers = |seed| {
        let of_seed = Contenders {
            seed,
            ..settings.clone()
        };
        format!("{:?}", simulate(&of_seed, |_| {}).expect("a race"))
    };
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
}

#[test]
fn calls_over_time_are_all_calls() {
    let contention = simulate(&contenders(&[10]), |_| {}).expect("a race");
    for (index, kind) in BackoffKind::ALL.into_iter().enumerate() {
        let sum: f64 = contention
            .calls_over_time
            .iter()
            .map(|calls| calls[index])
            .sum();
        let cell = contention.of(kind).next().expect("a cell");
        assert!((sum - cell.calls.mean).abs() < 1e-6, "{kind:?}: {sum}");
    }
}

/// Each mean of the figure and that of the model differ by less than four standard errors of their
/// difference. For 20 right means, all are within with a probability of 99.9 %; the seeds are
/// fixed.
#[test]
fn the_means_are_those_of_a_model_of_its_own() {
    let contention = simulate(&contenders(&[6, 30]), |_| {}).expect("a race");
    for cell in &contention.cells {
        let races: Vec<_> = (0..300)
            .map(|number| model::race(cell.kind, cell.clients, number))
            .collect();
        let calls: Vec<_> = races.iter().map(|race| race.0).collect();
        let times: Vec<_> = races.iter().map(|race| race.1).collect();
        for (mean, margin, model) in [
            (cell.calls.mean, cell.calls.margin, &calls),
            (cell.time_ms.mean, cell.time_ms.margin, &times),
        ] {
            let (expected, error) = model::mean(model);
            let own = margin / 1.96;
            let most = 4.0 * (own * own + error * error).sqrt();
            let (kind, clients) = (cell.kind.name(), cell.clients);
            println!("{kind} {clients}: {mean} and {expected} ± {most}");
            assert!((mean - expected).abs() <= most, "{kind} {clients}");
        }
    }
}

/// Races of few clients are run each time, the whole figure in long runs.
#[test]
fn races_of_few_clients_are_those_that_are_checked_in() {
    let drawn = draw("contention --clients 60 --over-time 60");
    for name in ["contention", "contention_intervals", "contention_other"] {
        let name = format!("{name}.csv");
        let read = |folder: &Path| fs::read_to_string(folder.join(&name)).expect("a table");
        let (again, all) = (read(drawn.path()), read(&checked_in()));
        let all: HashSet<_> = all.lines().collect();
        // A header; and one, two, five, and six tens of clients with each kind of delays.
        assert_eq!(again.lines().count(), 1 + 9 * BackoffKind::ALL.len());
        for line in again.lines() {
            assert!(all.contains(line), "{name}: {line}");
        }
    }
}

#[test]
fn exponents_of_power_laws_are_found() {
    let points: Vec<_> = [10.0, 50.0, 70.0, 200.0]
        .map(|x: f64| (x, 3.0 * x * x))
        .into();
    let fit = Exponent::fit(&points).expect("several points");
    assert!((fit.exponent - 2.0).abs() < 1e-12 && (fit.factor - 3.0).abs() < 1e-9);
    assert!((fit.r_squared - 1.0).abs() < 1e-12);
    assert_eq!(Exponent::fit(&[(10.0, 1.0), (10.0, 2.0)]), None);
}

#[test]
fn settings_out_of_range_are_errors() {
    for (wrong, part) in [
        (contenders(&[0]), "at least 1"),
        (
            Contenders {
                trials: 1,
                ..contenders(&[1])
            },
            "at least 2",
        ),
        (
            Contenders {
                delay: Duration::ZERO,
                deviation: Duration::ZERO,
                ..contenders(&[1])
            },
            "never collide",
        ),
        (
            Contenders {
                cap: Duration::MAX,
                ..contenders(&[1])
            },
            "at most 3600 s",
        ),
    ] {
        assert!(simulate(&wrong, |_| {}).is_err_and(|error| error.contains(part)));
    }
}

/// The program draws the figure, and names wrong flags.
#[test]
fn the_figure_is_drawn_from_its_flags() {
    let words = "contention --clients 20 --trials 5 --over-time 4 --seed 3";
    let (first, second) = (draw(words), draw(words));
    assert!(first.files() == second.files());
    let rows = first.table("contention.csv");
    assert_eq!(
        rows.columns,
        ["kind", "clients", "calls_mean", "time_ms_mean"]
    );
    // Clients 1, 2, 5, 10 and 20, for five kinds.
    assert_eq!(rows.rows().count(), 25);
    for row in rows.rows() {
        assert!(row.number("calls_mean") >= row.number("clients"));
    }
    for (words, part) in [
        ("contention --trials 1", "--trials <N>"),
        ("contention --clients 0", "--clients <N>"),
        (
            "contention --clients 1000 --trials 10000",
            "fewer clients or trials",
        ),
        ("contention --delay 10", "--delay <TIME>"),
        ("contention --cap 2h", "at most 3600 s"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let output = run(words, folder.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.lines().count() == 1,
            "{errors}"
        );
        assert!(errors.contains(part), "{errors}");
        assert!(files(folder.path()).is_empty());
    }
}

/// The slow model: time in milliseconds as floats, the next event by a look at all clients, and
/// random numbers of its own.
mod model {
    use super::BackoffKind;

    struct Random(u64);

    impl Random {
        /// Xorshift, with the upper bits only.
        fn fraction(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 12) as f64 / (1_u64 << 52) as f64
        }

        /// The polar method of Marsaglia.
        fn normal(&mut self) -> f64 {
            loop {
                let (x, y) = (2.0 * self.fraction() - 1.0, 2.0 * self.fraction() - 1.0);
                let square = x * x + y * y;
                if square > 0.0 && square < 1.0 {
                    return x * (-2.0 * square.ln() / square).sqrt();
                }
            }
        }

        fn way(&mut self) -> f64 {
            (10.0 + 2.0 * self.normal()).abs()
        }
    }

    struct Client {
        at: f64,
        /// 0: the read arrives; 1: the write arrives.
        step: u8,
        read: u32,
        failures: i32,
        last_delay: f64,
    }

    /// Returns the number of calls, and the time in milliseconds.
    pub(super) fn race(kind: BackoffKind, clients: usize, number: u64) -> (f64, f64) {
        let mut random = Random(0x9e37_79b9 + 7919 * number + clients as u64);
        for _ in 0..20 {
            random.fraction();
        }
        let client = |random: &mut Random| Client {
            at: random.way(),
            step: 0,
            read: 0,
            failures: 0,
            last_delay: 5.0,
        };
        let mut waiting: Vec<_> = (0..clients).map(|_| client(&mut random)).collect();
        let (mut version, mut calls, mut finished) = (0, 0.0, 0.0_f64);
        while !waiting.is_empty() {
            let first = |a: &usize, b: &usize| waiting[*a].at.total_cmp(&waiting[*b].at);
            let index = (0..waiting.len()).min_by(first).expect("a client");
            let client = &mut waiting[index];
            if client.step == 0 {
                client.read = version;
                client.step = 1;
                client.at += random.way() + random.way();
                continue;
            }
            calls += 1.0;
            if client.read == version {
                version += 1;
                finished = finished.max(client.at + random.way());
                waiting.swap_remove(index);
                continue;
            }
            client.failures += 1;
            client.step = 0;
            let longest = (5.0 * 2_f64.powi(client.failures)).min(2000.0);
            let delay = match kind {
                BackoffKind::None => 0.0,
                BackoffKind::Exponential => longest,
                BackoffKind::Full => longest * random.fraction(),
                BackoffKind::Equal => longest / 2.0 * (1.0 + random.fraction()),
                BackoffKind::Decorrelated => {
                    let above = 3.0 * client.last_delay - 5.0;
                    client.last_delay = (5.0 + above * random.fraction()).min(2000.0);
                    client.last_delay
                }
            };
            client.at += random.way() + delay + random.way();
        }
        (calls, finished)
    }

    /// Returns the mean and its standard error.
    pub(super) fn mean(numbers: &[f64]) -> (f64, f64) {
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let squares: f64 = numbers.iter().map(|x| (x - mean).powi(2)).sum();
        (mean, (squares / (count - 1.0) / count).sqrt())
    }
}

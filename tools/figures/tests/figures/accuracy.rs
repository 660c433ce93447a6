//! The figure `accuracy` against slow models.

use crate::{
    drawn::{Drawn, Table, draw, within_a_percent},
    slow::{Kind, Limit, Limiter, float, most_in_window, whole},
};

const LIMIT: Limit = Limit {
    amount: 100,
    window: 60_000,
};

const KINDS: [(&str, Kind); 7] = [
    ("perfect", Kind::Perfect),
    ("fixed", Kind::Fixed),
    ("weighted_1+1", Kind::Weighted(1)),
    ("weighted_2+1", Kind::Weighted(2)),
    ("weighted_4+1", Kind::Weighted(4)),
    ("weighted_12+1", Kind::Weighted(12)),
    ("weighted_60+1", Kind::Weighted(60)),
];

const TRAFFICS: [(&str, &str); 3] = [
    ("poisson", "accuracy.csv"),
    ("modulated", "accuracy_modulated.csv"),
    ("bursty", "accuracy_bursty.csv"),
];

fn calls(table: &Table) -> Vec<u64> {
    table.rows().map(|row| row.number("t_ms") as u64).collect()
}

/// Returns the estimates of a kind right after each call.
fn estimates(kind: Kind, calls: &[u64]) -> Vec<f64> {
    let mut limiter = Limiter::new(LIMIT, kind);
    let estimate = |call: &u64| {
        limiter.add(*call);
        float(&limiter.count(*call))
    };
    calls.iter().map(estimate).collect()
}

#[test]
fn estimates_are_those_of_the_slow_model() {
    let drawn = draw("accuracy --windows 40 --seed 3");
    for (_, file) in TRAFFICS {
        let table = drawn.table(file);
        let columns = ["t_ms"].into_iter().chain(KINDS.map(|(name, _)| name));
        assert!(columns.eq(table.columns.iter().map(String::as_str)));
        let calls = calls(&table);
        for (name, kind) in KINDS {
            for (row, estimate) in table.rows().zip(estimates(kind, &calls)) {
                // Rounded up to thousandths.
                let difference = row.number(name) - estimate;
                assert!((-1e-9..0.001).contains(&difference), "{name}: {difference}");
            }
        }
    }
}

#[test]
fn the_summary_is_that_of_the_slow_model() {
    let drawn = draw("accuracy --windows 40 --seed 4");
    let summary = drawn.table("accuracy_summary.csv");
    for (traffic, file) in TRAFFICS {
        let calls = calls(&drawn.table(file));
        let perfect = estimates(Kind::Perfect, &calls);
        for (name, kind) in KINDS {
            let row = summary
                .rows()
                .find(|row| (row.text("traffic"), row.text("estimator")) == (traffic, name));
            let row = row.expect("a row");
            let check = |column, model| {
                within_a_percent(
                    row.number(column),
                    model,
                    &format!("{traffic} {name} {column}"),
                );
            };
            let estimates = estimates(kind, &calls);
            let pairs = || perfect.iter().zip(&estimates);
            let count = calls.len() as f64;
            let errors = pairs().map(|(perfect, estimate)| (estimate - perfect) / perfect);
            check("calls", count);
            let mean = errors.clone().map(f64::abs).sum::<f64>() / count;
            check("mean_absolute_relative_error", mean);
            // A mean of errors that nearly cancel each other is as exact as the errors are.
            let bias = errors.sum::<f64>() / count;
            assert!((row.number("bias") - bias).abs() <= 0.01 * mean + 1e-6);
            let over = |count: &f64| *count > 100.0;
            let number = |filter: &dyn Fn(&f64, &f64) -> bool| {
                pairs()
                    .filter(|(perfect, estimate)| filter(perfect, estimate))
                    .count() as f64
            };
            let all_over = number(&|perfect, _| over(perfect));
            check("over_limit_calls", all_over);
            check("under_limit_calls", count - all_over);
            let share = |column, part: f64, of: f64| {
                if of > 0.0 {
                    assert!((row.number(column) - part / of).abs() <= 1e-6, "{column}");
                }
            };
            let through = number(&|perfect, estimate| over(perfect) && !over(estimate));
            share("over_limit_let_through", through, all_over);
            let refused = number(&|perfect, estimate| !over(perfect) && over(estimate));
            share("under_limit_refused", refused, count - all_over);
        }
    }
}

#[test]
fn closed_loops_are_those_of_the_slow_model() {
    let drawn = draw("accuracy --windows 40 --seed 5");
    let summary = drawn.table("accuracy_summary.csv");
    let kinds = KINDS.into_iter().chain([("token_bucket", Kind::Tokens)]);
    for (name, kind) in kinds {
        for (traffic, file) in TRAFFICS {
            let row = summary
                .rows()
                .find(|row| (row.text("traffic"), row.text("estimator")) == (traffic, name));
            let row = row.expect("a row");
            let calls = calls(&drawn.table(file));
            let mut limiter = Limiter::new(LIMIT, kind);
            let mut exact = Limiter::new(LIMIT, Kind::Perfect);
            let (mut wrongly_admitted, mut wrongly_refused) = (0, 0);
            for call in &calls {
                let fits = exact.count(*call) < whole(LIMIT.amount);
                if limiter.admits(*call) {
                    exact.add(*call);
                    wrongly_admitted += u64::from(!fits);
                } else {
                    wrongly_refused += u64::from(fits);
                }
            }
            let is = |column, model: f64| {
                assert!(
                    (row.number(column) - model).abs() <= 1e-6,
                    "{traffic} {name} {column}"
                )
            };
            is("closed_loop_admitted", limiter.calls().len() as f64);
            is(
                "closed_loop_most_in_window",
                limiter.most_in_window() as f64,
            );
            let share = |part: u64| part as f64 / calls.len() as f64;
            is("closed_loop_wrongly_admitted", share(wrongly_admitted));
            is("closed_loop_wrongly_refused", share(wrongly_refused));
        }
    }
}

#[test]
fn a_greedy_client_gets_what_it_gets_from_the_slow_model() {
    /// Microseconds in a window.
    const WINDOW: u64 = 60_000_000;
    let limit = Limit {
        amount: 100,
        window: WINDOW,
    };
    let table = draw("accuracy --windows 1").table("accuracy_greedy.csv");
    let kinds = KINDS.into_iter().chain([("token_bucket", Kind::Tokens)]);
    for ((name, kind), row) in kinds.zip(table.rows()) {
        assert_eq!(row.text("estimator"), name);
        // The client begins up to a microsecond earlier, and calls every 5 ms instead of as soon as
        // it may.
        let begin = (row.number("begins_at_ms") * 1000.0) as u64;
        let mut limiter = Limiter::new(limit, kind);
        let mut now = begin;
        while now < begin + 3 * WINDOW {
            if !limiter.admits(now) {
                now += 5_000;
            }
        }
        let model = most_in_window(limiter.calls(), WINDOW);
        within_a_percent(row.number("most_in_window"), model as f64, name);
    }
}

#[test]
fn random_calls_are_as_many_as_described() {
    let rate = |drawn: &Drawn, file| calls(&drawn.table(file)).len() as f64 / 300.0;
    for seed in [1, 7] {
        let drawn = draw(&format!("accuracy --seed {seed}"));
        // Means of 300 windows. Poisson: a standard deviation of 10 / √300.
        assert!((rate(&drawn, "accuracy.csv") - 100.0).abs() < 4.0);
        // The rate has a standard deviation of 46 in about 720 pieces.
        assert!((rate(&drawn, "accuracy_modulated.csv") - 100.0).abs() < 10.0);
        // 60, and 40 for each 45 s.
        assert!((rate(&drawn, "accuracy_bursty.csv") - 113.3).abs() < 6.0);
    }
}

#[test]
fn recorded_calls_are_sorted_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("calls.json");
    std::fs::write(&file, "[60000, 0, 30000, 59999, 90000]").expect("a file");
    let table = draw(&format!("accuracy --arrivals {}", file.display())).table("accuracy.csv");
    let rows: Vec<_> = ["t_ms", "perfect", "fixed", "weighted_1+1", "weighted_2+1"]
        .into_iter()
        .map(|column| {
            table
                .rows()
                .map(|row| row.number(column))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(rows[0], [0.0, 30_000.0, 59_999.0, 60_000.0, 90_000.0]);
    // The call at 0 has just left the window at 60 s, and that at 30 s at 90 s.
    assert_eq!(rows[1], [1.0, 2.0, 3.0, 3.0, 3.0]);
    assert_eq!(rows[2], [1.0, 2.0, 3.0, 1.0, 2.0]);
    assert_eq!(rows[3], [1.0, 2.0, 3.0, 4.0, 3.5]);
    assert_eq!(rows[4], [1.0, 2.0, 3.0, 4.0, 4.0]);
}

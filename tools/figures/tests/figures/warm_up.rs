//! The figure `warm-up` against slow models, from the formulas of Sentinel and Guava.

use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive};

use crate::{
    drawn::{draw, within_a_percent},
    slow::{float, fraction, whole},
};

/// 200/s over 10 s, with a cold factor of 3.
const COUNT: u64 = 200;
const THRESHOLD: u64 = 1000;
const MOST: u64 = 2000;
const OVER: u64 = 10;

/// The slope of the interval between calls above the threshold: (3/200 − 1/200) / (2000 − 1000).
fn slope() -> BigRational {
    fraction(2, COUNT * (MOST - THRESHOLD))
}

/// Returns the rate at a number of stored tokens.
fn rate(stored: &BigRational) -> BigRational {
    let above = stored - whole(THRESHOLD);
    if above.is_positive() {
        (slope() * above + fraction(1, COUNT)).recip()
    } else {
        whole(COUNT)
    }
}

/// Sentinel's form: whole seconds.
struct BySecond {
    stored: BigRational,
    passed: u64,
}

impl BySecond {
    /// Returns a cold key, before its first second.
    fn new() -> Self {
        Self {
            stored: whole(MOST),
            passed: 0,
        }
    }

    /// Begins a second, in which calls pass under full load, or do not come.
    fn second(&mut self, is_loaded: bool) {
        let makes = self.stored <= whole(THRESHOLD) || self.passed < COUNT / 3;
        let made = if makes { COUNT } else { 0 };
        let stored = (&self.stored + whole(made)).min(whole(MOST));
        self.stored = stored - whole(self.passed);
        let rate = rate(&self.stored).floor().to_integer();
        self.passed = if is_loaded {
            rate.to_u64().expect("a small number")
        } else {
            0
        };
    }
}

/// Guava's form: each call costs the area under the curve, and the next one departs behind that.
struct Spaced {
    stored: BigRational,
    next: BigRational,
}

impl Spaced {
    fn new() -> Self {
        Self {
            stored: whole(MOST),
            next: whole(0),
        }
    }

    /// Returns how many calls depart in a second under full load.
    fn second(&mut self, second: u64) -> u64 {
        if self.next < whole(second) {
            let cooled = (whole(second) - &self.next) * fraction(MOST, OVER);
            self.stored = (&self.stored + cooled).min(whole(MOST));
            self.next = whole(second);
        }
        let mut departed = 0;
        while self.next < whole(second + 1) {
            let to = (&self.stored - whole(1)).max(whole(0));
            let above = |stored: &BigRational| (stored - whole(THRESHOLD)).max(whole(0));
            let (high, low) = (above(&self.stored), above(&to));
            let area = slope() * (&high * &high - &low * &low) * fraction(1, 2);
            self.next = &self.next + fraction(1, COUNT) + area;
            self.stored = to;
            departed += 1;
        }
        departed
    }
}

#[test]
fn full_load_is_that_of_the_slow_model() {
    let (mut by_second, mut spaced) = (BySecond::new(), Spaced::new());
    let table = draw("warm-up").table("warmup.csv");
    assert_eq!(
        table.columns,
        [
            "second",
            "passed",
            "stored",
            "threshold_rate",
            "continuous_rate"
        ]
    );
    assert_eq!(table.rows().count(), 20);
    for (second, row) in (0..).zip(table.rows()) {
        by_second.second(true);
        let check = |column, model| {
            within_a_percent(
                row.number(column),
                model,
                &format!("second {second} {column}"),
            );
        };
        check("second", second as f64);
        check("passed", by_second.passed as f64);
        check("stored", float(&by_second.stored));
        check("threshold_rate", float(&rate(&by_second.stored)));
        check("continuous_rate", spaced.second(second) as f64);
    }
}

#[test]
fn pauses_are_those_of_the_slow_model() {
    const WARM: u64 = 44;
    let table = draw("warm-up").table("warmup_pause.csv");
    assert_eq!(table.rows().count(), 10);
    for (pause, row) in (1..).zip(table.rows()) {
        let (mut by_second, mut spaced) = (BySecond::new(), Spaced::new());
        for second in 0..WARM {
            by_second.second(true);
            spaced.second(second);
        }
        for _ in 0..pause {
            by_second.second(false);
        }
        by_second.second(true);
        let check = |column, model| {
            within_a_percent(
                row.number(column),
                model,
                &format!("pause {pause} {column}"),
            );
        };
        check("pause_s", pause as f64);
        check("stored", float(&by_second.stored));
        check("threshold_rate", float(&rate(&by_second.stored)));
        check("passed_first_second", by_second.passed as f64);
        let mut seconds = 0;
        while by_second.passed < COUNT {
            by_second.second(true);
            seconds += 1;
            assert!(seconds < WARM, "it never warms");
        }
        check("full_rate_after_s", seconds as f64);
        check(
            "continuous_first_second",
            spaced.second(WARM + pause) as f64,
        );
    }
}

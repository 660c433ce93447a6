//! A million draws of each kind (in a quick run fewer), compared with the formulas.

use super::{KINDS, Kind, Setting, nanos};

/// The number of clients, each with a seed of its own: usually a hundred thousand.
fn clients() -> u64 {
    support::cases(100_000).max(20_000)
}

const ATTEMPTS: usize = 10;

/// Returns the ten delays of each client. Each is within the range of the article.
fn draw(kind: &Kind, setting: Setting) -> impl Iterator<Item = Vec<u64>> {
    let Setting { base, cap } = setting;
    (0..clients()).map(move |seed| {
        let delays = setting.backoff(kind).seed(seed).delays();
        let delays: Vec<_> = nanos(delays).take(ATTEMPTS).collect();
        let mut previous = base;
        for (attempt, delay) in (0..).zip(&delays) {
            let (least, most) = (kind.range)(setting, attempt, previous);
            assert!((least.min(cap)..=most.min(cap)).contains(delay));
            previous = *delay;
        }
        delays
    })
}

/// With so few nanoseconds, each value has an exact probability, computed by enumerating all
/// sequences.
#[test]
fn each_nanosecond_comes_as_often_as_the_formulas_say() {
    let setting = Setting { base: 3, cap: 41 };
    let width = setting.cap as usize + 1;
    for kind in &KINDS {
        let mut seen = vec![vec![0_u64; width]; ATTEMPTS];
        for delays in draw(kind, setting) {
            for (seen, delay) in seen.iter_mut().zip(delays) {
                seen[delay as usize] += 1;
            }
        }
        let mut before = vec![0.0; width];
        before[setting.base as usize] = 1.0;
        for (attempt, seen) in (0..).zip(&seen) {
            let mut now = vec![0.0; width];
            for (previous, weight) in before.iter().enumerate() {
                // Impossible previous delays contribute nothing.
                if *weight == 0.0 {
                    continue;
                }
                let (least, most) = (kind.range)(setting, attempt, previous as u64);
                for drawn in least..=most {
                    let delay = drawn.min(setting.cap) as usize;
                    now[delay] += weight / (most - least + 1) as f64;
                }
            }
            for (delay, (seen, share)) in seen.iter().zip(&now).enumerate() {
                let clients = clients() as f64;
                let (mean, variance) = (clients * share, clients * share * (1.0 - share));
                let off = (*seen as f64 - mean).abs();
                assert!(
                    off <= 6.0 * variance.sqrt() + 1e-6,
                    "attempt {attempt}: {delay} ns came {seen} times, not {mean}"
                );
            }
            before = now;
        }
    }
}

/// With milliseconds and more: the mean and variance of each attempt are within six standard
/// deviations of the closed form.
#[test]
fn means_are_those_of_the_formulas() {
    let milli = 1_000_000;
    let settings = [
        // Capped from the seventh attempt on, at a value that is no power of two.
        (0..3, 100 * milli),
        // The decorrelated kind does not reach its cap in ten attempts.
        (3..4, 60_000 * milli),
    ];
    for (kinds, cap) in settings {
        for kind in &KINDS[kinds] {
            check_means(kind, Setting { base: milli, cap });
        }
    }
}

fn check_means(kind: &Kind, setting: Setting) {
    let mut sums = [0_u128; ATTEMPTS];
    for delays in draw(kind, setting) {
        for (sum, delay) in sums.iter_mut().zip(delays) {
            *sum += u128::from(delay);
        }
    }
    let base = setting.base as f64;
    // The mean of a delay, and the mean of its square.
    let (mut mean, mut square) = (base, base * base);
    for (attempt, sum) in (0..).zip(sums) {
        let (least, most) = (kind.range)(setting, attempt, 0);
        (mean, square) = if most < least {
            // Uniform from the base to three times the previous delay, which is itself random.
            let variance =
                (9.0 * square - 6.0 * (base - 1.0) * mean + (base - 1.0).powi(2) - 1.0) / 12.0;
            let middle = (base * base + 6.0 * base * mean + 9.0 * square) / 4.0;
            ((base + 3.0 * mean) / 2.0, variance + middle)
        } else {
            let (middle, count) = ((least + most) as f64 / 2.0, (most - least + 1) as f64);
            (middle, (count * count - 1.0) / 12.0 + middle * middle)
        };
        let clients = clients() as f64;
        let found = sum as f64 / clients;
        let deviation = ((square - mean * mean).max(0.0) / clients).sqrt();
        assert!(
            (found - mean).abs() <= 6.0 * deviation + 1e-3,
            "attempt {attempt}: a mean of {found} ns, not {mean} ± {deviation}"
        );
    }
}

//! Fractions of big integers, and the interval between two tokens as rounded in the documentation
//! of `TokenBucket`, in the slow obvious way.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::ToPrimitive;

pub fn ratio(numerator: impl Into<BigInt>, denominator: impl Into<BigInt>) -> BigRational {
    BigRational::new(numerator.into(), denominator.into())
}

/// The units of a token bucket.
#[derive(Debug)]
pub struct Rate {
    /// The time between two tokens, in nanoseconds.
    pub interval: BigRational,
    /// The smallest step of a level, in nanoseconds.
    pub unit: BigRational,
}

pub fn whole(number: impl Into<BigInt>) -> BigRational {
    BigRational::from_integer(number.into())
}

/// Returns `true` if the numbers of a script that counts in units of `unit` ticks stay below 2^53.
fn fits_script(ticks: &BigInt, unit: u64, most: u64) -> bool {
    let full: BigInt = ticks / unit * most;
    full + 3000 / unit < BigInt::from(1_u64 << 53)
}

/// Returns the rate of a bucket of `most` tokens, at `amount` in `period` nanoseconds.
pub fn rate(amount: u64, period: u64, most: u64) -> Rate {
    let exact = BigRational::new(period.into(), amount.into());
    let tick = BigRational::new(1.into(), 3.into());
    let in_units = |unit: &BigRational| (&exact / unit).floor().to_integer();
    let rounded = |unit: BigRational, step: BigInt| {
        let steps = in_units(&(&unit * whole(step.clone())));
        let interval = whole(steps * step) * &unit;
        Rate { interval, unit }
    };
    let ticks = &exact / &tick;
    if ticks.is_integer() {
        return rounded(tick, 1.into());
    }
    if ticks < whole(100) {
        let parts = |bits: &u32| &tick / whole(1_u64 << bits);
        let bits = (1..=14).find(|bits| in_units(&parts(bits)) >= BigInt::from(4096));
        return rounded(parts(&bits.unwrap_or(14)), 1.into());
    }
    let floor = in_units(&tick);
    let common = num_integer::gcd(floor.clone(), BigInt::from(3000));
    let mut step = 1;
    if !fits_script(&floor, common.to_u64().unwrap(), most) {
        let fits = |step: &u64| {
            let ticks = in_units(&(&tick * whole(*step))) * *step;
            ticks > BigInt::from(0) && fits_script(&ticks, *step, most)
        };
        let mut divisors = (1..=3000).filter(|step| 3000 % step == 0);
        step = divisors.find(fits).unwrap_or(1);
    }
    rounded(tick, step.into())
}

/// Returns `true` if such a bucket can be built: it fills within 2^95 ns.
pub fn can_be(amount: u64, period: u64, most: u64) -> bool {
    u128::from(most) * u128::from(period) / u128::from(amount) < (1 << 95) - 1
}

/// Returns `true` if levels of such a bucket are kept exactly: it fills within a million years, or
/// in whole nanoseconds.
pub fn is_exact(amount: u64, period: u64, most: u64) -> bool {
    const YEAR: u128 = 365 * 86_400_000_000_000;
    let fills = u128::from(most) * u128::from(period) / u128::from(amount);
    can_be(amount, period, most) && (period.is_multiple_of(amount) || fills < 1_000_000 * YEAR)
}

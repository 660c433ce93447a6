//! Fractions of big integers, and the interval between two tokens as rounded in the documentation
//! of `TokenBucket`, in the slow obvious way.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::ToPrimitive;

pub fn ratio(numerator: impl Into<BigInt>, denominator: impl Into<BigInt>) -> BigRational {
    BigRational::new(numerator.into(), denominator.into())
}

const DAY: u64 = 86_400_000_000_000;
/// The longest time in which a bucket fills, in nanoseconds.
pub const LONGEST: u64 = 24 * 365 * DAY;
/// The highest rate of a bucket, in tokens per second.
pub const FASTEST: u64 = 30_000_000;

pub fn whole(number: impl Into<BigInt>) -> BigRational {
    BigRational::from_integer(number.into())
}

/// Returns `true` if the numbers of a script that counts in units of `unit` ticks stay below 2^53.
fn fits_script(ticks: &BigInt, unit: u64, most: u64) -> bool {
    let full: BigInt = ticks / unit * most;
    full + 3000 / unit < BigInt::from(1_u64 << 53)
}

/// Returns the time between two tokens of a bucket of `most`, in nanoseconds.
pub fn interval(amount: u64, period: u64, most: u64) -> BigRational {
    let exact = BigRational::new(period.into(), amount.into());
    let tick = BigRational::new(1.into(), 3.into());
    let in_units = |unit: &BigRational| (&exact / unit).floor().to_integer();
    let rounded = |step: u64| whole(in_units(&(&tick * whole(step))) * step) * &tick;
    let floor = in_units(&tick);
    let common = num_integer::gcd(floor.clone(), BigInt::from(3000));
    let is_whole = (&exact / &tick).is_integer();
    if is_whole || fits_script(&floor, common.to_u64().unwrap(), most) {
        return rounded(1);
    }
    let fits = |step: &u64| {
        let ticks = in_units(&(&tick * whole(*step))) * *step;
        ticks > BigInt::from(0) && fits_script(&ticks, *step, most)
    };
    let mut divisors = (1..=3000).filter(|step| 3000 % step == 0);
    rounded(divisors.find(fits).unwrap_or(1))
}

/// Returns `true` if such a bucket can be built, by way of one that holds the quota's amount.
pub fn can_be(amount: u64, period: u64, most: u64) -> bool {
    let fills = |tokens: u64| u128::from(tokens) * u128::from(period) / u128::from(amount);
    let is_slow = u128::from(amount) * 1_000_000_000 <= u128::from(FASTEST) * u128::from(period);
    is_slow && fills(most.max(amount)) <= u128::from(LONGEST)
}

/// As [`can_be`], of a queue with room for `queue` units.
pub fn can_be_queue(amount: u64, period: u64, queue: u64) -> bool {
    can_be(amount, period, queue.max(amount) + 1)
}

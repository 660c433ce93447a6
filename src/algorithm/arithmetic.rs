//! Divisors, quotients, and products that are wider than a word.

/// Returns the greatest common divisor.
pub(super) const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Returns `numerator / divisor`, rounded up. Most calls have numbers of one word or a divisor
/// of 1.
#[inline]
pub(super) fn div_ceil(numerator: u128, divisor: u64) -> u128 {
    if divisor == 1 {
        return numerator;
    }
    match u64::try_from(numerator) {
        Ok(numerator) => u128::from(numerator.div_ceil(divisor)),
        Err(_) => numerator.div_ceil(u128::from(divisor)),
    }
}

/// Returns `numerator / divisor`, rounded down.
#[inline]
pub(super) fn div_floor(numerator: u128, divisor: u64) -> u128 {
    match u64::try_from(numerator) {
        Ok(numerator) => u128::from(numerator / divisor),
        Err(_) => numerator / u128::from(divisor),
    }
}

/// Returns `x · y / z` rounded down, and `true` if it was rounded; for `z` < 2¹²⁶ and a quotient
/// that fits.
#[inline]
pub(super) fn mul_div(x: u128, y: u128, z: u128) -> (u128, bool) {
    match x.checked_mul(y) {
        Some(product) => {
            let quotient = match (u64::try_from(product), u64::try_from(z)) {
                (Ok(product), Ok(z)) => u128::from(product / z),
                _ => product / z,
            };
            (quotient, quotient * z != product)
        }
        None => mul_div_wide(x, y, z),
    }
}

/// Computes [`mul_div`] for a product above 128 bits. If the product fits after a division by the
/// powers of two in `z`, that is fast; a time in ticks has many of them.
fn mul_div_wide(x: u128, y: u128, z: u128) -> (u128, bool) {
    let (high, low) = mul_wide(x, y);
    let zeros = z.trailing_zeros();
    if zeros == 0 || high >> zeros != 0 {
        return mul_div_by_bits(x, y, z);
    }
    let (divisor, rest) = (z >> zeros, u128::BITS - zeros);
    let product = high << rest | low >> zeros;
    let quotient = product / divisor;
    (quotient, quotient * divisor != product || low << rest != 0)
}

/// Returns the upper and the lower half of `x · y`.
fn mul_wide(x: u128, y: u128) -> (u128, u128) {
    let halves = |number: u128| (number >> 64, u128::from(number as u64));
    let ((x1, x0), (y1, y0)) = (halves(x), halves(y));
    let (carry, lowest) = halves(x0 * y0);
    // At most (2^64 - 1)^2 + 2^64 - 1 each.
    let (upper, middle) = halves(x1 * y0 + carry);
    let (carry, middle) = halves(x0 * y1 + middle);
    (x1 * y1 + upper + carry, middle << 64 | lowest)
}

/// Computes [`mul_div`] for any numbers: bit by bit of `x`, as in long division.
#[cold]
fn mul_div_by_bits(x: u128, y: u128, z: u128) -> (u128, bool) {
    let (whole, part) = (y / z, y % z);
    let (mut quotient, mut rest) = (0, 0);
    for bit in (0..u128::BITS - x.leading_zeros()).rev() {
        quotient <<= 1;
        // Both are below z, so that this is below 3 z.
        rest = 2 * rest + part * (x >> bit & 1);
        while rest >= z {
            rest -= z;
            quotient += 1;
        }
    }
    (quotient + x * whole, rest != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn wide_products_are_divided_as_narrow_ones_are(x in 0..1_u128 << 63, y in 0..1_u128 << 64, z in 1..1_u128 << 126) {
            prop_assert_eq!(mul_div_by_bits(x, y, z), (x * y / z, x * y % z != 0));
        }

        #[test]
        fn wide_products_are_divided_by_powers_of_two_at_once(
            x in 0..=u128::MAX, y in 0..=u128::MAX, less in 0..128, z in 1..1_u128 << 126, zeros in 0..126,
        ) {
            let (y, z) = (y >> less, (z << zeros) % (1_u128 << 126));
            prop_assume!(z > 0);
            // Whose quotient fits.
            prop_assume!(y <= z);
            prop_assert_eq!(mul_div_wide(x, y, z), mul_div_by_bits(x, y, z));
        }

        #[test]
        fn a_product_has_two_halves(x in 0..=u128::MAX, y in 0..=u128::MAX) {
            let big = |number: u128| num_bigint::BigUint::from(number);
            let (high, low) = mul_wide(x, y);
            prop_assert_eq!((big(high) << 128_u32) + big(low), big(x) * big(y));
        }

        #[test]
        fn a_wide_product_divided_by_a_factor_is_the_other(x in 1..=u128::MAX, z in 1..1_u128 << 126) {
            prop_assert_eq!(mul_div(x, z, z), (x, false));
            prop_assert_eq!(mul_div(z, x, z), (x, false));
        }
    }
}

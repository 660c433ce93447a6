//! The text of a duration, as in `90s`: a whole number of one unit.

use std::{fmt, time::Duration};

/// Units and their lengths in nanoseconds, the largest first.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// The reason why a text is not a duration.
pub(crate) enum DurationProblem {
    /// The duration is above 2⁶⁴ − 1 ns.
    Number,
    /// The unit at this byte is unknown.
    Unit(usize),
}

/// Parses digits only: `u64::from_str` would also accept a plus sign.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// Parses `90s`, `1m` or `ms` (one millisecond) into nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Result<u64, DurationProblem> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number = if number.is_empty() {
        1
    } else {
        parse_number(number).ok_or(DurationProblem::Number)?
    };
    let (_, nanos) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or(DurationProblem::Unit(digits))?;
    number.checked_mul(*nanos).ok_or(DurationProblem::Number)
}

/// Displays a duration as rules write it: exactly, in the largest unit that divides it.
pub(crate) struct Written(pub(crate) Duration);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u64::try_from(self.0.as_nanos()) {
            Ok(nanos) => fmt_duration(nanos, f),
            // Longer than any rule can be.
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}

/// Writes nanoseconds in the largest unit that divides them.
pub(crate) fn fmt_duration(nanos: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if nanos == 0 {
        return f.write_str("0s");
    }
    let (unit, length) = UNITS
        .iter()
        .find(|(_, length)| nanos.is_multiple_of(*length))
        .unwrap_or(&("ns", 1));
    write!(f, "{}{unit}", nanos / length)
}

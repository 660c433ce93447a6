//! Formats numbers for people.

use std::fmt;

/// A number with a comma for each thousand.
pub struct Grouped(pub u128);

/// Nanoseconds in suitable units, rounded up, so that a wait is never shown too short.
pub struct Span(pub u128);

/// A part of a whole in per cent, with one decimal.
pub struct Share(pub u64, pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
        for (index, digit) in digits.char_indices() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MICRO: u128 = 1_000;
        const MILLI: u128 = 1_000 * MICRO;
        const SECOND: u128 = 1_000 * MILLI;
        const MINUTE: u128 = 60 * SECOND;
        const HOUR: u128 = 60 * MINUTE;
        const DAY: u128 = 24 * HOUR;
        let nanos = self.0;
        // Values in one unit with a decimal, and values in two units.
        let tenths = |unit: u128, name: &str| {
            let tenths = nanos.div_ceil(unit / 10);
            match tenths % 10 {
                0 => format!("{} {name}", tenths / 10),
                tenth => format!("{}.{tenth} {name}", tenths / 10),
            }
        };
        let two = |unit: u128, name: &str, part: u128, part_name: &str| {
            let parts = nanos.div_ceil(part);
            let (whole, rest) = (parts / (unit / part), parts % (unit / part));
            match rest {
                0 => format!("{} {name}", Grouped(whole)),
                _ => format!("{} {name} {rest:02} {part_name}", Grouped(whole)),
            }
        };
        // A value that would round up to the next unit is shown in that unit.
        let text = match nanos {
            0 => "0 s".to_owned(),
            1..MICRO => format!("{nanos} ns"),
            _ if nanos <= MILLI - MICRO / 10 => tenths(MICRO, "µs"),
            _ if nanos <= SECOND - MILLI / 10 => tenths(MILLI, "ms"),
            _ if nanos <= MINUTE - SECOND / 10 => tenths(SECOND, "s"),
            _ if nanos <= HOUR - SECOND => two(MINUTE, "min", SECOND, "s"),
            _ if nanos <= DAY - MINUTE => two(HOUR, "h", MINUTE, "min"),
            _ => two(DAY, "d", HOUR, "h"),
        };
        f.pad(&text)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (part, whole) = (u128::from(self.0), u128::from(self.1.max(1)));
        let tenths = (part * 2000 + whole) / (2 * whole);
        f.pad(&format!("{}.{} %", tenths / 10, tenths % 10))
    }
}

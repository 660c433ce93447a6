//! Waits as text for people.

use std::{fmt, time::Duration};

/// Displays a wait, as in `30 s`, `2 min 5 s` or `3 d 4 h`.
///
/// The wait is rounded up, so a client that obeys it never comes too early. It is in milliseconds below a second, in
/// seconds below 100 s, and in two units above.
pub(super) struct WaitText(pub(super) Duration);

impl fmt::Display for WaitText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In 128 bits: the longest wait, rounded up, exceeds 64.
        let millis = self.0.as_nanos().div_ceil(1_000_000);
        let seconds = millis.div_ceil(1000);
        let minutes = seconds.div_ceil(60);
        let (count, small, each, large) = match (millis, seconds, minutes) {
            (1..1000, ..) => return write!(f, "{millis} ms"),
            (_, ..100, _) => return write!(f, "{seconds} s"),
            (_, ..3600, _) => (seconds, "s", 60, "min"),
            (.., ..1440) => (minutes, "min", 60, "h"),
            _ => (minutes.div_ceil(60), "h", 24, "d"),
        };
        write!(f, "{} {large}", count / each)?;
        match count % each {
            0 => Ok(()),
            rest => write!(f, " {rest} {small}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waits_are_round() {
        for (nanos, text) in [
            (0, "0 s"),
            (1, "1 ms"),
            (1_500_000, "2 ms"),
            (999_000_000, "999 ms"),
            (999_000_001, "1 s"),
            (1_000_000_001, "2 s"),
            (29_999_028_483, "30 s"),
            (99_000_000_000, "99 s"),
            (99_000_000_001, "1 min 40 s"),
            (120_000_000_000, "2 min"),
            (3_599_000_000_001, "1 h"),
            (5_399_000_000_001, "1 h 30 min"),
            (86_340_000_000_001, "1 d"),
            (90_000_000_000_001, "1 d 2 h"),
        ] {
            assert_eq!(
                WaitText(Duration::from_nanos(nanos)).to_string(),
                text,
                "{nanos}"
            );
        }
        assert_eq!(WaitText(Duration::MAX).to_string(), "213503982334601 d 8 h");
    }

    proptest! {
        #[test]
        fn a_wait_is_never_rounded_down(nanos in prop_oneof![0..5_000_000_000_u64, 0..400_000_000_000_000_u64, any::<u64>()]) {
            let text = WaitText(Duration::from_nanos(nanos)).to_string();
            let words: Vec<_> = text.split(' ').collect();
            let parsed = words.chunks(2).map(|pair| {
                let unit: u128 = match pair[1] {
                    "ms" => 1_000_000,
                    "s" => 1_000_000_000,
                    "min" => 60_000_000_000,
                    "h" => 3_600_000_000_000,
                    _ => 86_400_000_000_000,
                };
                pair[0].parse::<u128>().unwrap() * unit
            });
            let (wait, nanos) = (parsed.sum::<u128>(), u128::from(nanos));
            prop_assert!(wait >= nanos, "{}", text);
            // By less than a millisecond, or than a part in ten; within a minute of an hour and an hour of a day.
            prop_assert!(wait - nanos < 1_000_000 || wait - nanos <= nanos.max(10_000_000_000) / 10, "{}", text);
        }
    }
}

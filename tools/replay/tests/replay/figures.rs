//! The numbers in the report.

use replay::numbers::{Grouped, Share, Span};

#[test]
fn spans_are_rounded_up_in_units_that_fit() {
    const SECOND: u128 = 1_000_000_000;
    for (nanos, text) in [
        (0, "0 s"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1_000, "1 µs"),
        (1_001, "1.1 µs"),
        (999_900, "999.9 µs"),
        (999_901, "1 ms"),
        (1_000_001, "1.1 ms"),
        (500_000_000, "500 ms"),
        (999_900_001, "1 s"),
        (SECOND, "1 s"),
        (SECOND + 1, "1.1 s"),
        (59_900_000_000, "59.9 s"),
        (59_900_000_001, "1 min"),
        (60 * SECOND + 1, "1 min 01 s"),
        (3_599 * SECOND, "59 min 59 s"),
        (3_599 * SECOND + 1, "1 h"),
        (3_600 * SECOND + 1, "1 h 01 min"),
        (86_340 * SECOND, "23 h 59 min"),
        (86_340 * SECOND + 1, "1 d"),
        (86_400 * SECOND + 1, "1 d 01 h"),
        (1_000 * 86_400 * SECOND, "1,000 d"),
    ] {
        assert_eq!(Span(nanos).to_string(), text, "{nanos}");
    }
    // Padded to the width of a column.
    assert_eq!(
        format!("{:>8}|{:<8}", Span(SECOND), Span(SECOND)),
        "     1 s|1 s     "
    );
    assert!(Span(u128::MAX).to_string().ends_with(" h"));
}

#[test]
fn thousands_are_separated() {
    for (number, text) in [
        (0, "0"),
        (999, "999"),
        (1_000, "1,000"),
        (12_345, "12,345"),
        (123_456, "123,456"),
        (1_234_567, "1,234,567"),
        (u128::from(u64::MAX), "18,446,744,073,709,551,615"),
    ] {
        assert_eq!(Grouped(number).to_string(), text);
    }
    assert_eq!(format!("{:>6}", Grouped(1_000)), " 1,000");
}

#[test]
fn shares_are_rounded_to_the_nearest() {
    for (part, whole, text) in [
        (0, 0, "0.0 %"),
        (0, 7, "0.0 %"),
        (7, 7, "100.0 %"),
        (1, 3, "33.3 %"),
        (2, 3, "66.7 %"),
        (1, 2000, "0.1 %"),
        (1, 2001, "0.0 %"),
        (u64::MAX, u64::MAX, "100.0 %"),
    ] {
        assert_eq!(Share(part, whole).to_string(), text, "{part} of {whole}");
    }
}

//! Converts the dates of logs to instants and back.

use std::fmt;

use tollgate::Timestamp;

const SECOND: u64 = 1_000_000_000;
const DAY: i64 = 86_400;

pub const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Parses a time such as `10/Oct/2000:13:55:36 -0700`. Returns `None` if it is invalid, before
/// 1970, or later than 2⁶³ − 1 ns (in the year 2262).
///
/// A leap second, `23:59:60`, is the second after it, as in Unix time.
pub fn parse_log_time(text: &[u8]) -> Option<Timestamp> {
    // dd/Mon/yyyy:hh:mm:ss ±hhmm
    const SHAPE: &[u8; 26] = b"00/---/0000:00:00:00 +0000";
    let shaped = text.len() == SHAPE.len()
        && text.iter().zip(SHAPE).all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            b'-' => true,
            b'+' => matches!(byte, b'+' | b'-'),
            _ => byte == shape,
        });
    if !shaped {
        return None;
    }
    let number = |begin: usize, len: usize| {
        text[begin..begin + len]
            .iter()
            .fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
    };
    let month = MONTHS
        .iter()
        .position(|name| name.as_bytes() == &text[3..6])?;
    let (day, month, year) = (number(0, 2), month as i64 + 1, number(7, 4));
    let (hour, minute, second) = (number(12, 2), number(15, 2), number(18, 2));
    let (east_hours, east_minutes) = (number(22, 2), number(24, 2));
    let is_time = hour < 24 && minute < 60 && second <= 60 && east_hours < 24 && east_minutes < 60;
    if !is_time || day < 1 || day > days_of(month, year) {
        return None;
    }
    let east = (east_hours * 60 + east_minutes) * 60;
    let east = if text[21] == b'-' { -east } else { east };
    let local = days_since_1970(year, month, day) * DAY + (hour * 60 + minute) * 60 + second;
    let nanos = u64::try_from(local - east).ok()?.checked_mul(SECOND)?;
    (nanos <= i64::MAX as u64).then(|| Timestamp::from_nanos(nanos))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(month: i64, year: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar.
///
/// Years are counted from March, so that the leap day comes last; `(153 m + 2) / 5` are the days
/// before month `m` of such a year (Richards, "Calendars", in: Explanatory Supplement to the
/// Astronomical Almanac, 2013).
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // The first of March of the year 0 was 719,468 days before 1970.
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Returns the year, month and day of a day.
fn date(days_since_1970: i64) -> (i64, i64, i64) {
    // The guess is never too late, and at most a few days too early, which the loop corrects.
    let guess = 1970 + days_since_1970.div_euclid(366);
    let year = (guess..)
        .find(|year| self::days_since_1970(year + 1, 1, 1) > days_since_1970)
        .unwrap_or(guess);
    let mut day = days_since_1970 - self::days_since_1970(year, 1, 1);
    let mut month = 1;
    while day >= days_of(month, year) {
        day -= days_of(month, year);
        month += 1;
    }
    (year, month, day + 1)
}

/// Prints an instant in UTC according to RFC 3339, to the second.
pub struct Utc(pub Timestamp);

impl Utc {
    fn seconds(&self) -> i64 {
        (self.0.as_nanos() / SECOND) as i64
    }

    /// Returns the year, the month and the day. Months and days start from 1.
    pub fn date(&self) -> (i64, i64, i64) {
        date(self.seconds() / DAY)
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        let second = self.seconds() % DAY;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

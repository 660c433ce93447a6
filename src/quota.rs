//! An amount per period, and its text; the text of a duration, as in `90s`: a whole number of one
//! unit.

use std::{cmp::Ordering, fmt, num::NonZeroU64, str::FromStr, time::Duration};

use crate::error::Error;

/// An amount per period: `100/1m` is a hundred units in each minute.
///
/// The amount is 1 to 2⁴⁰ units, the period 1 ns to 2⁶³ − 1 ns (292 years), and
/// the rate at most 2⁴⁰ units a second. The burst is a setting of
/// the [bucket](crate::TokenBucket).
///
/// # Text
///
/// `amount/period`. The period is a whole number and one of the units `ns`, `us`, `ms`, `s`, `m`,
/// `h`, `d`; without a number it is one unit, as in `10/s`. Printing uses the largest unit that
/// divides the period, and `10/s` for one second. The output parses back.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// let quota: Quota = "100/1m".parse()?;
/// assert_eq!(quota, Quota::per_minute(100));
/// assert_eq!(quota.period(), Duration::from_secs(60));
/// assert_eq!("5/10000ms".parse::<Quota>()?.to_string(), "5/10s");
/// assert_eq!("10/s".parse::<Quota>()?.to_string(), "10/s");
/// # Ok::<(), tollgate::Error>(())
/// ```
#[doc(alias("rate", "period"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    amount: NonZeroU64,
    period: NonZeroU64,
}

/// A second in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// The part of a quota that is out of range, and the error message. A rate out of range counts as
/// the amount.
enum Misfit {
    Amount(&'static str),
    Period(&'static str),
}

impl Misfit {
    const fn message(&self) -> &'static str {
        match self {
            Self::Amount(message) | Self::Period(message) => message,
        }
    }
}

/// Declares the constructors for common periods.
macro_rules! per {
    ($($builder:ident $period:literal $seconds:literal;)+) => {$(
        #[doc = concat!(" Creates a quota of `amount` units in each ", $period, ".")]
        ///
        /// # Panics
        ///
        /// When the amount is 0 or above 2⁴⁰.
        #[track_caller]
        pub const fn $builder(amount: u64) -> Self {
            Self::literal(amount, $seconds * SECOND)
        }
    )+};
}

impl Quota {
    /// The greatest amount, 2⁴⁰ units. It is also the greatest cost and capacity.
    pub const MAX_AMOUNT: u64 = 1 << 40;
    /// The longest period, 2⁶³ − 1 ns.
    pub const MAX_PERIOD: Duration = Duration::from_nanos(i64::MAX as u64);

    /// Creates a quota of `amount` units in each `period`.
    ///
    /// # Errors
    ///
    /// When the amount is 0 or above 2⁴⁰, the period 0 or above 2⁶³ − 1 ns, or the rate
    /// above 2⁴⁰ units a second.
    pub fn try_new(amount: u64, period: Duration) -> Result<Self, Error> {
        let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanos(amount, nanos).map_err(|misfit| Error::new(misfit.message()))
    }

    const fn from_nanos(amount: u64, period: u64) -> Result<Self, Misfit> {
        let Some(amount) = NonZeroU64::new(amount) else {
            return Err(Misfit::Amount(
                "the amount of the quota is 0: expected at least 1, as in `100/1m`; \
                 to refuse everything, take the route away instead",
            ));
        };
        let Some(period) = NonZeroU64::new(period) else {
            return Err(Misfit::Period(
                "the period of the quota is 0: expected at least 1 ns, as in `100/1m`; \
                 to let everything pass, take the limit away instead",
            ));
        };
        if amount.get() > Self::MAX_AMOUNT {
            return Err(Misfit::Amount(
                "the amount of the quota is above 2^40 (1099511627776): expected less; count in larger units",
            ));
        }
        if period.get() > i64::MAX as u64 {
            return Err(Misfit::Period(
                "the period of the quota is above 2^63 - 1 ns (292 years): expected less; choose a shorter one",
            ));
        }
        if amount.get() as u128 * SECOND as u128 > Self::MAX_AMOUNT as u128 * period.get() as u128 {
            return Err(Misfit::Amount(
                "the quota is above 2^40 units a second: expected less; choose a smaller amount or a longer period",
            ));
        }
        Ok(Self { amount, period })
    }

    /// Creates a quota of `amount` units in each `period`.
    ///
    /// # Panics
    ///
    /// When [`try_new`](Self::try_new) fails; meant for literals.
    #[track_caller]
    pub const fn new(amount: u64, period: Duration) -> Self {
        let nanos = period.as_nanos();
        let nanos = if nanos > u64::MAX as u128 {
            u64::MAX
        } else {
            nanos as u64
        };
        Self::literal(amount, nanos)
    }

    #[track_caller]
    const fn literal(amount: u64, nanos: u64) -> Self {
        match Self::from_nanos(amount, nanos) {
            Ok(quota) => quota,
            Err(misfit) => panic!("{}", misfit.message()),
        }
    }

    per! {
        per_second "second" 1;
        per_minute "minute" 60;
        per_hour "hour" 3600;
        per_day "day of 24 hours" 86_400;
    }

    /// Returns the time in which the quota grants `units`, in nanoseconds, rounded down.
    pub(crate) fn time_of(self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.period.get()) / u128::from(self.amount.get())
    }

    /// Orders quotas by their rates, the slowest first.
    #[inline]
    pub(crate) fn compare_rates(self, other: Self) -> Ordering {
        let ours = u128::from(self.amount.get()) * u128::from(other.period.get());
        let theirs = u128::from(other.amount.get()) * u128::from(self.period.get());
        ours.cmp(&theirs)
    }

    /// Returns the quota with the lower rate.
    pub(crate) fn slower(self, other: Self) -> Self {
        match self.compare_rates(other) {
            Ordering::Less | Ordering::Equal => self,
            Ordering::Greater => other,
        }
    }

    /// Returns the amount, in units.
    pub const fn amount(&self) -> u64 {
        self.amount.get()
    }

    /// Returns the amount, which is never 0.
    pub(crate) const fn limit(&self) -> NonZeroU64 {
        self.amount
    }

    /// Returns the period.
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period.get())
    }

    /// Returns the period, in nanoseconds.
    pub const fn period_nanos(&self) -> u64 {
        self.period.get()
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.amount)?;
        if self.period.get() == SECOND {
            return f.write_str("s");
        }
        fmt_duration(self.period.get(), f)
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}

impl FromStr for Quota {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Some((amount, period)) = text.split_once('/') else {
            return Err(Error::new(format!(
                "no `/` in the quota `{text}`: expected an amount per period, as in `100/1m`"
            ))
            .at_column(text.len() + 1));
        };
        let amount_value = parse_number(amount).ok_or_else(|| {
            Error::new(format!(
                "`{amount}` is not an amount in the quota `{text}`: \
                 expected a whole number from 1 to 1099511627776, as in `100/1m`"
            ))
            .at_column(1)
        })?;
        let column = amount.len() + 2;
        let period_value = parse_duration(period).map_err(|problem| {
            let (offset, what) = match problem {
                DurationProblem::Number => (
                    0,
                    format!("`{period}` is not a period of at most 292 years"),
                ),
                DurationProblem::Unit(at) if at == period.len() => (at, "no unit".to_owned()),
                DurationProblem::Unit(at) => (at, format!("unknown unit `{}`", &period[at..])),
            };
            Error::new(format!(
                "{what} in the quota `{text}`: \
                 expected ns, us, ms, s, m, h or d, as in `100/1m`"
            ))
            .at_column(column + offset)
        })?;
        Self::from_nanos(amount_value, period_value).map_err(|misfit| {
            let column = match misfit {
                Misfit::Amount(_) => 1,
                Misfit::Period(_) => column,
            };
            Error::new(format!("{} (`{text}`)", misfit.message())).at_column(column)
        })
    }
}

/// Serializes a type as the text that it prints and parses.
#[cfg(feature = "serde")]
macro_rules! as_text {
    ($Type:ty) => {
        impl serde::Serialize for $Type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $Type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

#[cfg(feature = "serde")]
pub(crate) use as_text;

#[cfg(feature = "serde")]
as_text!(Quota);

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

//! Axes with ticks at round numbers.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use tollgate::Timestamp;

use crate::{
    calendar::{MONTHS, Utc},
    numbers::Grouped,
    timeline::{DAY, MINUTE, SECOND, nice_widths},
};

/// An axis of whole numbers, with a tick at each multiple of a step.
#[derive(Clone)]
pub(crate) struct Axis {
    from: u64,
    to: u64,
    tick: u64,
}

impl Axis {
    /// Creates an axis of times, in nanoseconds since 1970.
    pub(crate) fn of_time(from: u64, to: u64) -> Self {
        const MOST: u64 = 8;
        let tick = nice_widths().find(|width| (to - from) / width <= MOST);
        Self {
            from,
            to,
            tick: tick.unwrap_or(to - from),
        }
    }

    /// Creates an axis from zero to this number, with some space above.
    pub(crate) fn of_counts(highest: u64) -> Self {
        const MOST: u64 = 5;
        let powers = (0..19).map(|power| 10_u64.pow(power));
        let mut nice = powers.flat_map(|power| [1, 2, 5].map(|nice| power.saturating_mul(nice)));
        let tick = nice.find(|tick| highest / tick <= MOST);
        Self {
            from: 0,
            to: highest.saturating_add(highest / 20 + 1),
            tick: tick.unwrap_or(highest),
        }
    }

    /// Returns the name of a time axis.
    pub(crate) fn time_name(&self) -> String {
        let [begin, end] = [self.from, self.to - 1].map(at).map(|at| at.to_string());
        let [first, last] = [&begin[..10], &end[..10]];
        match self.tick {
            DAY.. => "day (UTC)".to_owned(),
            SECOND.. if first == last => format!("time on {first} (UTC)"),
            SECOND.. => format!("time from {first} to {last} (UTC)"),
            tick => format!("{} after {begin}", unit(tick).1),
        }
    }

    /// Returns the label of a tick on a time axis.
    pub(crate) fn time_label(&self, nanos: u64) -> String {
        let text = at(nanos).to_string();
        match self.tick {
            DAY.. => text[..10].to_owned(),
            // A tick at midnight shows the date of the new day.
            SECOND.. if nanos.is_multiple_of(DAY) => {
                let (_, month, day) = at(nanos).date();
                format!("{day} {}", MONTHS[(month - 1) as usize])
            }
            MINUTE.. => text[11..16].to_owned(),
            SECOND.. => text[11..19].to_owned(),
            // Counted from the last whole second before the axis.
            tick => {
                let since = nanos - self.from / SECOND * SECOND;
                Grouped((since / unit(tick).0).into()).to_string()
            }
        }
    }
}

fn at(nanos: u64) -> Utc {
    Utc(Timestamp::from_nanos(nanos))
}

/// Returns the largest unit of time that divides a tick.
fn unit(tick: u64) -> (u64, &'static str) {
    let units = [(1_000_000, "milliseconds"), (1_000, "microseconds")];
    let unit = units
        .into_iter()
        .find(|(unit, _)| tick.is_multiple_of(*unit));
    unit.unwrap_or((1, "nanoseconds"))
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = u64;

    fn map(&self, value: &u64, limit: (i32, i32)) -> i32 {
        let (part, whole) = (
            i128::from(*value) - i128::from(self.from),
            i128::from(self.to - self.from),
        );
        limit.0 + (part * i128::from(limit.1 - limit.0) / whole) as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<u64> {
        let first = self.from.div_ceil(self.tick);
        (first..=self.to / self.tick)
            .map(|tick| tick * self.tick)
            .collect()
    }

    fn range(&self) -> Range<u64> {
        self.from..self.to
    }
}

//! A marker's text: `three-color 100/s burst=100 peak=200/s peak-burst=200 aware given=yellow`.

use std::{fmt, str::FromStr};

use super::{Color, ThreeColor};
use crate::{algorithm::text::Words, error::Error};

impl fmt::Display for ThreeColor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (committed, peak) = (self.committed.quota(), self.peak.quota());
        write!(f, "three-color {committed}")?;
        if self.committed.capacity() != committed.amount() {
            write!(f, " burst={}", self.committed.capacity())?;
        }
        write!(f, " peak={peak}")?;
        if self.peak.capacity() != peak.amount() {
            write!(f, " peak-burst={}", self.peak.capacity())?;
        }
        f.write_str(match self.given {
            None => "",
            Some(Color::Green) => " aware",
            Some(Color::Yellow) => " aware given=yellow",
            Some(Color::Red) => " aware given=red",
        })
    }
}

impl fmt::Debug for ThreeColor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreeColor({self})")
    }
}

impl FromStr for ThreeColor {
    type Err = Error;

    /// Parses `three-color 100/s burst=100 peak=200/s peak-burst=200 aware given=yellow`; all but the
    /// quotas may be left out.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = Words::of(text);
        words.name(Self::NAME)?;
        let committed = words.quota()?;
        let names = ["burst", "peak", "peak-burst", "aware", "given"];
        let [burst, peak, peak_burst, aware, given] = words.settings(&names)?;
        let Some(peak) = peak else {
            return Err(Error::new(format!(
                "no peak rate in `{}`: expected one, as in `three-color 100/s peak=200/s`",
                text.trim()
            ))
            .at_column(text.trim_end().len() + 1));
        };
        let mut marker = peak.apply(peak.quota()?, |peak| Self::try_new(committed, peak))?;
        if let Some(word) = burst {
            marker = word.apply(word.number()?, |burst| marker.try_burst(burst))?;
        }
        if let Some(word) = peak_burst {
            marker = word.apply(word.number()?, |burst| marker.try_peak_burst(burst))?;
        }
        if let Some(word) = aware {
            word.flag()?;
            marker = marker.aware();
        }
        let Some(word) = given else {
            return Ok(marker);
        };
        let class = match word.word() {
            "green" => Color::Green,
            "yellow" => Color::Yellow,
            "red" => Color::Red,
            _ => return Err(word.error("`green`, `yellow` or `red`, as in `given=red`")),
        } as u8;
        word.apply(class, |class| {
            if marker.is_aware() {
                Ok(marker.given(class))
            } else {
                Err(Error::new(
                    "`given` without `aware`: expected both; write `aware` too, or leave out `given`",
                ))
            }
        })
    }
}

//! The text of a marker, and its state as bytes and in the numbers of a script.

use std::fmt;

use super::{
    rule::{Color, ThreeColor},
    step::ThreeColorState,
};
use crate::{
    algorithm::{
        codec::{Codec, put_instant, take_instant, take_tag},
        rule::{Words, text},
        scripted::{Part, Scripted, in_micros, instant},
        ticks::Ticks,
    },
    error::Error,
};

impl ThreeColor {
    /// Parses a quota and settings, without the name before them.
    fn of_words(words: &mut Words<'_>) -> Result<Self, Error> {
        let committed = words.quota()?;
        let names = ["burst", "peak", "peak-burst", "aware", "given"];
        let [burst, peak, peak_burst, aware, given] = words.settings(&names)?;
        let Some(peak) = peak else {
            return Err(Error::new(format!(
                "no peak rate in `{}`: expected one, as in `three-color 100/s peak=200/s`",
                words.text().trim()
            ))
            .at_column(words.text().trim_end().len() + 1));
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

    /// Writes the quota, and the settings that differ from the defaults.
    fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (committed, peak) = (self.committed.quota(), self.peak.quota());
        write!(f, "{committed}")?;
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

text! {
    /// Parses `three-color 100/s burst=100 peak=200/s peak-burst=200 aware given=yellow`; all but the
    /// quotas may be left out.
    ThreeColor
}

impl Codec for ThreeColorState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(ThreeColor::TAG);
        put_instant(bytes, self.written_at);
        self.committed.encode(bytes);
        self.peak.encode(bytes);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, ThreeColor::TAG)?;
        Ok(Self {
            written_at: take_instant(bytes)?,
            committed: Ticks::decode(bytes)?,
            peak: Ticks::decode(bytes)?,
        })
    }
}

impl Scripted for ThreeColor {
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
        let given = self.given.unwrap_or(Color::Green) as i64;
        let (committed, peak) = (self.committed.numbers(self)?, self.peak.numbers(self)?);
        parts.push([&[Self::KIND, given], &committed[..], &peak].concat());
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<Part>]) -> Option<ThreeColorState> {
        let Some([Some(part)]) = parts.first_chunk() else {
            return None;
        };
        let [Self::KIND, at, committed, committed_gain, peak, peak_gain] = part[..] else {
            return None;
        };
        Some(ThreeColorState {
            written_at: instant(at)?,
            committed: self.committed.span(committed, committed_gain)?,
            peak: self.peak.span(peak, peak_gain)?,
        })
    }

    fn state_parts(&self, state: &ThreeColorState, parts: &mut Vec<Option<Part>>) {
        let at = in_micros(state.written_at);
        let (committed, peak) = (
            self.committed.level(state.committed),
            self.peak.level(state.peak),
        );
        parts.push(Some([&[Self::KIND, at], &committed[..], &peak].concat()));
    }
}

//! A sliding window's text: `sliding-window 100/1m slices=4`.

use std::{fmt, str::FromStr};

use super::SlidingWindow;
use crate::{algorithm::text::Words, error::Error};

impl fmt::Display for SlidingWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sliding-window {}", self.quota)?;
        if self.slice_count() != 1 {
            write!(f, " slices={}", self.slice_count())?;
        }
        Ok(())
    }
}

impl fmt::Debug for SlidingWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlidingWindow({self})")
    }
}

impl FromStr for SlidingWindow {
    type Err = Error;

    /// Parses `sliding-window 100/1m slices=4`; all but the quota may be left out.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = Words::of(text);
        words.name(Self::NAME)?;
        let window = Self::new(words.quota()?);
        match words.settings(&["slices"])? {
            [None] => Ok(window),
            [Some(word)] => word.apply(word.number()?, |slices| window.try_slices(slices)),
        }
    }
}

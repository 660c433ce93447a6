//! The slices of time that counters count in.

use std::{fmt, num::NonZeroU64, time::Duration};

use crate::{
    algorithm::SlidingWindow,
    error::Error,
    quota::{Written, fmt_duration},
    time::Timestamp,
};

/// Slices of time, each with a counter of its own.
///
/// Windows follow each other from the Unix epoch on, or from an offset after it, and each is cut into `count` slices.
/// Slice `k` begins `⌈k · window / count⌉` nanoseconds after the first one.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Timestamp, algorithm::Slicing};
///
/// let minute = Duration::from_secs(60);
/// let quarters = Slicing::sliding(minute, 4)?;
/// let now = Timestamp::from_nanos(100_000_000_000);
/// let slice = quarters.slice(now);
/// assert_eq!(quarters.begin(slice), Timestamp::from_nanos(90_000_000_000));
/// // The window still holds a part of the fourth slice before.
/// assert_eq!(quarters.older(), 4);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slicing {
    window: NonZeroU64,
    count: NonZeroU64,
    /// The nanoseconds from the beginning of the first window to the epoch: less than a window.
    ahead: u64,
    older: u64,
}

impl Slicing {
    /// Creates windows that begin `offset`, less than their length, later than those of the calendar; only the current one counts.
    ///
    /// # Errors
    ///
    /// When windows have no length, or the offset is not below it.
    pub fn windows(window: Duration, offset: Duration) -> Result<Self, Error> {
        let (window, offset) = (nanos(window)?, offset.as_nanos());
        let left = u128::from(window.get()).saturating_sub(offset);
        if left == 0 {
            return Err(Error::new(format!(
                "an offset of {offset} ns for windows of {window} ns: expected less than their length; take whole \
                 windows off it"
            )));
        }
        Ok(Self {
            window,
            count: NonZeroU64::MIN,
            ahead: if offset == 0 { 0 } else { left as u64 },
            older: 0,
        })
    }

    /// Creates windows of the calendar in `count` slices. One slice more than a window has counts.
    ///
    /// # Errors
    ///
    /// When windows have no length, or slices would have none; or when there are none or more than
    /// [`SlidingWindow::MAX_SLICES`].
    pub fn sliding(window: Duration, count: u64) -> Result<Self, Error> {
        let window = nanos(window)?;
        match NonZeroU64::new(count) {
            Some(count) if count <= window && count.get() <= SlidingWindow::MAX_SLICES => {
                Ok(Self {
                    window,
                    count,
                    ahead: 0,
                    older: count.get(),
                })
            }
            _ => Err(Error::new(format!(
                "{count} slices in a window of {window} ns: expected 1 to {}, none shorter than a nanosecond; take \
                 fewer slices or a longer window",
                SlidingWindow::MAX_SLICES
            ))),
        }
    }

    /// Returns the number of slices before the current one that still count, the last of them in part.
    pub const fn older(&self) -> u64 {
        self.older
    }

    /// Returns the number of the slice that contains an instant.
    pub fn slice(&self, at: Timestamp) -> u64 {
        // At most 2^65 times a number of slices.
        let since = u128::from(at.as_nanos()) + u128::from(self.ahead);
        let slice = since * u128::from(self.count.get()) / u128::from(self.window.get());
        u64::try_from(slice).unwrap_or(u64::MAX)
    }

    /// Returns the beginning of a slice: the epoch if it began before it, and [`Timestamp::MAX`] if it lies beyond all time.
    pub fn begin(&self, slice: u64) -> Timestamp {
        let since = u128::from(slice) * u128::from(self.window.get());
        let since = since.div_ceil(u128::from(self.count.get()));
        let nanos = since.saturating_sub(u128::from(self.ahead));
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the instant from which on a slice no longer counts.
    pub fn over(&self, slice: u64) -> Timestamp {
        self.begin(slice.saturating_add(self.older).saturating_add(1))
    }
}

fn nanos(window: Duration) -> Result<NonZeroU64, Error> {
    let nanos = u64::try_from(window.as_nanos())
        .ok()
        .filter(|nanos| nanos >> 63 == 0);
    nanos.and_then(NonZeroU64::new).ok_or_else(|| {
        Error::new(format!(
            "windows of {}: expected 1 ns to 2^63 - 1 ns (292 years); choose another length",
            Written(window)
        ))
    })
}

impl fmt::Display for Slicing {
    /// Writes a text that identifies the slicing: the window, the number of slices if it slides, and the time from the beginning
    /// of the first window to the epoch if there is one: `1m`, `1m/1`, `1m/4`, `1m+50s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_duration(self.window.get(), f)?;
        if self.older > 0 {
            write!(f, "/{}", self.count)?;
        }
        if self.ahead > 0 {
            f.write_str("+")?;
            fmt_duration(self.ahead, f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Slicing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slicing({self})")
    }
}

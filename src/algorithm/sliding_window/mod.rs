//! A window that slides over the counters of its slices.

mod packed;
mod slices;
mod step;
mod wire;

use std::{fmt, num::NonZeroU64};

pub(super) use self::step::SlidingWindowState;
use self::{packed::bits_of, slices::Slices};
use super::rule::{RuleWords, Setting, of_quota, set, text};
use crate::{
    error::{Error, panicking},
    quota::Quota,
};

/// A sliding window: counts calls in slices of the calendar, and weights the oldest slice by the
/// part of it that lies in the window.
///
/// The window is the quota's period and consists of `n` [slices](Self::slices), 1 by default. There
/// are `n + 1` counters: for the current slice, for the `n − 1` slices before it, and for the
/// oldest slice, of which only a part still lies in the window. Slice `k` begins `⌈k · window / n⌉`
/// nanoseconds after the Unix epoch. At any instant,
///
/// > estimate = the `n` newest counters + the oldest counter × the part of its slice that lies in the window
///
/// and a cost passes if the estimate plus the cost is at most the quota's amount. The product is
/// compared exactly, without rounding. With one slice these are the two counters of Cloudflare's
/// limiter: at 00:01:43, `100/1m` counts 00:01 in full and 00:00 with a weight of 17/60. With four
/// slices a minute they are the five counters of 15 seconds that Criteo describes.
///
/// # Guarantee
///
/// In `n` consecutive slices, and therefore in each window of the calendar, never more than the
/// quota's amount passes. In a span of `m` windows anywhere, never more than `m + 1` times the
/// amount.
///
/// In a span of one window anywhere, at most **twice the amount less one**, whatever the number of
/// slices. The calls of a slice are weighted as if they were spread evenly over it. If all of them
/// lie at its end, and the whole amount comes within one slice, they lose their weight before they
/// are one window old: `100/1m` admits 100 calls just before a slice ends, and 99 more just before
/// that slice leaves the window, less than a minute later. For calls at a steady pace the estimate
/// is exact, and its error is never larger than the calls of the oldest slice. So more slices
/// reduce the mean error but not the worst case. In the other direction, calls at the beginning of
/// a slice count for up to one slice too long.
///
/// These bounds are for the units that one rule admits. Units that `settle` takes by force count in
/// addition, even above the amount.
///
/// [`SlidingLog`](crate::SlidingLog) stores the time of each call instead: it never admits more
/// than the amount in any window and never refuses without cause, but its memory grows with the
/// amount.
///
/// # Cost
///
/// A key takes a packed state of 8 bytes in a [local store](crate::store::Local#memory) if the
/// counters fit: there are at most 15 slices, they divide the window evenly in nanoseconds, the
/// window lasts with one slice more at most two years, and the limit is below 2ᵇ. Here *b* is the
/// number of binary digits of each of the `n + 1` counters: if a slice lasts *t* thirds of a
/// nanosecond, it is log₂ *t* / (`n` + 1), rounded down twice. These are the largest limits that
/// fit:
///
/// | window | 1 slice | 2 slices | 4 slices | 6 slices |
/// |---|---|---|---|---|
/// | a second | 32,767 | 1,023 | 31 | – |
/// | a minute | 262,143 | 4,095 | 127 | 15 |
/// | an hour | 2,097,151 | 16,383 | 255 | 31 |
/// | a day | 8,388,607 | 32,767 | 511 | 63 |
///
/// Otherwise it takes 40 bytes per key with one slice; with more slices, 8 bytes in addition for
/// each counter: 80 bytes with 4 slices, 528 with 60. The counters are allocated once, when a key
/// is first admitted. A decision reads the counters and divides once or twice, and a few times more
/// if the slices do not divide the window evenly.
///
/// # When the rule changes
///
/// A new amount is compared with the counters as they are. For another window or number of slices
/// the calls are counted again: each call as late as it can have come, in the last nanosecond of
/// its slice, or at the last write if that was earlier. So a change never adds allowance. Until a
/// call passes under the new rule, each decision repeats that conversion, which allocates if there
/// are several slices.
///
/// A packed state does not contain the instant of the last write. For another window or number of
/// slices, a local store counts the calls of its newest slice as late as the first call under the
/// new rule.
///
/// # When the clock steps back
///
/// Time stands still for a key at its last write until the clock has caught up. `settle` corrects
/// the slice that the clock showed for the call, if that slice still counts.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, SlidingWindow, Timestamp};
/// use tollgate::algorithm::Algorithm;
///
/// let rule = SlidingWindow::per_minute(100);
/// let (mut state, noon) = (None, Timestamp::from_nanos(43_200_000_000_000));
/// let spent = rule.step(&mut state, noon, Cost::new(60).unwrap()).decision();
/// assert_eq!(spent.remaining(), Some(40));
///
/// // A quarter of the next minute has gone by, so the last one counts by three quarters: 45.
/// let later = noon.saturating_add(Duration::from_secs(75));
/// assert_eq!(rule.look(state.as_ref(), later).remaining(), Some(55));
/// ```
#[doc(alias("sliding window counter", "rolling window"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingWindow {
    quota: Quota,
    limit: NonZeroU64,
    slices: Slices,
    /// The binary digits of each counter in a packed state; 0 if there are no packed states in
    /// these slices.
    bits: u32,
}

impl SlidingWindow {
    /// The largest number of slices in a window. Each takes time and memory of every call: more
    /// would cost more than a [`SlidingLog`](crate::SlidingLog), which is exact.
    pub const MAX_SLICES: u64 = 60;

    /// Returns a window of the quota's period in one slice, in which the quota's amount may pass.
    pub const fn new(quota: Quota) -> Self {
        Self::of_slices(quota, quota.limit(), Slices::new(quota.period_nanos(), 1))
    }

    panicking! {
        /// Cuts the window into `count` slices, 1 to 60.
        pub fn slices(self, count: u64) = try_slices;
    }

    /// Cuts the window into `count` slices, 1 to 60.
    ///
    /// # Errors
    ///
    /// When `count` is 0 or above 60, or above the number of nanoseconds in the window.
    pub fn try_slices(self, count: u64) -> Result<Self, Error> {
        let window = self.quota.period_nanos();
        if count == 0 {
            return Err(Error::new(format!(
                "a window of 0 slices: expected 1 to {}; with 1, the window before counts in part",
                Self::MAX_SLICES
            )));
        }
        if count > Self::MAX_SLICES {
            return Err(Error::new(format!(
                "a window of {count} slices: expected 1 to {}, for each takes 8 bytes of every key; \
                 to count each call by its time, take `sliding-log`",
                Self::MAX_SLICES
            )));
        }
        if count > window {
            return Err(Error::new(format!(
                "{count} slices in {}: expected at most {window}, for a slice is at least a nanosecond; \
                 take fewer slices or a longer window",
                self.quota
            )));
        }
        let slices = Slices::new(window, count as u32);
        Ok(Self::of_slices(self.quota, self.limit, slices))
    }

    const fn of_slices(quota: Quota, limit: NonZeroU64, slices: Slices) -> Self {
        Self {
            quota,
            limit,
            slices,
            bits: bits_of(&slices),
        }
    }

    /// Returns the amount, and the window as its period.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the number of slices in a window.
    pub const fn slice_count(&self) -> u64 {
        self.slices.count()
    }
}

of_quota!(
    SlidingWindow,
    "A window of a second in which `amount` units may pass.",
    "A window of a minute in which `amount` units may pass.",
    "A window of an hour in which `amount` units may pass.",
    "A window of a day of 24 hours in which `amount` units may pass."
);

impl SlidingWindow {
    fn of_words(words: &mut RuleWords<'_>) -> Result<Self, Error> {
        let window = Self::new(words.quota()?);
        let [slices] = words.settings(&["slices"])?;
        set(window, slices, Setting::number, Self::try_slices)
    }

    fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.quota)?;
        match self.slice_count() {
            1 => Ok(()),
            slices => write!(f, " slices={slices}"),
        }
    }
}

text! {
    /// Parses `sliding-window 100/1m slices=4`; all but the quota may be left out.
    SlidingWindow
}

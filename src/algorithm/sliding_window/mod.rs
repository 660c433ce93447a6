//! A window that slides over counters, one for each of its slices.

mod codec;
mod counted;
mod script;
mod slices;
mod state;
mod step;
mod text;

use std::num::NonZeroU64;

use self::slices::Slices;
pub use self::state::SlidingWindowState;
use super::of_quota::of_quota;
use crate::{error::Error, quota::Quota};

/// A sliding window: counts calls in slices of the calendar, and weighs the oldest slice by how much of it the
/// window still holds.
///
/// The window is the quota's period, and is cut into `n` [slices](Self::slices), 1 by default. There are `n + 1`
/// counters: the slice that time is in, the `n − 1` before it, and the oldest, of which the window holds a part
/// that shrinks. Slice `k` begins `⌈k · window / n⌉` nanoseconds after the Unix epoch. At an instant,
///
/// > estimate = the `n` newest counters + the oldest × the part of its slice that the window still holds
///
/// and a cost passes if the estimate and the cost are at most the quota's amount. The product is compared
/// exactly, never rounded. With one slice these are the two counters of Cloudflare's limiter: at 00:01:43,
/// `100/1m` counts 00:01 in full and 00:00 with 17/60. Four slices to the minute are the five counters of 15
/// seconds that Criteo tells of.
///
/// # What it guarantees
///
/// In `n` slices that follow each other, so in each window of the calendar too, never more units than the quota's
/// amount; in `m` windows' length anywhere, never more than `m + 1` times the amount.
///
/// In a window's length anywhere at most **twice the amount less one**, whatever the number of slices. A slice's calls
/// are weighed as if they were spread evenly over it. Where all lie at its end, and the whole amount comes
/// within one slice, they lose their weight before they are a window old: `100/1m` lets 100 through just before
/// a slice ends, and 99 more just before that slice leaves the window, less than a minute later. With calls at a
/// steady pace the estimate is right, and what it errs by is never more than the calls of one slice, the oldest: more
/// slices cut the mean error, not the worst case. In the other direction, calls that lie at the beginning
/// of a slice count for up to a slice's length too long.
///
/// All this is said of what one rule admits. What `settle` takes by force counts too, above the amount if need be.
///
/// [`SlidingLog`](super::SlidingLog) keeps the time of each call instead: never more than the amount in any window, and
/// no refusal without cause, for memory that grows with the amount.
///
/// # What it costs
///
/// 40 bytes a key with one slice; with more, 8 bytes for each counter beside them: 80 bytes with 4 slices, 528 with 60.
/// The counters are allocated once, when a key is first admitted. A decision reads the counters once or twice, and
/// divides once or twice; where the slices do not divide the window, some times more.
///
/// # When the rule changes
///
/// A new amount meets the counters as they are. For another window or number of slices they are counted anew:
/// each call as if it had come as late as it can have, in the last nanosecond of its slice, or at the last write where
/// that was earlier. So nothing is minted. Until a call passes under the new rule, each decision does that again,
/// and with several slices allocates for it.
///
/// # When the clock steps back
///
/// Time stands still for a key at its last write, until the clock has caught up. A correction by `settle` goes to the
/// slice that the clock showed for the call, if that still counts.
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
/// // A quarter of the next minute has gone by, so that the last one counts by three quarters: 45.
/// let later = noon.saturating_add(Duration::from_secs(75));
/// assert_eq!(rule.look(state.as_ref(), later).remaining(), Some(55));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingWindow {
    quota: Quota,
    limit: NonZeroU64,
    slices: Slices,
}

impl SlidingWindow {
    /// The most slices that a window can have.
    pub const MAX_SLICES: u64 = 1000;

    /// A window of the quota's period, of one slice, in which the quota's amount may pass.
    pub const fn new(quota: Quota) -> Self {
        let Some(limit) = NonZeroU64::new(quota.amount()) else {
            unreachable!()
        };
        Self {
            quota,
            limit,
            slices: Slices::new(quota.period_nanos(), 1),
        }
    }

    /// The same window, cut into `count` slices: 1 to 1000.
    ///
    /// # Panics
    ///
    /// Where [`try_slices`](Self::try_slices) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn slices(self, count: u64) -> Self {
        self.try_slices(count)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same window, cut into `count` slices: 1 to 1000.
    ///
    /// # Errors
    ///
    /// When `count` is 0 or above 1000, or above the nanoseconds of the window.
    pub fn try_slices(self, count: u64) -> Result<Self, Error> {
        let window = self.quota.period_nanos();
        if count == 0 {
            return Err(Error::new(
                "a window of 0 slices: expected 1 to 1000; with 1, the window before counts in part",
            ));
        }
        if count > Self::MAX_SLICES {
            return Err(Error::new(format!(
                "a window of {count} slices: expected 1 to 1000, for each takes 8 bytes of every key; \
                 to count each call by its time, take `sliding-log`"
            )));
        }
        if count > window {
            return Err(Error::new(format!(
                "{count} slices in {}: expected at most {window}, for a slice is at least a nanosecond; \
                 take fewer slices or a longer window",
                self.quota
            )));
        }
        Ok(Self {
            slices: Slices::new(window, count as u32),
            ..self
        })
    }

    /// The amount, and the window as its period.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// How many slices the window is cut into.
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

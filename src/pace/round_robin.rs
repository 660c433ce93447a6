//! A period divided into one time slice per sender.

use std::{num::NonZeroU64, time::Duration};

use crate::{
    error::{Error, or_panic},
    quota::{Quota, Written},
    time::Timestamp,
};

/// A schedule that serves many senders in turn: each has a time slice of 1/N of every period.
///
/// Periods start at multiples of their length in Unix time, and the slice of sender k of N starts
/// ⌈k · period / N⌉ later, in whole nanoseconds. So the schedule has no state, is equal in every
/// process, and the lengths of slices differ by at most a nanosecond. When the number of senders
/// changes, switch to another schedule.
///
/// The schedule determines whose turn it is. The amount that a sender may send is up to a
/// [`Pacer`](super::Pacer) of its own.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Timestamp, pace::RoundRobin};
///
/// let senders = RoundRobin::new(Duration::from_secs(1), 100);
/// let noon = Timestamp::from_nanos(43_200_000_000_000);
/// let turn = senders.turn(noon.saturating_add(Duration::from_millis(237)));
/// assert_eq!(turn.sender, 23);
/// assert_eq!(turn.begins.saturating_since(noon), Duration::from_millis(230));
/// assert_eq!(turn.ends.saturating_since(noon), Duration::from_millis(240));
///
/// let again = senders.next(turn.begins, 23).unwrap();
/// assert_eq!(again.begins.saturating_since(turn.begins), Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias("fair", "time slice", "quantum", "tdma"))]
pub struct RoundRobin {
    /// In nanoseconds.
    period: NonZeroU64,
    /// At most the period.
    senders: NonZeroU64,
}

/// The time slice of one sender: from `begins` (inclusive) to `ends` (exclusive).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Timestamp, pace::{RoundRobin, Turn}};
///
/// let senders = RoundRobin::new(Duration::from_secs(1), 4);
/// let Turn { sender, begins, ends, .. } = senders.turn(Timestamp::default());
/// assert_eq!((sender, ends.saturating_since(begins)), (0, Duration::from_millis(250)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// The sender: 0 to N − 1.
    pub sender: usize,
    /// The first instant of the slice.
    pub begins: Timestamp,
    /// The first instant after the slice, where the next turn begins.
    pub ends: Timestamp,
    /// The number of turns missed between the previous turn and this one. Only set by `Turns`;
    /// otherwise 0.
    pub missed: u64,
}

impl RoundRobin {
    /// Creates a schedule with slices of 1/`senders` of a `period`.
    ///
    /// # Errors
    ///
    /// Returns an error if the period is 0 or above 2⁶³ − 1 ns, there are no senders, or more
    /// senders than nanoseconds in the period.
    pub fn try_new(period: Duration, senders: usize) -> Result<Self, Error> {
        let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let Some(period) = NonZeroU64::new(nanos).filter(|_| period <= Quota::MAX_PERIOD) else {
            return Err(Error::new(
                "the period of a round robin is 0 or above 2^63 - 1 ns (292 years): expected one between; \
                 a second suits most senders",
            ));
        };
        let number = u64::try_from(senders).unwrap_or(u64::MAX);
        let Some(senders) = NonZeroU64::new(number).filter(|senders| *senders <= period) else {
            return Err(Error::new(format!(
                "{senders} senders in a period of {}: expected at least 1, and at most one for each nanosecond; \
                 wait for a sender, or choose a longer period",
                Written(Duration::from_nanos(period.get()))
            )));
        };
        Ok(Self { period, senders })
    }

    /// Creates a schedule with slices of 1/`senders` of a `period`.
    ///
    /// # Panics
    ///
    /// Panics if [`try_new`](Self::try_new) returns an error.
    #[track_caller]
    pub fn new(period: Duration, senders: usize) -> Self {
        or_panic(Self::try_new(period, senders))
    }

    /// Returns the period in which each sender has one slice.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period.get())
    }

    /// Returns the number of senders.
    pub fn senders(&self) -> usize {
        // Always fits: it was made from a `usize`.
        self.senders.get() as usize
    }

    /// Returns the turn at `now`.
    pub fn turn(&self, now: Timestamp) -> Turn {
        let (period, sender) = self.period_and_sender(now);
        self.turn_of(period, sender)
    }

    /// Returns the first turn of `sender` that begins after `now`; `None` if there is no such
    /// sender.
    ///
    /// A turn that begins at `now` is [the current one](Self::turn), not the next.
    pub fn next(&self, now: Timestamp, sender: usize) -> Option<Turn> {
        let sender = u64::try_from(sender).ok();
        let sender = sender.filter(|sender| *sender < self.senders.get())?;
        let (period, current) = self.period_and_sender(now);
        Some(self.turn_of(period + u64::from(sender <= current), sender))
    }

    /// Returns the number of turns that end after `from`, and at or before `until`.
    #[cfg(feature = "tokio")]
    pub(super) fn between(&self, from: Timestamp, until: Timestamp) -> u64 {
        let number = |now| {
            let (period, sender) = self.period_and_sender(now);
            u128::from(period) * u128::from(self.senders.get()) + u128::from(sender)
        };
        let turns = number(until).saturating_sub(number(from));
        u64::try_from(turns).unwrap_or(u64::MAX)
    }

    /// Returns the number of the period at `now`, and the sender.
    fn period_and_sender(&self, now: Timestamp) -> (u64, u64) {
        let period = self.period.get();
        let (number, offset) = (now.as_nanos() / period, now.as_nanos() % period);
        // The last one that begins at or before it: ⌈x⌉ ≤ offset if and only if x ≤ offset.
        let sender = u128::from(offset) * u128::from(self.senders.get()) / u128::from(period);
        (number, sender as u64)
    }

    fn turn_of(&self, period: u64, sender: u64) -> Turn {
        Turn {
            sender: sender as usize,
            begins: self.beginning(period, sender),
            ends: self.beginning(period, sender + 1),
            missed: 0,
        }
    }

    /// Returns the beginning of a slice, at most [`Timestamp::MAX`].
    fn beginning(&self, period: u64, sender: u64) -> Timestamp {
        let length = u128::from(self.period.get());
        let into = (u128::from(sender) * length).div_ceil(u128::from(self.senders.get()));
        let nanos = u128::from(period) * length + into;
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

//! A period cut into as many quanta as there are senders.

use std::{num::NonZeroU64, time::Duration};

use crate::{
    error::Error,
    quota::{Quota, Written},
    time::Timestamp,
};

/// Serves many senders in turn: in each period every one of them has a quantum, 1/N of it.
///
/// The turns are those of the calendar: periods begin where Unix time is a multiple of them, and the quantum of
/// sender k of N begins ⌈k · period / N⌉ after that, in whole nanoseconds. So they need no state, are the same in
/// every process, and lengths differ by a nanosecond at most. When the number of senders changes, take other `Quanta`
/// from then on.
///
/// A quantum says whose turn it is, not how much may be sent in it: that says a [`Pacer`](super::Pacer) of each sender.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Timestamp, pace::Quanta};
///
/// let quanta = Quanta::new(Duration::from_secs(1), 100);
/// let noon = Timestamp::from_nanos(43_200_000_000_000);
/// let turn = quanta.turn(noon.saturating_add(Duration::from_millis(237)));
/// assert_eq!(turn.sender, 23);
/// assert_eq!(turn.begins.saturating_since(noon), Duration::from_millis(230));
/// assert_eq!(turn.ends.saturating_since(noon), Duration::from_millis(240));
///
/// let again = quanta.next(turn.begins, 23).unwrap();
/// assert_eq!(again.begins.saturating_since(turn.begins), Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quanta {
    /// In nanoseconds.
    period: NonZeroU64,
    /// At most the period.
    senders: NonZeroU64,
}

/// The quantum of one sender: from `begins` on, and before `ends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// Whose turn it is: 0 to N − 1.
    pub sender: usize,
    /// The first instant of the quantum.
    pub begins: Timestamp,
    /// The first instant after it; that of the next turn.
    pub ends: Timestamp,
    /// How many turns went by unserved between the turn before and this one. Only `Turns` can know; otherwise 0.
    pub missed: u64,
}

impl Quanta {
    /// Quanta of 1/`senders` of a `period`.
    ///
    /// # Errors
    ///
    /// When the period is 0 or above 2⁶³ − 1 ns, there are no senders, or more than the period has nanoseconds.
    pub fn try_new(period: Duration, senders: usize) -> Result<Self, Error> {
        let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let Some(period) = NonZeroU64::new(nanos).filter(|_| period <= Quota::MAX_PERIOD) else {
            return Err(Error::new(
                "the period of the quanta is 0 or above 2^63 - 1 ns (292 years): expected one between; \
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

    /// Quanta of 1/`senders` of a `period`.
    ///
    /// # Panics
    ///
    /// Where [`try_new`](Self::try_new) fails; meant for literals.
    #[track_caller]
    pub fn new(period: Duration, senders: usize) -> Self {
        Self::try_new(period, senders).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The period in which each sender has a quantum.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period.get())
    }

    /// The number of senders.
    pub fn senders(&self) -> usize {
        // It came from one.
        self.senders.get() as usize
    }

    /// The turn that `now` lies in.
    pub fn turn(&self, now: Timestamp) -> Turn {
        let (period, sender) = self.place(now);
        self.of(period, sender)
    }

    /// The first turn of `sender` that begins after `now`; `None` where there is no such sender.
    ///
    /// A turn that begins at `now` is not the next one, but [the present one](Self::turn).
    pub fn next(&self, now: Timestamp, sender: usize) -> Option<Turn> {
        let sender = u64::try_from(sender).ok();
        let sender = sender.filter(|sender| *sender < self.senders.get())?;
        let (period, current) = self.place(now);
        Some(self.of(period + u64::from(sender <= current), sender))
    }

    /// The number of turns that end after `from`, and at or before `until`.
    #[cfg(feature = "tokio")]
    pub(super) fn between(&self, from: Timestamp, until: Timestamp) -> u64 {
        let number = |now| {
            let (period, sender) = self.place(now);
            u128::from(period) * u128::from(self.senders.get()) + u128::from(sender)
        };
        let turns = number(until).saturating_sub(number(from));
        u64::try_from(turns).unwrap_or(u64::MAX)
    }

    /// The number of the period that `now` lies in, and the sender.
    fn place(&self, now: Timestamp) -> (u64, u64) {
        let period = self.period.get();
        let (number, offset) = (now.as_nanos() / period, now.as_nanos() % period);
        // The last one that begins at or before it: ⌈x⌉ ≤ offset just if x ≤ offset.
        let sender = u128::from(offset) * u128::from(self.senders.get()) / u128::from(period);
        (number, sender as u64)
    }

    fn of(&self, period: u64, sender: u64) -> Turn {
        Turn {
            sender: sender as usize,
            begins: self.beginning(period, sender),
            ends: self.beginning(period, sender + 1),
            missed: 0,
        }
    }

    /// When a quantum begins, or [`Timestamp::MAX`] beyond the end of time.
    fn beginning(&self, period: u64, sender: u64) -> Timestamp {
        let length = u128::from(self.period.get());
        let into = (u128::from(sender) * length).div_ceil(u128::from(self.senders.get()));
        let nanos = u128::from(period) * length + into;
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

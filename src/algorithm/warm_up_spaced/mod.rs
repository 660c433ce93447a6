//! A distance between calls that shrinks with use.

mod codec;
mod place;
mod script;
mod step;
mod text;
mod ticks;

use std::{num::NonZeroU64, time::Duration};

use self::ticks::Ticks;
use super::{
    of_quota::of_quota,
    span::Span,
    warm_curve::{COLD, Curve, LONGEST, OVER},
};
use crate::{
    clock::Timestamp,
    error::Error,
    quota::{Quota, Written},
};

/// A warm-up that spaces calls: the first ones of an idle key lie further apart than later ones.
///
/// For what is slow after a pause and wants no bursts. It is the form of Guava's `RateLimiter` with a warm-up
/// (`SmoothWarmingUp`). The answer to a call is how long it has to wait
/// ([`Verdict::Delay`](crate::Verdict::Delay)): until the calls before it are paid for. A call is paid by those
/// behind it, so that the first one of an idle key goes on at once, whatever its cost. Behind a layer the request
/// is held until then, which takes the feature `tokio` (`axum` and `tonic` bring it).
///
/// | setting | | default |
/// |---|---|---|
/// | [`over`](Self::over) | the time from cold to warm under full load | 10 s |
/// | [`cold`](Self::cold) | how many times longer the distance is when cold | 3 |
/// | [`max_wait`](Self::max_wait) | who would wait longer is refused at once | the same as `over` |
///
/// An idle key stores permits, up to a maximum at which it is cold: that is how it begins, and what it is again
/// when it has been idle for the time `over`. `2/s over=4s` stores up to 8. A permit that is spent costs 1.5 s at 8
/// stored, 0.5 s at 4 stored, the threshold, and below that; between them, the area under the straight line. A
/// permit that is not stored costs 0.5 s.
///
/// # What it guarantees
///
/// Between the departures of two calls lies at least the cost of the first, in permits, divided by the rate; so in
/// any span Δt at most the cost of one call + rate · Δt units depart, and of a cold key less: in its first `over`,
/// what it stores above the threshold, which is 2 / (cold + 1) of what the full rate gives, and one call's cost
/// more. The greatest cost is what a key can store, at least 1, and at most 2⁴⁰.
///
/// Departures are told to the nanosecond to which a delay is rounded up. Inside, time is counted in ticks of 2⁻³²
/// ns, to which the cost of a call and the cooling of a pause are rounded, in favour of the limit. So while calls
/// wait, a delay is too long by less than 2 · cold ticks for each call before it: six ticks, or a nanosecond for
/// 700 million calls. After a pause, a key that was later by a tick is warmer by one, and a pause can make three
/// ticks of it, until the key is cold again. The threshold and the maximum are rounded by less than a nanosecond,
/// towards the cold.
///
/// A store that runs a script beside its data counts in coarser ticks, as fine as its numbers allow: 2⁻¹⁵ ns over 10 s
/// from a third of the rate, with which a delay is longer by a nanosecond for 5,000 calls before it.
///
/// # What it does not guarantee
///
/// A call departs when its caller has waited, and a caller may oversleep: tokio's timer wakes in whole
/// milliseconds. A call that was admitted with other rules (a pair, `… & …`) waits for the longest delay of all.
///
/// # Calls that are cancelled or corrected
///
/// The call that was told its delay last gives its place back if it has not departed
/// ([`settle`](super::Algorithm::settle) to 0, which is what a layer does with a future that is dropped): the next
/// one is told its departure, and the key is as cold as before, or colder. If it cost less than was charged, the
/// key is left as if it had cost that from the beginning; one that has departed keeps the distance of one unit
/// behind it. Then the call before it is the last one.
///
/// Nothing is given back for calls in the middle, for those that were charged together with other rules or while
/// the clock had stepped back, and at a rate above 10⁹/s; nor where the state cannot tell any more how warm the key
/// was: for a call that began above the threshold and spent more than was stored, and for one before others that
/// did.
///
/// What a call cost more is paid by those behind it at the full rate, and warms nothing.
///
/// # What it costs
///
/// 32 bytes per key.
///
/// # When the rule changes
///
/// Who was told a delay keeps it, and the first call under the new rule departs behind them. How warm a key is
/// after them carries over as time: what lacks to the maximum, at the full rate; how fast it cools is up to the new
/// rule. So a new rate finds a key as warm as it was, and under a longer warm-up it is colder.
///
/// # When the clock steps back
///
/// Time stands still for a key at its last write, until the clock has caught up. Delays count from there, so that
/// no step makes one longer than the maximum; all other waits are on the clock, and contain the step.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, Timestamp};
/// use tollgate::algorithm::{Algorithm, WarmUpSpaced};
///
/// let rule = WarmUpSpaced::per_second(2).over(Duration::from_secs(4));
/// let (mut state, mut now) = (None, Timestamp::from_nanos(43_200_000_000_000));
/// let mut waits = [0; 7];
/// for wait in &mut waits {
///     let mut decision = rule.step(&mut state, now, Cost::ONE).decision();
///     let delay = decision.take_charge().unwrap().delay.unwrap();
///     *wait = delay.as_millis();
///     now = now.saturating_add(delay);
/// }
/// assert_eq!(waits, [0, 1375, 1125, 875, 625, 500, 500]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WarmUpSpaced {
    quota: Quota,
    curve: Curve,
    /// What a key can store, in whole permits, or 1.
    capacity: NonZeroU64,
    /// In nanoseconds.
    max_wait: u64,
    ticks: Ticks,
}

/// What a [`WarmUpSpaced`] remembers of a key: when the next departure is free, and how warm it is then.
// Packed: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct WarmUpSpacedState {
    written_at: Timestamp,
    /// From the last write to the next free departure.
    backlog: Span,
    warmth: Span,
}

impl WarmUpSpaced {
    /// A warm-up to `quota`, over 10 s and from a third of it, where calls wait for up to 10 s.
    pub const fn new(quota: Quota) -> Self {
        let Some(curve) = Curve::of(quota, OVER, COLD) else {
            unreachable!()
        };
        Self::on(quota, curve, OVER)
    }

    const fn on(quota: Quota, curve: Curve, max_wait: u64) -> Self {
        // At most 2^101.
        let permits = curve.most as u128 * curve.per_nano as u128 / curve.per_permit as u128;
        let permits = if permits < Quota::MAX_AMOUNT as u128 {
            permits as u64
        } else {
            Quota::MAX_AMOUNT
        };
        Self {
            quota,
            curve,
            capacity: match NonZeroU64::new(permits) {
                Some(permits) => permits,
                None => NonZeroU64::MIN,
            },
            max_wait,
            ticks: Ticks::FINEST,
        }
    }

    /// The same rule with a warm-up over another time; calls wait for as long, unless another maximum is set.
    ///
    /// # Panics
    ///
    /// Where [`try_over`](Self::try_over) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn over(self, time: Duration) -> Self {
        self.try_over(time)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same rule with a warm-up over another time; calls wait for as long, unless another maximum is set.
    ///
    /// # Errors
    ///
    /// When the time is zero, or it or what a key stores takes more than 73 years (2⁶¹ ns).
    pub fn try_over(self, time: Duration) -> Result<Self, Error> {
        let curve = Curve::try_new(self.quota, time, self.curve.cold())?;
        let max_wait = if self.max_wait == self.curve.over {
            curve.over
        } else {
            self.max_wait
        };
        Ok(Self::on(self.quota, curve, max_wait))
    }

    /// The same rule with a distance that is `factor` times longer when cold.
    ///
    /// # Panics
    ///
    /// Where [`try_cold`](Self::try_cold) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn cold(self, factor: u32) -> Self {
        self.try_cold(factor)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same rule with a distance that is `factor` times longer when cold.
    ///
    /// # Errors
    ///
    /// When the factor is not above 1, or above 1000.
    pub fn try_cold(self, factor: u32) -> Result<Self, Error> {
        self.try_cold_thousandths(1000 * u64::from(factor))
    }

    /// The same rule with a distance that is `thousandths` / 1000 times longer when cold.
    ///
    /// # Errors
    ///
    /// When that is not above 1, or above 1000; or so near to 1 that what a key stores takes more than 73 years
    /// (2⁶¹ ns).
    pub fn try_cold_thousandths(self, thousandths: u64) -> Result<Self, Error> {
        let over = Duration::from_nanos(self.curve.over);
        let curve = Curve::try_new(self.quota, over, thousandths)?;
        Ok(Self::on(self.quota, curve, self.max_wait))
    }

    /// The same rule, refusing at once what would wait longer than `wait`.
    ///
    /// # Panics
    ///
    /// Where [`try_max_wait`](Self::try_max_wait) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn max_wait(self, wait: Duration) -> Self {
        self.try_max_wait(wait)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same rule, refusing at once what would wait longer than `wait`.
    ///
    /// # Errors
    ///
    /// When `wait` is zero, or above 73 years (2⁶¹ ns).
    pub fn try_max_wait(self, wait: Duration) -> Result<Self, Error> {
        if wait.is_zero() {
            return Err(Error::new(
                "a max-wait of 0: expected a positive wait, as in `max-wait=5s`; \
                 where nothing may wait, use `warm-up` instead",
            ));
        }
        match u64::try_from(wait.as_nanos()) {
            Ok(max_wait) if max_wait <= LONGEST => Ok(Self { max_wait, ..self }),
            _ => Err(Error::new(format!(
                "a max-wait of {}: expected at most 73 years (2^61 ns); choose a shorter one",
                Written(wait)
            ))),
        }
    }

    /// The rate of a key that is warm.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// The greatest cost that could ever pass: what a key can store, at least 1.
    pub const fn capacity(&self) -> u64 {
        self.capacity.get()
    }

    /// The time from cold to warm under full load.
    pub const fn warms_over(&self) -> Duration {
        Duration::from_nanos(self.curve.over)
    }

    /// How many times longer the distance is when cold, in thousandths.
    pub const fn cold_thousandths(&self) -> u64 {
        self.curve.cold()
    }

    /// The maximum wait.
    pub const fn longest_wait(&self) -> Duration {
        Duration::from_nanos(self.max_wait)
    }
}

of_quota!(
    WarmUpSpaced,
    "A warm-up to `amount` calls a second, over 10 s and from a third of it.",
    "A warm-up to `amount` calls a minute, over 10 s and from a third of it.",
    "A warm-up to `amount` calls an hour, over 10 s and from a third of it.",
    "A warm-up to `amount` calls in a day of 24 hours, over 10 s and from a third of it."
);

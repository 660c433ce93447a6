//! A limit of calls in flight: its units are held while a call lasts, and then given back.
//!
//! A call is charged as under any other rule, and its end settles the charge to 0. So
//! stores need no function for it: all or nothing with other limits, dry runs, failure policies and
//! charges at a fallback work as they do for rates.
//!
//! A charge under a maximal hold lies in a span of time that ends when the hold does, rounded up.
//! The end follows from the instant of the charge, so a settlement finds its span, or finds that it
//! is over: units are given back once, by the call or by the end of the span. A key has about 18
//! spans, and 32 at most, for each hold, whatever the limit.
//!
//! A lease is such a hold that the node of the call renews: it moves the units to the span of a
//! later instant. So a state names no node and no call, and takes as little with a thousand nodes.
//! Rejected: an entry for each call, with which a refusal takes as long as there are calls; and one
//! for each node, whose count must be sent in the order in which its calls begin and end.

mod step;
mod wire;

use std::{fmt, num::NonZeroU64, time::Duration};

pub(super) use self::step::InFlightState;
use super::{
    Algorithm, StateKind,
    rule::{RuleWords, Setting, fmt_time, set, text},
};
use crate::{
    error::{Error, or_panic, panicking},
    quota::Quota,
    time::Timestamp,
};

/// Calls in flight: at most so many units are held at once.
///
/// Each admitted call takes its cost, and gives it back when it ends. A
/// [`RateLimitLayer`](crate::RateLimitLayer) does that exactly once: when the body of the response
/// has ended or is dropped, when the call is dropped, and when the inner service fails or panics;
/// see [`Permit`](crate::Permit). Everything else takes a permit by
/// [`Limiter::permit`](crate::Limiter::permit).
///
/// A rate does not see calls that last: slow ones pile up under one client. A limit of calls in
/// flight does not see calls that are short. Use both, as limits of one layer.
///
/// # Refusals
///
/// It refuses at once, unless calls [wait](#waiting). The end of a call is not known before it
/// ends, so the wait of a refusal is a guess: 0.5 to 1.5 seconds at random, or what
/// [`retry_after`](Self::retry_after) sets. Response fields have the unit `concurrent-requests`,
/// and no window; older formats announce the guess.
/// Refusals are never remembered, and count for [`block_after`](crate::store::Blocks::block_after)
/// only [if asked](crate::store::Blocks::count_calls_in_flight).
///
/// # Waiting
///
/// With [`wait_at_most`](Self::wait_at_most), a call of a layer that finds no room waits until
/// enough others have ended: first come, first served for each key. It holds nothing while it
/// waits, is counted, observed and answered when its wait is over, and is refused as without a wait
/// if it takes too long. At most as many units wait for a key as the rule has; calls beyond that
/// are refused at once. A call that is dropped while it waits passes its turn on.
///
/// | case | |
/// |---|---|
/// | another limit refuses the call, too | It is refused at once, also if that happens at its turn. |
/// | several limits let it wait | It waits for one at a time, by its time of arrival in each line, so that it does not keep a unit of one from the others; in all for the shortest of their waits. |
/// | another limit delays it | The delay begins after its turn. |
/// | nothing ends, but a maximal hold is over, or another rule has more room | The first of the line asks again after a sixteenth of the wait, 20 ms to a second. |
/// | another line is full of younger calls when it changes to that | It is refused. |
/// | a call of the same key whose rule does not wait, of a dry run or another layer | It regards no line, and may take room before the first of it. |
/// | [`Limiter::permit`](crate::Limiter::permit), calls outside of a runtime of tokio, and without the feature `tokio` | They do not wait. |
///
/// Limits of two layers may wait for each other's units until a wait ends: put them into one layer.
/// A call that is neither polled nor dropped holds up its line.
///
/// # Stores
///
/// In memory a key that holds units is never evicted, and inherits none; if there is [no
/// room](crate::store::AtCapacity) for one more, its call is undecided. A
/// [reset](crate::Limiter::reset) of a key keeps what calls hold: only their ends give it back, or
/// a maximal hold.
///
/// A node that dies never gives back what its calls hold. So stores that nodes share refuse the
/// rule, when a layer or a limiter is made, unless it has a [lease](Self::lease): each node renews
/// what its own calls hold, in the background, and what it does not renew comes back after the
/// lease. Spans are over by the clock of the store, if it has one. Counters,
/// [leases](crate::store::Leased) of units and [synchronisation](crate::store::Synced) have no rule
/// in flight. No more is admitted than the limit, but for these faults:
///
/// | fault | until | more than the limit | fewer |
/// |---|---|---|---|
/// | a node dies, or stops while calls end | the lease is over | | what its calls held |
/// | a node cannot renew for two thirds of the lease or longer | its next renewal | what its calls hold | |
/// | the store loses its data, a replica that lags takes over, or a key is reset | each call has been renewed | what was lost | |
/// | a release or the answer to an admission is lost | the lease is over | | its units |
/// | a timeout or a broken connection hides whether a renewal was made | the lease is over | | its units once more |
/// | the clock of the store jumps ahead by a lease | each call has been renewed | what calls hold | |
/// | | these calls end | | their units up to three times |
/// | the clock jumps back | it has caught up, and the lease is over | | what was lost meanwhile |
/// | hosts of a store without a clock, such as memcached, differ by two thirds of the lease | they agree | what the calls of those behind hold | |
///
/// An answer that is later than a third of the lease is a timeout, and its units are given back. So
/// are those of a client that hangs up while the store is asked. `Limiter::acquire` renews nothing.
///
/// Renewals need a runtime of tokio where the call begins, with its timer, and count real time,
/// also where a test moves the time. Elsewhere, in `Local` and other stores that answer at once, a
/// call holds its units until it ends, or its maximal hold is over, and its lease, or a day.
///
/// # With other settings
///
/// Conditions on the response ([`charge_if`](crate::Limit::charge_if)) and
/// [handles](crate::Limit::charge_handle) do not change what a call holds. A limit that [charges
/// after](crate::Limit::charge_after) the response only looks, and so holds nothing. A responder of
/// your own forwards [`carry_permit`](crate::respond::Respond::carry_permit) and
/// [`attach_permit`](crate::respond::Respond::attach_permit).
///
/// Under one key with another rule, as in a pair or in [`All`](super::All), it decides nothing, and
/// layers refuse to be made: what a call holds is given back, and what it spends of a rate is not.
/// Make it a limit of its own by [`also`](crate::RateLimitLayer::also).
///
/// # When the rule changes
///
/// Calls in flight count on. A lower limit admits nothing until enough have ended.
///
/// # Examples
///
/// ```
/// use tollgate::{Cost, InFlight, Timestamp};
/// use tollgate::algorithm::Algorithm;
///
/// let (rule, mut state, now) = (InFlight::at_most(2), None, Timestamp::default());
/// let first = rule.step(&mut state, now, Cost::ONE).decision().take_charge().unwrap();
/// assert!(rule.step(&mut state, now, Cost::ONE).decision().is_admitted());
/// assert!(!rule.step(&mut state, now, Cost::ONE).decision().is_admitted());
///
/// // The first call ends.
/// rule.settle(&mut state, &first, now, 0);
/// assert!(rule.step(&mut state, now, Cost::ONE).decision().is_admitted());
/// ```
#[doc(alias("concurrency", "concurrent requests", "bulkhead", "semaphore"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InFlight {
    most: NonZeroU64,
    /// In nanoseconds.
    max_hold: Option<NonZeroU64>,
    /// In nanoseconds.
    lease: Option<NonZeroU64>,
    /// In nanoseconds; `None` for a random wait.
    retry_after: Option<u64>,
    /// In nanoseconds; `None` to refuse at once.
    wait_at_most: Option<NonZeroU64>,
}

impl InFlight {
    /// The kind of its states, which a reset keeps: calls that go on still count.
    pub(crate) const STATES: StateKind = StateKind::named(Self::NAME);

    /// Creates a limit of `units` that are held at once.
    ///
    /// # Panics
    ///
    /// When [`try_at_most`](Self::try_at_most) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn at_most(units: u64) -> Self {
        or_panic(Self::try_at_most(units))
    }

    /// Creates a limit of `units` that are held at once.
    ///
    /// # Errors
    ///
    /// When `units` is 0 or above 2⁴⁰.
    pub fn try_at_most(units: u64) -> Result<Self, Error> {
        match NonZeroU64::new(units) {
            Some(most) if units <= Quota::MAX_AMOUNT => Ok(Self {
                most,
                max_hold: None,
                lease: None,
                retry_after: None,
                wait_at_most: None,
            }),
            _ => Err(Error::new(format!(
                "a limit of {units} in flight: expected 1 to 2^40 (1099511627776); to refuse \
                 everything, take the route away instead"
            ))),
        }
    }

    panicking! {
        /// Sets the longest time for which a call holds its units: then they are given back,
        /// although it goes on.
        ///
        /// Rounded up by a sixteenth at most. Without it, the default, a call that never ends holds
        /// its units for ever.
        ///
        /// When it strikes, a layer reports it to its observer:
        /// [`outlasted`](crate::observe::Observer::outlasted), the metric
        /// `tollgate_outlasted_units_total`. Without one, and for a
        /// [limiter](crate::Limiter::permit), it shows in memory once the call ends, in
        /// [`LocalStats::unsettled`](crate::store::LocalStats::unsettled).
        pub fn max_hold(self, time: Duration) = try_max_hold;
    }

    /// Sets the longest time for which a call holds its units, as [`max_hold`](Self::max_hold)
    /// does.
    ///
    /// # Errors
    ///
    /// When `time` is zero, or above [`Quota::MAX_PERIOD`].
    pub fn try_max_hold(self, time: Duration) -> Result<Self, Error> {
        let max_hold = nanos(time).ok_or_else(|| {
            Error::new(format!(
                "a maximal hold of {time:?}: expected 1 ns to 292 years; choose the time after which a \
                 call must have ended"
            ))
        })?;
        Ok(Self {
            max_hold: Some(max_hold),
            ..self
        })
    }

    panicking! {
        /// Sets the time after which the units of a call come back whose node has died. A node
        /// renews those of its own calls every third of it, so they last as long as the calls do.
        ///
        /// Rounded up by a sixteenth at most. Rules on [stores that nodes share](Self#stores) need
        /// it. Within it a node must renew in spite of pauses and short outages: 30 s serve. With a
        /// [maximal hold](Self::max_hold), renewals end then.
        pub fn lease(self, time: Duration) = try_lease;
    }

    /// Sets the time after which the units of a call come back whose node has died, as
    /// [`lease`](Self::lease) does.
    ///
    /// # Errors
    ///
    /// When `time` is below 100 milliseconds or above a day, or no whole number of microseconds.
    pub fn try_lease(self, time: Duration) -> Result<Self, Error> {
        let is_whole = time.subsec_nanos().is_multiple_of(1000);
        if !is_whole || !(Self::LEAST_LEASE..=Self::MOST_LEASE).contains(&time) {
            return Err(Error::new(format!(
                "a lease of {time:?}: expected 100 ms to a day, in whole microseconds; choose how long the \
                 calls of a node that has died may count, such as 30 s"
            )));
        }
        let lease = NonZeroU64::new(time.as_nanos() as u64);
        Ok(Self { lease, ..self })
    }

    const LEAST_LEASE: Duration = Duration::from_millis(100);
    const MOST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

    /// Sets the wait of refusals. Cut to 2⁶⁴ − 1 ns.
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Self {
            retry_after: Some(nanos),
            ..self
        }
    }

    panicking! {
        /// Lets a call of a layer that finds no room wait for [its turn](Self#waiting), for this
        /// long at most.
        ///
        /// ```
        /// use std::{convert::Infallible, time::Duration};
        /// use http::{Request, Response};
        /// use tollgate::{InFlight, RateLimitLayer};
        /// use tower::{Layer, Service, service_fn};
        ///
        /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
        /// let rule = InFlight::at_most(1).wait_at_most(Duration::from_secs(2));
        /// let mut service = RateLimitLayer::new(rule).layer(service_fn(async |_: Request<()>| {
        ///     tokio::time::sleep(Duration::from_secs(1)).await;
        ///     Ok::<_, Infallible>(Response::new(String::new()))
        /// }));
        ///
        /// let [first, second] = [(), ()].map(|()| service.call(Request::new(())));
        /// let (first, second) = tokio::join!(first, second);
        /// assert_eq!([first, second].map(|response| response.unwrap().status().as_u16()), [200, 200]);
        /// # }
        /// ```
        pub fn wait_at_most(self, time: Duration) = try_wait_at_most;
    }

    /// Lets a call of a layer that finds no room wait, as [`wait_at_most`](Self::wait_at_most)
    /// does.
    ///
    /// # Errors
    ///
    /// When `time` is zero, or above [`Quota::MAX_PERIOD`].
    pub fn try_wait_at_most(self, time: Duration) -> Result<Self, Error> {
        let wait = nanos(time).ok_or_else(|| {
            Error::new(format!(
                "a wait of at most {time:?}: expected 1 ns to 292 years; to refuse at once, leave it out"
            ))
        })?;
        Ok(Self {
            wait_at_most: Some(wait),
            ..self
        })
    }

    /// Returns the most units that are held at once.
    pub const fn capacity(&self) -> u64 {
        self.most.get()
    }

    pub(super) fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.most)?;
        fmt_time(f, "max-hold", self.max_hold)?;
        fmt_time(f, "lease", self.lease)?;
        fmt_time(f, "retry-after", self.retry_after)?;
        fmt_time(f, "wait-at-most", self.wait_at_most)
    }

    pub(super) fn of_words(words: &mut RuleWords<'_>) -> Result<Self, Error> {
        let column = words.column();
        let units = words.number("a number of units, as in `in-flight 8`")?;
        let rule = Self::try_at_most(units).map_err(|error| error.at_column(column))?;
        let names = ["max-hold", "lease", "retry-after", "wait-at-most"];
        let [max_hold, lease, retry_after, wait] = words.settings(&names)?;
        let rule = set(rule, max_hold, Setting::duration, Self::try_max_hold)?;
        let mut rule = set(rule, lease, Setting::duration, Self::try_lease)?;
        if let Some(word) = retry_after {
            rule = rule.retry_after(word.duration()?);
        }
        set(rule, wait, Setting::duration, Self::try_wait_at_most)
    }
}

/// Returns a time in nanoseconds, if it is a setting of the rule.
fn nanos(time: Duration) -> Option<NonZeroU64> {
    let nanos = u64::try_from(time.as_nanos()).ok();
    nanos
        .filter(|_| time <= Quota::MAX_PERIOD)
        .and_then(NonZeroU64::new)
}

text! {
    /// Parses `in-flight 8 max-hold=5m lease=30s retry-after=2s wait-at-most=1s`; all but the
    /// number may be left out.
    InFlight
}

/// Checks that a rule does not count calls in flight beside another one.
pub(crate) fn fits_in_memory(rule: &impl Algorithm) -> Result<(), Error> {
    if !rule.look(None, Timestamp::default()).is_unsupported() {
        return Ok(());
    }
    Err(Error::new(
        "the rule counts calls in flight beside another one, under one key: expected a limit for each, because what a call holds \
         is given back, and what it spends of a rate is not; add one of them to the layer by `.also(…)`",
    ))
}

/// Checks that a rule counts calls in flight only by a lease, for stores that nodes share.
pub(crate) fn fits_shared(rule: &impl Algorithm) -> Result<(), Error> {
    fits_in_memory(rule)?;
    let is_in_flight = rule.look(None, Timestamp::default()).is_in_flight();
    if is_in_flight && rule.renewal().is_none() {
        return Err(without_lease());
    }
    match rule.waits_for_turn() {
        Some(_) => Err(waits()),
        None => Ok(()),
    }
}

fn waits() -> Error {
    Error::new(
        "calls wait for their turn under the rule, in a store that nodes share: expected a rule that refuses at once, because \
         a node does not see the calls of others end; leave `wait-at-most` out, or keep calls in flight in memory, by a layer \
         of their own with `Local`",
    )
}

fn without_lease() -> Error {
    Error::new(
        "the rule counts calls in flight without a lease, in a store that nodes share: expected a lease, \
         because a node that dies never gives back what its calls hold; set it by `.lease(…)` or \
         `lease=30s`, or keep calls in flight in memory, by a layer of their own with `Local`",
    )
}

//! Budgets without requests: the state of a limit for anything that is not a request of a layer.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;

use crate::{
    algorithm::{Algorithm, Blockable},
    decision::{Charge, Cost, Decision, Decisions},
    error::{Error, or_panic},
    key::Key,
    live_rule::{LiveRule, OwnRule, RequestRule},
    policy::Policy,
    store::{
        Ask, BlockFuture, Blocks, Check, MayFail, NeverWaits, Progress, Settlement, Steps,
        StepsFuture, Store, run,
    },
    time::Timestamp,
};

/// A limit without requests: a policy, a rule and a store, for anything that has a key and a cost.
///
/// Use it for WebSocket frames, jobs, messages of another transport, and admin consoles. Requests
/// of a tower service have a [layer](crate::RateLimitLayer), and a worker that waits rather than
/// drop work a [`Pacer`](crate::pace::Pacer). A limiter and a layer share one budget if they have
/// the same store, policy name and kind of rule. A clone is cheap.
///
/// # Examples
///
/// Each call returns a [`Check`]. It can be awaited with any store; with a store in memory,
/// [`at_once`](Check::at_once) needs no runtime.
///
/// ```
/// use tollgate::{Limiter, Policy, prelude::*};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let store = Local::new();
/// let limiter = Limiter::new(Policy::new("frames"), TokenBucket::per_second(2), store.clone());
/// let alice = Key::bytes(b"alice");
///
/// assert!(limiter.check(alice, Cost::ONE).await.is_admitted());
/// assert!(limiter.check(alice, Cost::ONE).at_once().is_admitted());
/// assert!(!limiter.check(alice, Cost::ONE).at_once().is_admitted());
///
/// // A layer with the same budget.
/// let layer = RateLimitLayer::new(TokenBucket::per_second(2))
///     .named("frames")
///     .key(Header::new("x-user"))
///     .store(store);
/// # let _ = layer;
/// # }
/// ```
///
/// # Keys
///
/// Keys of different types are never equal: `"alice"` is not the key of a header with this value.
/// For the clients of a layer, use the key that its extractor makes:
///
/// | extractor of the layer | key |
/// |---|---|
/// | `Header`, `BearerToken` | `Key::bytes(b"alice")` |
/// | `PeerIp`, `ForwardedFor`, `Forwarded` | the address, as an `IpAddr`; of an IPv6 client the first address of its /64, such as `2001:db8:1:2::` |
/// | a closure | the same type: text is `"alice"`, a number `7_u64` |
/// | a tuple | [`Key::join`] of its parts |
/// | `Global` | [`Key::GLOBAL`] |
///
/// Or call [`extract`](crate::key::KeyExtractor::extract) of the extractor with a request.
///
/// # Errors of the store
///
/// With a store that cannot fail, such as [`Local`](crate::store::Local) or `redis.fail_open()`,
/// calls return plain values. With any other, they return a `Result` with the store's error
/// ([`MayFail`]).
///
/// # Delays
///
/// A rule that delays, such as a [`LeakyBucket`](crate::LeakyBucket), answers with
/// [`Verdict::Delay`](crate::Verdict::Delay). The caller waits: a
/// [program](crate::guide::pacing#several-processes) paces several processes like that. To let a
/// worker of one process wait for its turn, use a [`Pacer`](crate::pace::Pacer).
///
/// # Grants
///
/// [`grant`](Self::grant) refunds units to a key, at most up to its capacity. After m units were
/// spent at once, a grant of n:
///
/// | rule | effect |
/// |---|---|
/// | [`TokenBucket`](crate::TokenBucket) | the bucket holds n tokens more, at most its burst |
/// | [`ThreeColor`](crate::ThreeColor) | both buckets hold n tokens more, at most their bursts |
/// | [`Cascade`](crate::Cascade) | the first bucket holds n tokens more; the others keep their levels |
/// | [`FixedWindow`](crate::FixedWindow) | the count of the current window falls by n, at most to 0 |
/// | [`SlidingWindow`](crate::SlidingWindow) | the count of the current slice falls by n, at most to 0; older slices keep theirs |
/// | [`SlidingLog`](crate::SlidingLog) | n units of the newest calls are removed, one call after the other |
/// | [`WarmUp`](crate::WarmUp) | the usage of the key's last second falls by n, if that is the current second |
/// | [`LeakyBucket`](crate::LeakyBucket), [`WarmUpSpaced`](crate::WarmUpSpaced) | none: calls behind have their delays already |
/// | pairs and `… & …` | each rule as above; a log among them keeps its calls |
///
/// A [blocked](crate::store::Blocks) key stays blocked. Unblock a key of a `SlidingLog` before a
/// grant, which otherwise has no effect.
#[doc(alias("RateLimiter", "handle", "guard", "check"))]
pub struct Limiter<Rule, S>(pub(crate) Arc<LimiterParts<Rule, S>>);

pub(crate) struct LimiterParts<Rule, S> {
    policy: Policy,
    pub(crate) rule: OwnRule<Rule>,
    pub(crate) store: S,
}

impl_clone!(Limiter<Rule, S>, { 0 });

impl_debug!([Rule: std::fmt::Debug, S] Limiter<Rule, S>, |it|
    policy = it.0.policy, rule = it.0.rule
);

impl<Rule, S: Store<Rule>> Limiter<Rule, S> {
    /// Creates a limiter of a rule, whose states a store keeps under a policy.
    ///
    /// # Panics
    ///
    /// When the rule does not [fit](Store::fits) the store; see [`try_new`](Self::try_new).
    #[track_caller]
    pub fn new(policy: Policy, rule: Rule, store: S) -> Self {
        or_panic(Self::try_new(policy, rule, store))
    }

    /// Creates a limiter, for rules from configuration.
    ///
    /// # Errors
    ///
    /// When the rule does not [fit](Store::fits) the store.
    pub fn try_new(policy: Policy, rule: Rule, store: S) -> Result<Self, Error> {
        store.fits(&rule)?;
        Ok(Self::of(policy, OwnRule::Fixed(rule), store))
    }

    /// Creates a limiter of a rule that may change at any time. A rule that does not fit the store
    /// cannot be [set](LiveRule::set).
    ///
    /// # Panics
    ///
    /// When the current rule does not [fit](Store::fits) the store; see
    /// [`try_live`](Self::try_live).
    #[track_caller]
    pub fn live(policy: Policy, rule: &LiveRule<Rule>, store: S) -> Self
    where
        S: Clone + Send + Sync + 'static,
    {
        or_panic(Self::try_live(policy, rule, store))
    }

    /// Creates a limiter of a rule from configuration that may change at any time.
    ///
    /// # Errors
    ///
    /// When the current rule does not [fit](Store::fits) the store.
    pub fn try_live(policy: Policy, rule: &LiveRule<Rule>, store: S) -> Result<Self, Error>
    where
        S: Clone + Send + Sync + 'static,
    {
        let (name, watched) = (policy.clone(), store.clone());
        let fits = move |rule: &Rule| {
            watched.fits(rule).map_err(|error| {
                Error::new(format!(
                    "the store cannot run the rule of the limiter `{name}`: expected a rule that fits the store: {error}; or keep \
                     the current rule"
                ))
            })
        };
        let rule = OwnRule::Live {
            _watch: rule.watch(fits)?,
            rule: rule.clone(),
        };
        Ok(Self::of(policy, rule, store))
    }
}

impl<Rule, S> Limiter<Rule, S> {
    /// Returns the policy.
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    fn of(policy: Policy, rule: OwnRule<Rule>, store: S) -> Self {
        Self(Arc::new(LimiterParts {
            policy,
            rule,
            store,
        }))
    }

    /// Returns the current rule.
    pub fn rule(&self) -> Rule
    where
        Rule: Clone,
    {
        self.0.rule.get()
    }

    /// Returns the store, for its counters.
    pub fn store(&self) -> &S {
        &self.0.store
    }

    pub(crate) fn ask<'a>(
        &'a self,
        storage: &'a mut RequestRule<Rule>,
        key: impl Into<Key>,
        cost: Cost,
    ) -> [Ask<'a, Rule>; 1] {
        let rule = storage.or_current(&self.0.rule);
        [Ask::new(self.policy(), rule, key.into(), cost)]
    }
}

impl<Rule, S: Store<Rule, Error: MayFail>> Limiter<Rule, S> {
    /// Spends `cost` units of a key if the rule allows it. Returns a [`Decision`](crate::Decision).
    ///
    /// # Cancellation
    ///
    /// A future that is dropped is charged once at most.
    pub fn check(&self, key: impl Into<Key>, cost: Cost) -> Check<LimiterFuture<S::Answer>> {
        let mut storage = RequestRule::default();
        call(self.store().acquire(&self.ask(&mut storage, key, cost)))
    }

    /// Returns the decision that one unit of a key would get. Changes nothing.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, prelude::*};
    ///
    /// let limiter = Limiter::new(Policy::new("jobs"), TokenBucket::per_hour(100), Local::new());
    /// let _ = limiter.check("alice", Cost::ONE).at_once();
    /// assert_eq!(limiter.look("alice").at_once().remaining(), Some(99));
    /// ```
    pub fn look(&self, key: impl Into<Key>) -> Check<LimiterFuture<S::Answer>> {
        let mut storage = RequestRule::default();
        call(self.store().look(&self.ask(&mut storage, key, Cost::ONE)))
    }

    /// Removes the states of a key. Its next call is that of a new key. What calls
    /// [hold](Self::permit) stays held until they end.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, prelude::*};
    ///
    /// let limiter = Limiter::new(Policy::new("jobs"), TokenBucket::per_hour(1), Local::new());
    /// let _ = limiter.check("alice", Cost::ONE).at_once();
    /// limiter.reset("alice").at_once();
    /// assert!(limiter.check("alice", Cost::ONE).at_once().is_admitted());
    /// ```
    pub fn reset(&self, key: impl Into<Key>) -> Check<LimiterFuture<S::Done>> {
        call(self.store().reset(self.policy(), &key.into()))
    }

    /// Corrects an earlier charge of a key to its actual cost in units: less refunds units, more
    /// is charged, even into debt.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, prelude::*};
    ///
    /// let limiter = Limiter::new(Policy::new("jobs"), TokenBucket::per_hour(100), Local::new());
    /// let mut decision = limiter.check("alice", Cost::new(40).unwrap()).at_once();
    /// // The job turned out to cost 10.
    /// let charge = decision.take_charge().unwrap();
    /// limiter.settle("alice", charge, 10)?.at_once();
    /// assert_eq!(limiter.look("alice").at_once().remaining(), Some(90));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// A limiter of a [`LiveRule`] settles by the current rule, and the charge of a rule of another
    /// kind is no charge of that one: do not change the kind while charges are open. Calls in
    /// flight take a [`permit`](Self::permit), which keeps the rule that charged.
    ///
    /// # Errors
    ///
    /// When another policy made the charge, as [`Settlement::new`] does.
    ///
    /// # Cancellation
    ///
    /// The settlement should be made even if its future is dropped.
    pub fn settle(
        &self,
        key: impl Into<Key>,
        charge: Charge,
        actual: u64,
    ) -> Result<Check<LimiterFuture<S::Done>>, Error> {
        let mut storage = RequestRule::default();
        let rule = storage.or_current(&self.0.rule);
        let settlement = Settlement::new(self.policy(), rule, key.into(), charge, actual)?;
        Ok(call(self.store().settle(vec![settlement])))
    }
}

impl<Rule: Algorithm, S: Store<Rule, Error: MayFail>> Limiter<Rule, S> {
    /// Gives `units` back to a key, for example after an outage: at most up to its capacity.
    /// Returns how the key stands afterwards.
    ///
    /// The [table](Self#grants) has the effect under each rule. The store looks at the key,
    /// settles, and looks again; a [`SlidingLog`](crate::SlidingLog) does that for each call that
    /// it refunds. Calls that a log gets meanwhile may be refunded, too; those above its limit
    /// count as one unit each. A log of a blocked key gets nothing.
    ///
    /// Nothing is granted if the decision is [undecided](crate::Decision::is_undecided).
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, prelude::*};
    ///
    /// let limiter = Limiter::new(Policy::new("jobs"), TokenBucket::per_hour(100), Local::new());
    /// let _ = limiter.check("alice", Cost::new(40).unwrap()).at_once();
    /// assert_eq!(limiter.grant("alice", 10).at_once().remaining(), Some(70));
    /// assert_eq!(limiter.grant("alice", 1000).at_once().remaining(), Some(100));
    /// ```
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, all, some or none of the units are granted.
    #[doc(alias("refund", "top up"))]
    pub fn grant(
        &self,
        key: impl Into<Key>,
        units: u64,
    ) -> Check<LimiterFuture<StepsFuture<Grant<Rule, S>>>> {
        let grant = Grant::new(self.clone(), key.into(), units);
        let look = grant.look();
        call(run(grant, look))
    }
}

impl<Rule, S> Limiter<Rule, Blocks<S>>
where
    Rule: Algorithm,
    S: Store<Blockable<Rule>, Error: MayFail>,
{
    /// Refuses all calls of a key for `duration`, on every node that keeps [blocks](Blocks) in this
    /// store.
    ///
    /// Returns the time for which the key is blocked now: at least `duration`, because an earlier
    /// block may last longer. `None` if the store failed or had no room, and the key is not
    /// blocked.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Policy, prelude::*};
    ///
    /// let limiter = Limiter::new(
    ///     Policy::new("api"),
    ///     TokenBucket::per_second(10),
    ///     Local::new().with_blocks(),
    /// );
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(limiter.block("mallory", minute)?.at_once(), Some(minute));
    ///
    /// let refused = limiter.check("mallory", Cost::ONE).at_once();
    /// assert!(!refused.is_admitted() && refused.retry_after() > Some(Duration::from_secs(59)));
    ///
    /// limiter.unblock("mallory").at_once();
    /// assert!(limiter.check("mallory", Cost::ONE).at_once().is_admitted());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the duration is zero or above 365 days.
    pub fn block(
        &self,
        key: impl Into<Key>,
        duration: Duration,
    ) -> Result<Check<LimiterFuture<BlockFuture<Rule, S>>>, Error> {
        Ok(call(self.store().block(self.policy(), key, duration)?))
    }

    /// Removes the block of a key. Its limit stays as it is.
    pub fn unblock(&self, key: impl Into<Key>) -> Check<LimiterFuture<S::Done>> {
        call(self.store().unblock(self.policy(), key))
    }
}

/// Refunds units to a key by a settlement, between two looks.
// By steps, as a call with blocks: an `async` block allocates 312 bytes for each grant, takes 15 %
// more instructions (3,580 with a check beside it), and has no name to be `NeverWaits` with.
pub struct Grant<Rule, S> {
    limiter: Limiter<Rule, S>,
    /// The rule when the grant began: the limiter's may change between two looks.
    rule: Rule,
    key: Key,
    units: u64,
    /// The remaining units and the entry of the last look, before its settlement.
    before: Option<(u64, Option<Timestamp>)>,
}

impl<Rule: Algorithm, S: Store<Rule>> Grant<Rule, S> {
    fn new(limiter: Limiter<Rule, S>, key: Key, units: u64) -> Self {
        Self {
            rule: limiter.rule(),
            limiter,
            key,
            units,
            before: None,
        }
    }

    /// Looks at the key.
    fn look(&self) -> Progress<Self> {
        let ask = Ask::new(self.limiter.policy(), &self.rule, self.key, Cost::ONE);
        Progress::Answer(self.limiter.store().look(&[ask]))
    }

    /// Goes on after a look.
    fn looked(&mut self, look: Decision) -> Progress<Self> {
        let (Some(remaining), Some(limit)) = (look.remaining(), look.limit()) else {
            // Undecided: the caller sees that, and nothing is granted.
            return Progress::Finished(Ok(look));
        };
        if look.is_in_flight() {
            // Only the end of a call gives back what it holds.
            return Progress::Finished(Ok(look));
        }
        let rule = &self.rule;
        // While a key is blocked, a look does not show its log.
        let entry = rule.grant_at(&look).filter(|_| !look.is_of_block());
        if let Some((before, refunded)) = self.before {
            // A log refunds one entry at a time. Above its limit a look does not show its units.
            // A newer one was not there before.
            let is_whole = entry < refunded;
            let given = remaining.saturating_sub(before).max(u64::from(is_whole));
            self.units = self.units.saturating_sub(given);
            if given == 0 || entry.is_none() {
                self.units = 0;
            }
        }
        let units = self.units.min(limit);
        if units == 0 || remaining >= limit && look.reset_after().is_zero() {
            return Progress::Finished(Ok(look));
        }
        self.before = Some((remaining, entry));
        let slack = rule.grant_slack().unwrap_or(0);
        let at = entry.unwrap_or(look.at());
        let charge = Charge::new(at, units.saturating_add(slack));
        let settlement = Settlement::new(self.limiter.policy(), rule, self.key, charge, slack);
        match settlement {
            Ok(settlement) => {
                let grant = vec![settlement.into_grant()];
                Progress::Done(self.limiter.store().settle(grant))
            }
            // It has the policy of no other charge.
            Err(_) => Progress::Finished(Ok(look)),
        }
    }
}

impl_debug!(Grant<Rule, S>);

impl<Rule: Algorithm, S: Store<Rule>> Steps for Grant<Rule, S> {
    type Answer = S::Answer;
    type Done = S::Done;
    type Output = Result<Decision, S::Error>;

    fn answered(&mut self, answer: Result<Decisions, S::Error>) -> Progress<Self> {
        match answer {
            Ok(decisions) => match decisions.as_slice() {
                [look, ..] => self.looked(*look),
                [] => Progress::Finished(Ok(Decision::unsupported(Timestamp::default()))),
            },
            Err(error) => Progress::Finished(Err(error)),
        }
    }

    fn done(&mut self, done: Result<(), S::Error>) -> Progress<Self> {
        match done {
            Ok(()) => self.look(),
            Err(error) => Progress::Finished(Err(error)),
        }
    }
}

pin_project! {
    /// The future of a call of a [`Limiter`](crate::Limiter).
    ///
    /// Its output is plain if the store cannot fail, and a `Result` otherwise; see [`MayFail`].
    ///
    /// ```
    /// use tollgate::{Cost, Decision, Limiter, Policy, TokenBucket, prelude::*};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let limiter = Limiter::new(Policy::new("jobs"), TokenBucket::per_second(10), Local::new());
    /// let decision: Decision = limiter.check("alice", Cost::ONE).await;
    /// assert!(decision.is_admitted());
    /// # }
    /// ```
    #[must_use = "futures do nothing unless polled or awaited"]
    pub struct LimiterFuture<F> {
        #[pin]
        call: F,
    }
}

impl_debug!(LimiterFuture<F>);

/// A result of a store, which a limiter returns as another type.
pub trait Plain {
    /// The type that the limiter returns.
    type Plain;

    /// Converts the result.
    fn plain(self) -> Self::Plain;
}

impl Plain for Decisions {
    type Plain = Decision;

    /// Returns the decision about the only ask.
    fn plain(self) -> Decision {
        let decision = self.as_slice().first().copied();
        // A store without an answer is wrong, and opens no gate.
        decision.unwrap_or_else(|| Decision::unsupported(Timestamp::default()))
    }
}

macro_rules! plain {
    ($($Type:ty),+) => {$(
        impl Plain for $Type {
            type Plain = Self;

            fn plain(self) -> Self {
                self
            }
        }
    )+};
}

plain!(Decision, Option<Duration>, ());

/// Converts the result of a call.
fn output<T: Plain, E: MayFail>(result: Result<T, E>) -> E::Output<T::Plain> {
    E::output(result.map(T::plain))
}

/// Converts a call to a store into one of a limiter.
pub(crate) fn call<F, T, E>(check: Check<F>) -> Check<LimiterFuture<F>>
where
    F: Future<Output = Result<T, E>>,
    T: Plain,
    E: MayFail,
{
    match check {
        Check::Ready(result) => Check::Ready(output(result)),
        Check::Pending(call) => Check::Pending(LimiterFuture { call }),
    }
}

impl<F, T, E> Future for LimiterFuture<F>
where
    F: Future<Output = Result<T, E>>,
    T: Plain,
    E: MayFail,
{
    type Output = E::Output<T::Plain>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(output(ready!(self.project().call.poll(cx))))
    }
}

impl<F, T, E> NeverWaits for LimiterFuture<F>
where
    F: NeverWaits + Future<Output = Result<T, E>>,
    T: Plain,
    E: MayFail,
{
    fn at_once(self) -> Self::Output {
        output(self.call.at_once())
    }
}

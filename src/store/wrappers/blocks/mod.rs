//! Blocks of keys: all calls of a blocked key are refused for some time, whatever its limit.

mod acquiring;
#[cfg(feature = "tokio")]
mod unblocked;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use smallvec::SmallVec;

pub(crate) use self::acquiring::BlockFuture;
use self::acquiring::{
    AcquirePhase, Acquiring, AfterRefusals, BlockAfter, Blockage, is_any_blocked, times_left,
};
#[cfg(feature = "tokio")]
pub(crate) use self::unblocked::Unblocked;
use crate::{
    algorithm::{Algorithm, Block, Blockable},
    decision::Cost,
    error::{Error, or_panic},
    key::Key,
    policy::Policy,
    stats::Counter,
    store::{
        Ask, Backend, BoxFuture, Check, FleetStore, OwnedAsks, Progress, Renewed, Settlement,
        StepsFuture, Store, delegate, run,
    },
    time::{Clock, SharedClock, SystemClock},
};

/// A store whose keys can be blocked: while a block lasts, all calls of the key are refused, and
/// its limit is not charged.
///
/// Created by [`with_blocks`](crate::store::StoreExt::with_blocks). A block is a state of its own
/// in the same store, so it holds on every node and is as durable as the other states. Each node
/// that has to see it needs this wrapper. Clones share the counters.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, Policy, prelude::*};
///
/// let store = Local::new().with_blocks();
/// let limiter = Limiter::new(Policy::new("api"), TokenBucket::per_second(10), store.clone());
/// // The key of a client of the layer below.
/// let mallory = Key::bytes(b"mallory");
/// limiter.block(mallory, Duration::from_secs(3600))?.at_once();
///
/// // A layer refuses mallory as well.
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10))
///     .named("api")
///     .key(Header::new("x-user"))
///     .store(store.clone());
/// # let _ = layer;
/// assert!(!limiter.check(mallory, Cost::ONE).at_once().is_admitted());
/// assert_eq!((store.made(), store.refused()), (1, 1));
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// # Blocks
///
/// A block belongs to a policy and a key. It lasts from 1 ms to 365 days, in whole milliseconds
/// rounded up. A longer block replaces a shorter one, and a shorter one changes nothing;
/// [`unblock`](Self::unblock) removes it. A `reset` of the key leaves it.
///
/// The store keeps it under the name of the policy with `!blocked` behind it: `api!blocked`. No
/// policy of yours can have such a name.
///
/// # Cost
///
/// A call looks at the blocks before it is decided: with a server that is a second round trip (but
/// see the [order](#order-of-wrappers)), and in memory about 150 ns. To refuse blocked keys without
/// asking a server, put [`remember_refusals`](crate::store::StoreExt::remember_refusals) around
/// this wrapper. A request that is on its way while its key is blocked may still be admitted.
///
/// A [`Local`](crate::store::Local) evicts no block. It has no room for a new one if it is at its
/// capacity and no key has expired; see [`failed`](Self::failed). A block takes about 101 bytes
/// there.
///
/// # Rules
///
/// Keys of every rule can be blocked. The store inside runs the rule as [`Blockable`]: a rule, or a
/// block, whose state is an instant and a level. The compiler finds that type, so write it only
/// where you name the store's type, as in `Redis<Blockable<AnyRule>>`. Counters such as
/// `MemcachedCounters` cannot keep blocks.
///
/// # Order of wrappers
///
/// Put it next to the store, so that [`block`](Self::block) returns the store's error, or outside
/// of `fail_open` and its kind. While such a store fails, no key is blocked.
///
/// Put it outside of leases and of background synchronisation: inside, calls that these admit from
/// memory would not see a block, so a layer or a limiter with that order is refused when it is
/// built. A block is in the store when `block` returns. This node refuses from then on, and others
/// as soon as they look: within a second around leases, and within the period around
/// synchronisation, in the background, so that a call of a busy key needs no round trip. A key that
/// was not called for that long costs one, and so does each call of a blocked key. While the server
/// does not answer, keys are looked at in vain: once the last look is that old, calls fail.
/// Refusals that a lease or a view decides count for [`block_after`](Self::block_after).
#[doc(alias("ban", "penalty", "jail", "blocklist"))]
#[must_use]
pub struct Blocks<S> {
    store: Arc<S>,
    policies: Arc<BlockPolicies>,
    counters: Arc<BlockCounters>,
    after: Option<Arc<BlockAfter>>,
    counts_in_flight: bool,
    clock: SharedClock,
}

impl<S> Blocks<S> {
    pub(in crate::store) fn new(store: S) -> Self {
        Self {
            store: Arc::new(store),
            policies: Arc::default(),
            counters: Arc::default(),
            after: None,
            counts_in_flight: false,
            clock: Arc::new(SystemClock::default()),
        }
    }

    /// Blocks a key for `duration` when it is refused for the `refusals`-th time within `period`.
    ///
    /// Refusals of requests are counted in the memory of this process, for up to 16,384 keys at the
    /// same time: also those by leases, by a view, by [remembered
    /// refusals](crate::store::StoreExt::remember_refusals) around this wrapper, and by the look of
    /// a [charge after the response](crate::Limit::charge_after). A refusal of a blocked key, and a
    /// look of a [`Limiter`](crate::Limiter), do not count; neither does one under a token bucket
    /// that [keeps tokens free](crate::TokenBucket::keep_free), because other calls of the key may
    /// pass. Those of a [dry run](crate::Limit::dry_run) count, and block the key for that limit
    /// alone. Only the block itself is written to the store, and one that another node made
    /// meanwhile stays as it is. The request that is refused last waits for that. Other nodes see
    /// the block, but not the count.
    ///
    /// Keys that clients share are not blocked, because one client could have all others refused:
    /// refusals of [`Key::GLOBAL`], which is the default key of a limit, and of [shared
    /// keys](Key::shared) do not count. **A key by route, host, path or method is shared as well,
    /// but looks like that of a client:** put such limits on a store without `block_after`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Policy, prelude::*};
    ///
    /// let store = Local::new().with_blocks();
    /// let store = store.block_after(3, Duration::from_secs(10), Duration::from_secs(3600));
    /// let limiter = Limiter::new(Policy::new("login"), TokenBucket::per_minute(1), store.clone());
    /// let mut check = || limiter.check("mallory", Cost::ONE).at_once();
    ///
    /// assert!(check().is_admitted());
    /// assert!((0..2).all(|_| check().retry_after() <= Some(Duration::from_secs(60))));
    /// assert!(check().retry_after() > Some(Duration::from_secs(3590)));
    /// assert_eq!(store.made(), 1);
    /// ```
    ///
    /// # Panics
    ///
    /// When [`try_block_after`](Self::try_block_after) fails; meant for literals.
    #[track_caller]
    #[doc(alias = "fail2ban")]
    pub fn block_after(self, refusals: u64, period: Duration, duration: Duration) -> Self {
        or_panic(self.try_block_after(refusals, period, duration))
    }

    /// Blocks a key for `duration` when it is refused for the `refusals`-th time within `period`,
    /// for settings from configuration.
    ///
    /// # Errors
    ///
    /// When `refusals` is 0 or above 1000, `period` is zero or above 2⁶³ − 1 ns, or `duration` is
    /// zero or above 365 days.
    pub fn try_block_after(
        self,
        refusals: u64,
        period: Duration,
        duration: Duration,
    ) -> Result<Self, Error> {
        let settings = AfterRefusals::new(refusals, period, duration)?;
        let after = BlockAfter::new(settings, Arc::clone(&self.clock));
        Ok(Self {
            after: Some(Arc::new(after)),
            ..self
        })
    }

    /// Counts refusals of [calls in flight](crate::InFlight), too, for
    /// [`block_after`](Self::block_after). By default they do not count, because they depend on how
    /// long the server takes. Of a call that [waits](crate::InFlight#waiting), the refusal at the
    /// end of its wait counts.
    pub fn count_calls_in_flight(self) -> Self {
        Self {
            counts_in_flight: true,
            ..self
        }
    }

    /// Sets another clock than the system's, by which [refusals are counted](Self::block_after).
    /// Blocks last by the clock of the store.
    pub fn clock(mut self, clock: impl Clock + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        if let Some(after) = &mut self.after {
            *after = Arc::new(BlockAfter::new(after.settings, Arc::clone(&self.clock)));
        }
        self
    }

    /// Refuses all calls of a key for `duration`, also of one that clients share. Returns the time
    /// for which the key is blocked now, which is longer if an earlier block lasts longer.
    ///
    /// `None` is for a store that could not make the block, because it failed behind a wrapper such
    /// as `fail_open`, or had no room. A block costs one call. If several nodes block a key at
    /// once, the longest block holds.
    ///
    /// [`Limiter::block`](crate::Limiter) is the same for the policy of the limiter.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Policy, algorithm::Blockable, prelude::*};
    ///
    /// let store = Local::<Blockable<TokenBucket>>::new().with_blocks();
    /// let day = Duration::from_secs(86_400);
    /// let blocked = store.block(&Policy::new("api"), "mallory", day)?.at_once();
    /// assert_eq!(blocked, Ok(Some(day)));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the duration is zero or above 365 days.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped may have blocked the key.
    pub fn block<Rule>(
        &self,
        policy: &Policy,
        key: impl Into<Key>,
        duration: Duration,
    ) -> Result<Check<BlockFuture<Rule, S>>, Error>
    where
        Rule: Algorithm,
        S: Store<Blockable<Rule>>,
    {
        let (charge, blockage) = self.charge(policy, key.into(), Block::try_new(duration)?);
        Ok(run(blockage, Progress::Answer(charge)))
    }

    /// Removes the block of a key, and forgets the refusals that this process has counted. Its
    /// limit stays as it is.
    pub fn unblock<Rule>(&self, policy: &Policy, key: impl Into<Key>) -> Check<S::Done>
    where
        S: Store<Blockable<Rule>>,
    {
        let key = key.into();
        if let Some(after) = &self.after {
            after.forget(policy, &key);
        }
        self.store.reset(&self.policies.of(policy), &key)
    }

    /// Starts the call that blocks a key. The [`Blockage`] takes in its answer.
    fn charge<Rule>(
        &self,
        policy: &Policy,
        key: Key,
        block: Block,
    ) -> (Check<S::Answer>, Blockage<Rule, S>)
    where
        Rule: Algorithm,
        S: Store<Blockable<Rule>>,
    {
        let blockage = Blockage::new(block, &self.counters);
        let (policy, rule) = (self.policies.of(policy), Blockable::Block(block));
        let ask = Ask::new(&policy, &rule, key, Cost::ONE);
        (self.store.acquire(&[ask]), blockage)
    }

    /// Returns the number of keys whose refusals are [counted](Self::block_after), at most 16,384.
    pub fn counted_keys(&self) -> usize {
        self.after.as_ref().map_or(0, |after| after.len())
    }

    /// Returns the number of blocks that were made by this process.
    pub fn made(&self) -> u64 {
        self.counters.made.get()
    }

    /// Returns the number of blocks that could not be made: the store failed or had no room, or the
    /// call was dropped.
    pub fn failed(&self) -> u64 {
        self.counters.failed.get()
    }

    /// Returns the number of calls that were refused because a key was blocked, with those of
    /// [dry runs](crate::Limit::dry_run), which refuse no request.
    pub fn refused(&self) -> u64 {
        self.counters.refused.get()
    }

    /// Returns the number of refusals that were not [counted](Self::block_after), because 16,384
    /// other keys were refused within the period.
    pub fn uncounted(&self) -> u64 {
        self.counters.uncounted.get()
    }

    /// Returns the wrapped store, for example to read its counters.
    pub fn get_ref(&self) -> &S {
        &self.store
    }

    /// Looks at the blocks of the keys of some asks, and at `more`.
    fn look_at_blocks<Rule>(
        &self,
        asks: &[Ask<'_, Rule>],
        more: &[Ask<'_, Blockable<Rule>>],
    ) -> Check<S::Answer>
    where
        Rule: Algorithm,
        S: Store<Blockable<Rule>>,
    {
        let rule = Blockable::Block(Block::LOOK);
        let policies: SmallVec<[Policy; 2]> = asks
            .iter()
            .map(|ask| self.policies.of(ask.policy()))
            .collect();
        let blocks = asks.iter().zip(&policies);
        let blocks = blocks.map(|(ask, policy)| Ask::new(policy, &rule, *ask.key(), Cost::ONE));
        let more = more.iter().copied();
        let looks: SmallVec<[Ask<'_, Blockable<Rule>>; 2]> = blocks.chain(more).collect();
        self.store.look(&looks)
    }
}

/// Checks that a store has no blocks, because a wrapper around it admits calls from memory.
///
/// # Errors
///
/// When there are: calls that the wrapper admits would not see a block.
#[cfg(feature = "tokio")]
pub(crate) fn no_blocks_inside(store: &impl Backend, wrapper: &str) -> Result<(), Error> {
    if store.refuses_beyond_rules() {
        return Err(Error::new(format!(
            "blocks inside of `.{wrapper}(…)`: expected them outside, because calls that are admitted from memory would not see a block; write \
             `.{wrapper}(…).with_blocks()`"
        )));
    }
    Ok(())
}

/// The rules of asks, as the store inside runs them.
type BlockableRules<Rule> = SmallVec<[Blockable<Rule>; 1]>;

fn rules_of<Rule: Algorithm>(asks: &[Ask<'_, Rule>]) -> BlockableRules<Rule> {
    asks.iter().map(|ask| Blockable::of(ask.rule())).collect()
}

/// Returns the asks under such rules.
fn under<'a, Rule>(
    asks: &[Ask<'a, Rule>],
    rules: &'a [Blockable<Rule>],
) -> SmallVec<[Ask<'a, Blockable<Rule>>; 1]> {
    let asks = asks.iter().zip(rules);
    asks.map(|(ask, rule)| ask.under(rule)).collect()
}

impl_clone!([S] Blocks<S>, { store, policies, counters, after, counts_in_flight, clock });
impl_debug!(
    [S: fmt::Debug] Blocks<S>,
    |it| store = it.store, made = it.made(), failed = it.failed(),
    refused = it.refused(), uncounted = it.uncounted()
);

impl<S: Backend> Backend for Blocks<S> {
    type Error = S::Error;

    delegate!(Backend, self => self.store; identity, unsettled);

    fn refuses_beyond_rules(&self) -> bool {
        true
    }

    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool {
        let own = self.after.as_ref();
        let is_last = own.is_some_and(|after| after.is_last(policy, key, &self.counters));
        self.store.note_refusal(policy, key) || is_last
    }
}

impl<S, Rule> Store<Rule> for Blocks<S>
where
    S: Store<Blockable<Rule>>,
    Rule: Algorithm,
{
    type Answer = StepsFuture<Acquiring<Rule, S>>;
    type Done = S::Done;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let blocks = self.look_at_blocks(asks, &[]);
        let rules = rules_of(asks);
        let asks = under(asks, &rules);
        let (phase, next) = match blocks {
            Check::Ready(Ok(blocks)) if !is_any_blocked(&times_left(blocks.as_slice())) => {
                match self.store.acquire(&asks) {
                    Check::Ready(Ok(decisions))
                        if self.after.is_none() || decisions.is_admitted() =>
                    {
                        return Check::Ready(Ok(decisions));
                    }
                    decisions => (AcquirePhase::Deciding, decisions),
                }
            }
            blocks => (AcquirePhase::AtBlocks, blocks),
        };
        let steps = Acquiring::new(self.clone(), OwnedAsks::new(&asks), phase);
        run(steps, Progress::Answer(next))
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let rules = rules_of(asks);
        let all = under(asks, &rules);
        let looks = self.look_at_blocks(asks, &all);
        let steps = Acquiring::new(self.clone(), OwnedAsks::new(&all), AcquirePhase::AtAll);
        run(steps, Progress::Answer(looks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let rules = settlements
            .iter()
            .map(|settlement| Blockable::of(settlement.rule));
        let rules: BlockableRules<Rule> = rules.collect();
        let settlements = settlements.into_iter().zip(&rules);
        let under = settlements.map(|(settlement, rule)| settlement.under(rule));
        self.store.settle(under.collect())
    }

    fn renew(&self, renewal: Settlement<'_, Rule>) -> BoxFuture<Renewed> {
        let rule = Blockable::of(renewal.rule);
        self.store.renew(renewal.under(&rule))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.store.reset(policy, key)
    }

    /// Checks the rule of blocks, too.
    fn fits(&self, rule: &Rule) -> Result<(), Error> {
        self.store.fits(&Blockable::of(rule))?;
        self.store.fits(&Blockable::Block(Block::LOOK))
    }

    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>> {
        Some(self)
    }
}

impl<S, Rule> FleetStore<Rule> for Blocks<S>
where
    S: Store<Blockable<Rule>>,
    Rule: Algorithm,
{
    delegate!(FleetStore, self => self.store; count_node);
}

/// The policies under which blocks are kept, by the digest of the limit's policy. Beyond 32, they
/// are created for each call.
#[derive(Debug, Default)]
struct BlockPolicies([OnceLock<(u64, Policy)>; 32]);

impl BlockPolicies {
    /// Returns the policy under which blocks are kept, for the policy of a limit.
    fn of(&self, policy: &Policy) -> Policy {
        let digest = policy.digest();
        for known in &self.0 {
            let (of, of_blocks) = known.get_or_init(|| (digest, policy.of_blocks()));
            if *of == digest {
                return of_blocks.clone();
            }
        }
        policy.of_blocks()
    }
}

/// The counters of [`Blocks`].
#[derive(Debug, Default)]
struct BlockCounters {
    made: Counter,
    failed: Counter,
    refused: Counter,
    uncounted: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "redis")]
    use crate::algorithm::Scripted;
    use crate::{
        algorithm::{self, AnyRule, Codec},
        store::{LocalBuilder, StoreExt},
        time::ManualClock,
    };

    fn is_admitted<Rule, S: Store<Rule>>(store: &S, rule: &Rule) -> bool {
        let policy = Policy::new("api");
        match store.acquire(&[Ask::new(&policy, rule, "mallory".into(), Cost::ONE)]) {
            Check::Ready(Ok(decisions)) => decisions.is_admitted(),
            _ => panic!("`Local` answers at once"),
        }
    }

    fn can_be_blocked<Rule: Algorithm<State: Codec>>(rule: Rule) {
        let clock = ManualClock::default();
        let store = LocalBuilder::new().clock(clock.clone()).build();
        let store = store.with_blocks();
        assert!(is_admitted(&store, &rule));
        let (policy, minute) = (Policy::new("api"), Duration::from_secs(60));
        let blocked = store.block::<Rule>(&policy, "mallory", minute).unwrap();
        assert!(matches!(blocked, Check::Ready(Ok(Some(left))) if left == minute));
        clock.advance(minute - Duration::from_nanos(1));
        assert!(!is_admitted(&store, &rule));
        clock.advance(Duration::from_nanos(1));
        assert!(is_admitted(&store, &rule));
    }

    /// Makes a call by the rule alone and by the blockable one, and expects equal decisions and
    /// bytes.
    fn has_equal_states<Rule: Algorithm<State: Codec>>(rule: &Rule) {
        let (now, blockable) = (ManualClock::default().now(), Blockable::from(rule.clone()));
        let (mut own, mut state) = (None, None);
        let expected = rule.step(&mut own, now, Cost::ONE);
        assert_eq!(blockable.step(&mut state, now, Cost::ONE), expected);
        assert_eq!(blockable.state_kind(), rule.state_kind());
        let bytes = own.as_ref().map(Codec::to_bytes);
        assert_eq!(state.as_ref().map(Codec::to_bytes), bytes);
        type State<Rule> = <Blockable<Rule> as Algorithm>::State;
        let read = State::<Rule>::from_bytes(&bytes.unwrap()).unwrap();
        assert_eq!(
            blockable.look(Some(&read), now),
            rule.look(own.as_ref(), now)
        );
    }

    #[cfg(feature = "redis")]
    fn has_equal_parts<Rule: Scripted>(rule: &Rule) {
        let (now, blockable) = (ManualClock::default().now(), Blockable::from(rule.clone()));
        let (mut own, mut state) = (None, None);
        rule.step(&mut own, now, Cost::ONE);
        blockable.step(&mut state, now, Cost::ONE);
        let (mut expected, mut parts) = (Vec::new(), Vec::new());
        rule.rule_parts(&mut expected).unwrap();
        blockable.rule_parts(&mut parts).unwrap();
        assert_eq!(parts, expected);
        let (mut expected, mut parts) = (Vec::new(), Vec::new());
        rule.state_parts(&own.unwrap(), &mut expected);
        blockable.state_parts(&state.unwrap(), &mut parts);
        assert_eq!(parts, expected);
        assert!(blockable.state_of_parts(&parts).is_some());
    }

    macro_rules! each_rule {
        ($($folder:ident { $Rule:ident, $State:ident } name $name:literal, tag $tag:literal, kind $kind:literal, grants $grants:literal, text $text:literal;)+) => {$({
            let example = $text.split('`').nth(1).unwrap();
            let rule: algorithm::$Rule = example.parse().unwrap();
            let any: AnyRule = example.parse().unwrap();
            has_equal_states(&rule);
            has_equal_states(&any);
            #[cfg(feature = "redis")]
            {
                has_equal_parts(&rule);
                has_equal_parts(&any);
            }
            // Calls in flight are no part of a pair.
            if $name != "in-flight" {
                has_equal_states(&(rule.clone(), any.clone()));
                can_be_blocked((rule.clone(), any.clone()));
            }
            can_be_blocked(rule);
            can_be_blocked(any);
        })+};
    }

    #[test]
    fn every_rule_can_be_blocked() {
        algorithm::algorithms!(each_rule);
        let all: AnyRule = "token-bucket 9/1s & sliding-log 9/1m".parse().unwrap();
        has_equal_states(&all);
        can_be_blocked(all);
    }
}

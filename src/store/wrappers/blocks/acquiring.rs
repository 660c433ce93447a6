//! The calls of blocks: [`Acquiring`] decides asks whose keys may be blocked, [`Blockage`] blocks a
//! key, and [`BlockAfter`] counts refusals, after which a key is blocked.

use std::{
    collections::HashSet,
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use smallvec::SmallVec;

use super::{BlockCounters, Blocks};
use crate::{
    algorithm::{Algorithm, Block, Blockable, SlidingLog, packed::InMemory},
    decision::{Cost, Decision, Decisions, Verdict},
    error::Error,
    key::Key,
    locks::lock,
    policy::Policy,
    quota::Quota,
    store::{Ask, Local, LocalBuilder, OwnedAsks, Progress, Steps, StepsFuture, Store},
    time::SharedClock,
};

/// The remaining time of the block of each ask's key; zero if the key is not blocked.
pub(super) type TimesLeft = SmallVec<[Duration; 2]>;

/// Returns the remaining time of each block, from looks at them. An undecided look, of a store that
/// failed, counts as no block.
pub(super) fn times_left(blocks: &[Decision]) -> TimesLeft {
    let left = |block: &Decision| match block.is_undecided() {
        true => Duration::ZERO,
        false => block.reset_after(),
    };
    blocks.iter().map(left).collect()
}

/// Returns `true` if one of the keys is blocked.
pub(super) fn is_any_blocked(left: &TimesLeft) -> bool {
    left.iter().any(|left| !left.is_zero())
}

/// Decides asks. It looks at the blocks, and then calls the store, or looks at the limits for the
/// numbers of a refusal. Then it blocks the keys that were refused too often.
pub struct Acquiring<Rule, S> {
    blocks: Blocks<S>,
    asks: OwnedAsks<Blockable<Rule>>,
    phase: AcquirePhase<Rule, S>,
}

pub(super) enum AcquirePhase<Rule, S> {
    /// Looks at blocks, before the call.
    AtBlocks,
    /// Looks at the blocks and the limits, for a look.
    AtAll,
    /// Looks at the limits, because some of the keys are blocked.
    AtLimits(TimesLeft),
    /// Charges the limits.
    Deciding,
    /// Blocks keys, after which the decisions are returned.
    Blocking {
        decisions: Decisions,
        offenders: Offenders,
        blockage: Blockage<Rule, S>,
    },
    Over,
}

/// The keys to be blocked, each with the index of its ask.
type Offenders = Vec<(usize, Offender)>;

impl<Rule: Algorithm, S: Store<Blockable<Rule>>> Acquiring<Rule, S> {
    pub(super) fn new(
        blocks: Blocks<S>,
        asks: OwnedAsks<Blockable<Rule>>,
        phase: AcquirePhase<Rule, S>,
    ) -> Self {
        Self {
            blocks,
            asks,
            phase,
        }
    }

    fn looked_at_blocks(&mut self, decisions: &Decisions) -> Progress<Self> {
        let left = times_left(decisions.as_slice());
        let asks = self.asks.to_vec();
        if is_any_blocked(&left) {
            self.phase = AcquirePhase::AtLimits(left);
            Progress::Answer(self.blocks.get_ref().look(&asks))
        } else {
            self.phase = AcquirePhase::Deciding;
            Progress::Answer(self.blocks.get_ref().acquire(&asks))
        }
    }

    fn decided(&mut self, decisions: Decisions) -> Progress<Self> {
        self.count(decisions, |ask, decision| {
            decision.verdict() == Verdict::Refuse && !ask.may_wait()
        })
    }

    /// Counts the refusals of a look that decides requests.
    fn looked(&mut self, decisions: Decisions) -> Progress<Self> {
        self.count(decisions, |ask, look| {
            let refusal = look.for_cost(ask.cost());
            ask.decides() && !look.is_of_block() && refusal.verdict() == Verdict::Refuse
        })
    }

    /// Counts refusals, and blocks the keys that were refused too often.
    fn count(
        &mut self,
        decisions: Decisions,
        is_refused: impl Fn(&Ask<'_, Blockable<Rule>>, &Decision) -> bool,
    ) -> Progress<Self> {
        let mut offenders = Vec::new();
        if let Some(after) = &self.blocks.after {
            let asks = self.asks.iter().zip(decisions.as_slice());
            for (index, (ask, decision)) in asks.enumerate() {
                let counts = self.blocks.counts_in_flight || !decision.is_in_flight();
                if counts && is_refused(&ask, decision) && !ask.rule().keeps_free() {
                    let counters = &self.blocks.counters;
                    let offender = after.refused(ask.policy(), ask.key(), counters);
                    offenders.extend(offender.map(|offender| (index, offender)));
                }
            }
        }
        self.block_next(decisions, offenders)
    }

    /// Blocks the next key that was refused too often.
    fn block_next(&mut self, decisions: Decisions, offenders: Offenders) -> Progress<Self> {
        let Some(((_, offender), after)) = offenders.last().zip(self.blocks.after.as_ref()) else {
            return Progress::Finished(Ok(decisions));
        };
        let block = after.settings.block;
        let (charge, blockage) = self.blocks.charge(&offender.policy, offender.key, block);
        self.phase = AcquirePhase::Blocking {
            decisions,
            offenders,
            blockage,
        };
        Progress::Answer(charge)
    }

    /// Takes in the charge of a block, and blocks the next key.
    fn charged(&mut self, answer: Result<Decisions, S::Error>) -> Progress<Self> {
        let AcquirePhase::Blocking {
            mut decisions,
            mut offenders,
            mut blockage,
        } = std::mem::replace(&mut self.phase, AcquirePhase::Over)
        else {
            return Progress::Finished(answer);
        };
        // A failure is counted, and the request is refused all the same.
        if let (Some((index, offender)), Ok(Some(left))) = (offenders.pop(), blockage.ended(answer))
        {
            offender.forget_refusals();
            // The answer to this request shows the end of the block, too.
            if let Some(decision) = decisions.as_mut_slice().get_mut(index) {
                let cost = self
                    .asks
                    .iter()
                    .nth(index)
                    .map_or(0, |ask| ask.cost().get());
                *decision = while_blocked(decision, left, cost);
            }
        }
        self.block_next(decisions, offenders)
    }
}

impl_debug!(Acquiring<Rule, S>);

impl<Rule: Algorithm, S: Store<Blockable<Rule>>> Steps for Acquiring<Rule, S> {
    type Answer = S::Answer;
    type Done = S::Done;
    type Output = Result<Decisions, S::Error>;

    fn answered(&mut self, answer: Result<Decisions, S::Error>) -> Progress<Self> {
        if matches!(self.phase, AcquirePhase::Blocking { .. }) {
            return self.charged(answer);
        }
        let decisions = match answer {
            Ok(decisions) => decisions,
            Err(error) => return Progress::Finished(Err(error)),
        };
        match &self.phase {
            AcquirePhase::AtBlocks => self.looked_at_blocks(&decisions),
            AcquirePhase::AtAll => {
                let (blocks, looks) = decisions
                    .as_slice()
                    .split_at(decisions.as_slice().len() / 2);
                let left = times_left(blocks);
                let decisions = looks.iter().zip(left);
                let decisions = decisions.map(|(look, left)| while_blocked(look, left, 0));
                let decisions = decisions.collect();
                self.looked(decisions)
            }
            AcquirePhase::AtLimits(left) => {
                // A call that may wait asks again, and counts then.
                let counts = !self.asks.iter().any(|ask| ask.may_wait());
                self.blocks.counters.refused.add(u64::from(counts));
                let asks = self.asks.iter().zip(left);
                let decisions = decisions.as_slice().iter().zip(asks);
                let decisions = decisions.map(|(look, (ask, left))| {
                    while_blocked(&ask.not_charged_by(look), *left, ask.cost().get())
                });
                Progress::Finished(Ok(decisions.collect()))
            }
            _ => self.decided(decisions),
        }
    }

    /// There is nothing to settle.
    fn done(&mut self, done: Result<(), S::Error>) -> Progress<Self> {
        Progress::Finished(done.map(|()| Decisions::default()))
    }
}

/// Returns the decision for a key that is blocked for the time `left`, if any, from a look at its
/// limit.
fn while_blocked(look: &Decision, left: Duration, cost: u64) -> Decision {
    if left.is_zero() {
        return *look;
    }
    let refusal =
        Decision::new(Verdict::Refuse, look.at(), cost).with_rule_limit(look.rule_limit());
    // An undecided look has no wait of its own.
    let own = match look.is_undecided() {
        true => Some(Duration::ZERO),
        false => look.retry_after(),
    };
    let wait = own.map(|own| own.max(left));
    refusal
        .with_remaining(0)
        .with_more_after(left)
        .with_reset_after(left.max(look.reset_after()))
        .with_full_after(left.max(look.full_after()))
        .with_retry_after(wait)
        .of_block()
}

/// The future of a block.
pub(crate) type BlockFuture<Rule, S> = StepsFuture<Blockage<Rule, S>>;

/// A call that blocks one key, by one charge.
pub struct Blockage<Rule, S> {
    block: Block,
    attempt: Attempt,
    of: PhantomData<fn() -> (Rule, S)>,
}

impl<Rule, S> Blockage<Rule, S> {
    pub(super) fn new(block: Block, counters: &Arc<BlockCounters>) -> Self {
        Self {
            block,
            attempt: Attempt::new(counters),
            of: PhantomData,
        }
    }

    /// Takes in the answer to the charge. Returns the time for which the key is blocked; `None` if
    /// it is not.
    fn ended<E>(&mut self, answer: Result<Decisions, E>) -> Result<Option<Duration>, E> {
        let charged = answer?.as_slice().first().copied();
        // An undecided call is one of a store that failed, or had no room.
        Ok(charged
            .filter(|charged| !charged.is_undecided())
            .map(|charged| {
                if charged.is_admitted() {
                    self.attempt.succeed();
                    self.block.duration()
                } else {
                    self.attempt.skip();
                    charged.reset_after()
                }
            }))
    }
}

impl_debug!(Blockage<Rule, S>);

impl<Rule: Algorithm, S: Store<Blockable<Rule>>> Steps for Blockage<Rule, S> {
    type Answer = S::Answer;
    type Done = S::Done;
    type Output = Result<Option<Duration>, S::Error>;

    fn answered(&mut self, answer: Result<Decisions, S::Error>) -> Progress<Self> {
        Progress::Finished(self.ended(answer))
    }

    /// There is nothing to settle.
    fn done(&mut self, done: Result<(), S::Error>) -> Progress<Self> {
        Progress::Finished(done.map(|()| None))
    }
}

/// An attempt to make a block. It counts as failed if it is dropped before it has succeeded or was
/// skipped.
#[derive(Debug)]
struct Attempt(Option<Arc<BlockCounters>>);

impl Attempt {
    fn new(counters: &Arc<BlockCounters>) -> Self {
        Self(Some(Arc::clone(counters)))
    }

    /// Counts the block as made.
    fn succeed(&mut self) {
        if let Some(counters) = self.0.take() {
            counters.made.add(1);
        }
    }

    /// Counts nothing: the key is blocked already.
    fn skip(&mut self) {
        self.0 = None;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(counters) = &self.0 {
            counters.failed.add(1);
        }
    }
}

/// Maximum number of refusals after which a key is blocked: each is remembered for the period.
const MOST_REFUSALS: u64 = 1000;

/// Settings of blocks after refusals.
#[derive(Clone, Copy, Debug)]
pub(super) struct AfterRefusals {
    rule: SlidingLog,
    pub(super) block: Block,
}

impl AfterRefusals {
    pub(super) fn new(refusals: u64, period: Duration, duration: Duration) -> Result<Self, Error> {
        let block = Block::try_new(duration)?.of_new_key();
        if !(1..=MOST_REFUSALS).contains(&refusals) {
            return Err(Error::new(format!(
                "a block after {refusals} refusals: expected 1 to {MOST_REFUSALS}, each of which is remembered; choose a number \
                 between them"
            )));
        }
        let quota = Quota::try_new(refusals, period)?;
        let rule = SlidingLog::new(quota);
        Ok(Self { rule, block })
    }
}

/// Maximum number of keys whose refusals are counted at the same time.
const KEYS: usize = 16_384;

/// Counts the refusals of keys in this process.
pub(super) struct BlockAfter {
    pub(super) settings: AfterRefusals,
    /// A log of the refusals of each key.
    refusals: Local<SlidingLog, SharedClock>,
    /// The keys that are being blocked, by the digest of the policy.
    in_flight: Mutex<HashSet<(u64, Key)>>,
}

impl BlockAfter {
    pub(super) fn new(settings: AfterRefusals, clock: SharedClock) -> Self {
        Self {
            settings,
            refusals: LocalBuilder::new().capacity(KEYS).clock(clock).build(),
            in_flight: Mutex::default(),
        }
    }

    /// Counts a refusal. Returns the key if it was refused often enough and no other call is
    /// blocking it.
    pub(super) fn refused(
        self: &Arc<Self>,
        policy: &Policy,
        key: &Key,
        counters: &BlockCounters,
    ) -> Option<Offender> {
        let count = self.count(policy, key, counters);
        let is_enough = count.is_some_and(|count| count.remaining() == Some(0));
        if !is_enough || !self.in_flight().insert((policy.digest(), *key)) {
            return None;
        }
        Some(Offender {
            after: Arc::clone(self),
            policy: policy.clone(),
            key: *key,
        })
    }

    /// Counts a refusal that was decided elsewhere. Returns `true` once: for the one after which
    /// the key is to be blocked.
    ///
    /// If that fails, refusals that reach the store try again, and not those that are decided
    /// elsewhere.
    pub(super) fn is_last(&self, policy: &Policy, key: &Key, counters: &BlockCounters) -> bool {
        let count = self.count(policy, key, counters);
        count.is_some_and(|count| count.is_admitted() && count.remaining() == Some(0))
    }

    /// Adds a refusal to the log of its key. The result is undecided, without `remaining`, if there
    /// is no room for the key; `None` for a key that is not blocked, because many clients share it.
    fn count(&self, policy: &Policy, key: &Key, counters: &BlockCounters) -> Option<Decision> {
        if key.is_shared() {
            return None;
        }
        let ask = Ask::new(policy, &self.settings.rule, *key, Cost::ONE);
        let count = self.refusals.decide(&ask);
        if count.is_undecided() {
            counters.uncounted.add(1);
        }
        Some(count)
    }

    /// Forgets the refusals of a key.
    pub(super) fn forget(&self, policy: &Policy, key: &Key) {
        self.refusals.reset(policy, key);
    }

    /// Returns the number of keys whose refusals are remembered.
    pub(super) fn len(&self) -> usize {
        self.refusals.len()
    }

    fn in_flight(&self) -> MutexGuard<'_, HashSet<(u64, Key)>> {
        lock(&self.in_flight)
    }
}

/// A key that was refused often enough. Only one call at a time has it.
pub(super) struct Offender {
    after: Arc<BlockAfter>,
    policy: Policy,
    key: Key,
}

impl Offender {
    /// Forgets the refusals, because the key is blocked.
    pub(super) fn forget_refusals(&self) {
        self.after.forget(&self.policy, &self.key);
    }
}

impl Drop for Offender {
    /// Lets another call block the key.
    fn drop(&mut self) {
        let key = (self.policy.digest(), self.key);
        self.after.in_flight().remove(&key);
    }
}

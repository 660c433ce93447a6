//! Several rules on one key, spent together or not at all: a pair, and rules that configuration
//! chose.
//!
//! A warm-up's allowance shrinks while it cools (`Algorithm::may_shrink_when_idle`). If one of
//! several rules is of this kind, all are evaluated at the longest of their waits, and there is no
//! retry time if that call would still be refused.

use std::fmt;

use super::{
    Algorithm, AnyRule, AnyState, StateKind, Step,
    codec::{Codec, damaged, put_number, take_number, take_tag},
    packed::{
        BuiltIn, Form, InMemory, InWords, PackedAlgorithm, PackedKind, PackedState, StoreTime,
        TwoBuckets, TwoWords,
    },
};
use crate::{
    decision::{Charge, Cost, Decision},
    error::Error,
    time::Timestamp,
};

/// Several rules on one key, spent together or not at all: `… & …` in an [`AnyRule`]'s text.
///
/// Decides as [a pair](Algorithm#impl-Algorithm-for-(A,+B)) does: the answer has the smallest
/// `remaining` and the longest wait.
///
/// Each rule reads the state in its place. So keep rules of one algorithm in their order when the
/// rule changes: exchanged, each reads what was spent under the other.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{AnyRule, Cost, Timestamp, algorithm::Algorithm};
///
/// let rule: AnyRule = "token-bucket 10/s & fixed-window 12/1h".parse()?;
/// let (mut state, noon) = (None, Timestamp::from_nanos(43_200_000_000_000));
/// let ten = rule.step(&mut state, noon, Cost::new(10).unwrap()).decision();
/// assert_eq!((ten.is_admitted(), ten.remaining()), (true, Some(0)));
///
/// // A second later the bucket is full, and the window has two units left.
/// let later = noon.saturating_add(Duration::from_secs(1));
/// let three = rule.step(&mut state, later, Cost::new(3).unwrap()).decision();
/// assert_eq!(three.remaining(), Some(2));
/// assert_eq!(three.retry_after(), Some(Duration::from_secs(3599)));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct All(pub(super) Box<[AnyRule]>);

impl All {
    /// The first byte of an encoded state.
    pub(super) const TAG: u8 = 0x09;
    /// The script kind of the tuple in front of several rules or states.
    pub(super) const KIND: i64 = 0;

    /// Returns the rules in order.
    pub fn rules(&self) -> &[AnyRule] {
        &self.0
    }

    /// Reads rules with a `&` between them.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let mut at = 0;
        let mut rules = Vec::new();
        let mut class_bits = 0;
        for part in text.split('&') {
            let rule = AnyRule::parse_one(part).map_err(|error| error.shifted(at))?;
            if let AnyRule::InFlight(_) = rule {
                return Err(Error::new(format!(
                    "calls in flight under one key with other rules in `{text}`: expected a limit of their own, because what a call \
                     holds is given back, and what it spends of a rate is not; take the rule out, and add it to the layer by \
                     `.also(…)`"
                ))
                .at_column(at + 1));
            }
            class_bits += rule.class_bits();
            if class_bits > Self::MOST_CLASS_BITS {
                return Err(Error::new(format!(
                    "too many rules with classes in `{text}`: expected classes of at most {} bits \
                     together, 3 for each cascade and 1 for each marker; take one out",
                    Self::MOST_CLASS_BITS
                ))
                .at_column(at + 1));
            }
            rules.push(rule);
            at += part.len() + 1;
        }
        Ok(Self(rules.into_boxed_slice()))
    }

    /// The most bits of classes that a decision has room for.
    const MOST_CLASS_BITS: u32 = 24;

    /// Replaces each rule for which `change` returns another one; returns `None` if no rule
    /// changes.
    pub(super) fn changed(&self, change: impl Fn(&AnyRule) -> Option<AnyRule>) -> Option<Self> {
        let first = self.0.iter().position(|rule| change(rule).is_some())?;
        let rules = self.0.iter().enumerate().map(|(n, rule)| {
            let changed = if n < first { None } else { change(rule) };
            changed.unwrap_or_else(|| rule.clone())
        });
        Some(Self(rules.collect()))
    }

    /// Returns the rules as two buckets, if that is what they are.
    #[inline]
    pub(super) fn two_buckets(&self) -> Option<TwoBuckets<'_>> {
        match &*self.0 {
            [a, b] => two_buckets(a, b),
            _ => None,
        }
    }

    fn zip<'a>(
        &'a self,
        states: &'a [Option<AnyState>],
    ) -> impl Iterator<Item = (&'a AnyRule, &'a Option<AnyState>)> {
        self.0.iter().zip(states)
    }

    fn look_all(&self, state: Option<&[Option<AnyState>]>, now: Timestamp) -> Decision {
        self.0
            .iter()
            .enumerate()
            .map(|(n, rule)| {
                let state = state.and_then(|states| states.get(n)?.as_ref());
                rule.look(state, now)
            })
            // Nothing is charged, so only the worst class matters.
            .reduce(|a, b| a.and(b, 0))
            .unwrap_or_else(|| unreachable!("`All` holds at least two rules"))
    }

    /// Returns one state per rule; a rule that was added has none yet.
    fn sized(&self, states: Option<Box<[Option<AnyState>]>>) -> Box<[Option<AnyState>]> {
        let mut states = states.map_or_else(Vec::new, Vec::from);
        states.resize(self.0.len(), None);
        states.into_boxed_slice()
    }
}

impl Algorithm for All {
    /// One state per rule, by position.
    type State = Box<[Option<AnyState>]>;

    fn step(&self, state: &mut Option<Self::State>, now: Timestamp, cost: Cost) -> Step {
        let mut states = state.take().map_or_else(Vec::new, Vec::from);
        let found = states.len();
        states.resize(found.max(self.0.len()), None);
        let all = self
            .zip(&states)
            .all(|(rule, state)| passes(rule, state, now, cost));
        let mut bits = 0;
        let step = self
            .0
            .iter()
            .zip(&mut states)
            .map(|(rule, state)| {
                let step = all || !passes(rule, state, now, cost);
                step_if(rule, state, now, cost, step)
            })
            .zip(&self.0)
            .map(|(step, rule)| (step, rule.class_bits()))
            .reduce(|(a, a_bits), (b, b_bits)| {
                bits += a_bits;
                (join(a, b, bits), b_bits)
            })
            .map(|(step, _)| step)
            .unwrap_or_else(|| unreachable!("`All` holds at least two rules"));
        // A refusal leaves the state alone, including the states of rules that have been removed.
        states.truncate(match step {
            Step::Kept(_) => found,
            Step::Wrote(_) => self.0.len(),
        });
        if states.iter().any(Option::is_some) {
            *state = Some(states.into_boxed_slice());
        }
        if self.may_shrink_when_idle() {
            step.map(|decision| {
                decision.without_lapsed_waits(cost.get(), |at| self.look_all(state.as_deref(), at))
            })
        } else {
            step
        }
    }

    fn look(&self, state: Option<&Self::State>, now: Timestamp) -> Decision {
        let states = state.map(|states| &**states);
        let decision = self.look_all(states, now);
        if self.may_shrink_when_idle() {
            decision.without_lapsed_waits(1, |at| self.look_all(states, at))
        } else {
            decision
        }
    }

    fn settle(
        &self,
        state: &mut Option<Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        let mut states = self.sized(state.take());
        let mut rest = charge.duplicate();
        for (rule, state) in self.0.iter().zip(&mut states) {
            let (own, others) = split_charge(&rest, rule.class_bits());
            rule.settle(state, &own, now, actual);
            rest = others;
        }
        *state = states.iter().any(Option::is_some).then_some(states);
    }

    fn forgets(
        &self,
        states: Option<&Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        let mut rest = charge.duplicate();
        let members = states.into_iter().flat_map(|states| self.zip(states));
        members.into_iter().any(|(rule, state)| {
            let (own, others) = split_charge(&rest, rule.class_bits());
            rest = others;
            rule.forgets(state.as_ref(), &own, now, actual)
        })
    }

    fn forgettable_at(&self, states: &Self::State) -> Timestamp {
        self.zip(states)
            .filter_map(|(rule, state)| Some(rule.forgettable_at(state.as_ref()?)))
            .max()
            .unwrap_or_default()
    }

    /// Composes the kinds of all members, in order.
    fn state_kind(&self) -> StateKind {
        let list = const { StateKind::named("all") };
        let members = self.0.iter().map(AnyRule::state_kind);
        members.fold(list, StateKind::with)
    }

    fn grant_slack(&self) -> Option<u64> {
        let slack = |most: u64, rule: &AnyRule| Some(most.max(rule.grant_slack()?));
        self.0.iter().try_fold(0, slack)
    }

    fn class_bits(&self) -> u32 {
        self.0.iter().map(AnyRule::class_bits).sum()
    }

    fn most_bytes(&self) -> u64 {
        let all = self.0.iter().map(AnyRule::most_bytes);
        all.fold(0, u64::saturating_add)
    }

    fn may_shrink_when_idle(&self) -> bool {
        self.0.iter().any(AnyRule::may_shrink_when_idle)
    }

    fn may_delay(&self) -> bool {
        self.0.iter().any(AnyRule::may_delay)
    }

    fn for_key(&self, digest: &dyn Fn() -> u64) -> Option<Self> {
        self.changed(|rule| rule.for_key(digest))
    }

    #[inline]
    fn built_in(&self) -> BuiltIn<'_, Self::State> {
        BuiltIn::new(Form::List(self), self)
    }
}

impl InWords<Box<[Option<AnyState>]>> for All {
    /// Packs two buckets as a pair does.
    fn write_words(&self, state: &<Self as Algorithm>::State, now: StoreTime) -> Option<TwoWords> {
        match (&*self.0, &**state) {
            ([a, b], [a_state, b_state]) => pack_both((a, a_state), (b, b_state), now),
            _ => None,
        }
    }

    fn read_words(&self, words: TwoWords, now: StoreTime) -> Option<<Self as Algorithm>::State> {
        let read = |(rule, packed)| read_bucket(rule, packed, now);
        Some(self.0.iter().zip(words).map(read).collect())
    }
}

impl Codec for Box<[Option<AnyState>]> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(All::TAG);
        put_number(bytes, self.len() as u64);
        for state in self {
            state.encode(bytes);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, All::TAG)?;
        let states = take_number(bytes)?;
        // Each takes a byte or more.
        if states > bytes.len() as u64 {
            return Err(damaged());
        }
        let state = |bytes: &mut &[u8]| match bytes.split_first() {
            Some((0, rest)) => {
                *bytes = rest;
                Ok(None)
            }
            // Lists are never nested, so no bytes lead to endless recursion.
            _ => AnyState::decode_one(bytes).map(Some),
        };
        (0..states).map(|_| state(bytes)).collect()
    }
}

impl fmt::Display for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" & ")?;
            }
            rule.fmt(f)?;
        }
        Ok(())
    }
}

/// Two rules on one key: a cost passes if both admit it, and is spent on both or on neither.
///
/// The decision combines both: capacity and remaining units are the smaller ones, and every wait is
/// the longer one. Header fields [announce](Decision::announced_limit) the slower rule with its own
/// capacity. Nest pairs for more rules. If one of them [may shrink when
/// idle](Algorithm::may_shrink_when_idle), and will have become too strict for a cost by the time
/// that the others admit it, there is no retry time.
///
/// ```
/// use tollgate::{Cost, Timestamp, TokenBucket};
/// use tollgate::algorithm::Algorithm;
///
/// let rule = (TokenBucket::per_second(2), TokenBucket::per_hour(3));
/// let mut state = None;
/// let mut admitted = 0;
/// for second in 0..10 {
///     let now = Timestamp::from_nanos(second * 1_000_000_000);
///     for _ in 0..5 {
///         admitted += u32::from(rule.step(&mut state, now, Cost::ONE).decision().is_admitted());
///     }
/// }
/// assert_eq!(admitted, 3);
/// ```
impl<A: Algorithm, B: Algorithm> Algorithm for (A, B) {
    type State = (Option<A::State>, Option<B::State>);

    fn step(&self, state: &mut Option<Self::State>, now: Timestamp, cost: Cost) -> Step {
        let (mut a, mut b) = state.take().unwrap_or((None, None));
        let looks = [self.0.look(a.as_ref(), now), self.1.look(b.as_ref(), now)];
        if has_calls(&looks) {
            return Step::Kept(Decision::unsupported(now));
        }
        let passes = looks.map(|look| look.would_admit(cost));
        let all = passes == [true; 2];
        let step = join(
            step_if(&self.0, &mut a, now, cost, all || !passes[0]),
            step_if(&self.1, &mut b, now, cost, all || !passes[1]),
            self.0.class_bits(),
        );
        if a.is_some() || b.is_some() {
            *state = Some((a, b));
        }
        if self.may_shrink_when_idle() {
            step.map(|decision| {
                decision.without_lapsed_waits(cost.get(), |at| look_both(self, state.as_ref(), at))
            })
        } else {
            step
        }
    }

    fn look(&self, state: Option<&Self::State>, now: Timestamp) -> Decision {
        let decision = look_both(self, state, now);
        if self.may_shrink_when_idle() {
            decision.without_lapsed_waits(1, |at| look_both(self, state, at))
        } else {
            decision
        }
    }

    fn settle(
        &self,
        state: &mut Option<Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        let (mut a, mut b) = state.take().unwrap_or((None, None));
        let (first, rest) = split_charge(charge, self.0.class_bits());
        self.0.settle(&mut a, &first, now, actual);
        self.1.settle(&mut b, &rest, now, actual);
        if a.is_some() || b.is_some() {
            *state = Some((a, b));
        }
    }

    fn forgets(
        &self,
        state: Option<&Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        let (a, b) = state.map_or((None, None), |(a, b)| (a.as_ref(), b.as_ref()));
        let (first, rest) = split_charge(charge, self.0.class_bits());
        self.0.forgets(a, &first, now, actual) || self.1.forgets(b, &rest, now, actual)
    }

    fn forgettable_at(&self, (a, b): &Self::State) -> Timestamp {
        let a = a
            .as_ref()
            .map_or(Timestamp::default(), |a| self.0.forgettable_at(a));
        let b = b
            .as_ref()
            .map_or(Timestamp::default(), |b| self.1.forgettable_at(b));
        a.max(b)
    }

    /// Composes the kinds of both members, in order.
    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named("pair") }
            .with(self.0.state_kind())
            .with(self.1.state_kind())
    }

    fn grant_slack(&self) -> Option<u64> {
        Some(self.0.grant_slack()?.max(self.1.grant_slack()?))
    }

    fn class_bits(&self) -> u32 {
        self.0.class_bits() + self.1.class_bits()
    }

    fn most_bytes(&self) -> u64 {
        self.0.most_bytes().saturating_add(self.1.most_bytes())
    }

    fn may_shrink_when_idle(&self) -> bool {
        self.0.may_shrink_when_idle() || self.1.may_shrink_when_idle()
    }

    fn may_delay(&self) -> bool {
        self.0.may_delay() || self.1.may_delay()
    }

    fn for_key(&self, digest: &dyn Fn() -> u64) -> Option<Self> {
        let (a, b) = (self.0.for_key(digest), self.1.for_key(digest));
        (a.is_some() || b.is_some()).then(|| {
            let a = a.unwrap_or_else(|| self.0.clone());
            (a, b.unwrap_or_else(|| self.1.clone()))
        })
    }

    #[inline]
    fn built_in(&self) -> BuiltIn<'_, Self::State> {
        let form = match (self.0.built_in().form(), self.1.built_in().form()) {
            (Form::Bucket(a), Form::Bucket(b)) => Form::Both(a, b),
            _ => Form::Plain,
        };
        BuiltIn::new(form, self)
    }
}

impl<A: Algorithm, B: Algorithm> InWords<(Option<A::State>, Option<B::State>)> for (A, B) {
    /// Returns the packed state of each bucket, if both rules are buckets.
    fn write_words(&self, (a, b): &<Self as Algorithm>::State, now: StoreTime) -> Option<TwoWords> {
        pack_both((&self.0, a), (&self.1, b), now)
    }

    #[inline]
    fn read_words(&self, [a, b]: TwoWords, now: StoreTime) -> Option<<Self as Algorithm>::State> {
        Some((read_bucket(&self.0, a, now), read_bucket(&self.1, b, now)))
    }
}

/// Returns two rules as buckets, if both are.
#[inline]
pub(super) fn two_buckets<'a>(
    a: &'a impl Algorithm,
    b: &'a impl Algorithm,
) -> Option<TwoBuckets<'a>> {
    match (a.packed_rule()?.algorithm(), b.packed_rule()?.algorithm()) {
        (PackedAlgorithm::Bucket(a), PackedAlgorithm::Bucket(b)) => TwoBuckets::both(a, b),
        _ => None,
    }
}

/// Packs the states of two rules, if both are buckets.
fn pack_both<A: Algorithm, B: Algorithm>(
    (a, a_state): (&A, &Option<A::State>),
    (b, b_state): (&B, &Option<B::State>),
    now: StoreTime,
) -> Option<TwoWords> {
    two_buckets(a, b)?;
    let a_packed = a.pack(a_state.as_ref()?, now)?;
    Some([a_packed, b.pack(b_state.as_ref()?, now)?])
}

/// Reads the packed state of a bucket.
#[inline]
fn read_bucket<R: Algorithm>(rule: &R, packed: PackedState, now: StoreTime) -> Option<R::State> {
    rule.unpack(packed, PackedKind::DEBT, now)
}

fn look_both<A: Algorithm, B: Algorithm>(
    (a, b): &(A, B),
    state: Option<&<(A, B) as Algorithm>::State>,
    now: Timestamp,
) -> Decision {
    let (a_state, b_state) = state.map_or((None, None), |(a, b)| (a.as_ref(), b.as_ref()));
    let [a_look, b_look] = [a.look(a_state, now), b.look(b_state, now)];
    if has_calls(&[a_look, b_look]) {
        return Decision::unsupported(now);
    }
    a_look.and(b_look, a.class_bits())
}

/// Returns `true` if a rule counts calls in flight, which have a limit of their own: what a call
/// holds is given back, and what it spends of a rate is not.
#[inline]
fn has_calls([a, b]: &[Decision; 2]) -> bool {
    a.is_in_flight() || b.is_in_flight()
}

/// Splits a charge into one of the first rule, whose classes take the lowest `bits`, and one of the
/// other rules.
pub(super) fn split_charge(charge: &Charge, bits: u32) -> (Charge, Charge) {
    let below = 1_u32.checked_shl(bits).map_or(u32::MAX, |bit| bit - 1);
    let delay = None;
    let of_class = |class| charge.duplicate().with_class(class).with_delay(delay);
    let rest = charge.class.checked_shr(bits).unwrap_or(0);
    (of_class(charge.class & below), of_class(rest))
}

/// Returns `true` if a rule admits a cost; spends nothing.
pub(super) fn passes<R: Algorithm>(
    rule: &R,
    state: &Option<R::State>,
    now: Timestamp,
    cost: Cost,
) -> bool {
    rule.look(state.as_ref(), now).would_admit(cost)
}

/// Steps if `step` is `true`, to spend or to refuse; otherwise only looks, because another rule
/// refuses.
fn step_if<R: Algorithm>(
    rule: &R,
    state: &mut Option<R::State>,
    now: Timestamp,
    cost: Cost,
    step: bool,
) -> Step {
    if step {
        rule.step(state, now, cost)
    } else {
        Step::Kept(rule.look(state.as_ref(), now))
    }
}

/// Joins two steps into one; the classes of the first one take `class_bits`.
pub(super) fn join(a: Step, b: Step, class_bits: u32) -> Step {
    let decision = a.decision().and(b.decision(), class_bits);
    match (a, b) {
        (Step::Wrote(_), _) | (_, Step::Wrote(_)) => Step::Wrote(decision),
        (Step::Kept(_), Step::Kept(_)) => Step::Kept(decision),
    }
}

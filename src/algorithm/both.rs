//! Several limits on one key, spent together or not at all.

use super::{
    Algorithm, StateKind, Step,
    meter::Kind,
    packed::{PackedKind, PackedState, StoreTime, TwoBuckets, TwoWords},
};
use crate::{
    decision::{Charge, Cost, Decision},
    time::Timestamp,
};

/// Two rules on one key: a cost passes if both admit it, and is spent on both or on neither.
///
/// The decision combines both: capacity and remaining units are the smaller ones, and every wait is the longer one. Header fields
/// [announce](Decision::announced_limit) the slower rule with its own capacity. Nest pairs for more rules. If one of them [may shrink when idle](Algorithm::may_shrink_when_idle), and will
/// have become too strict for a cost by the time that the others admit it, there is no retry time.
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
        let passes = [
            passes(&self.0, &a, now, cost),
            passes(&self.1, &b, now, cost),
        ];
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
    fn two_buckets(&self) -> Option<TwoBuckets<'_>> {
        two_buckets(&self.0, &self.1)
    }

    /// The packed state of each bucket.
    fn to_two_words(&self, (a, b): &Self::State, now: StoreTime) -> Option<TwoWords> {
        pack_both((&self.0, a), (&self.1, b), now)
    }

    #[inline]
    fn read_two_words(&self, [a, b]: TwoWords, now: StoreTime) -> Option<Self::State> {
        Some((read_bucket(&self.0, a, now), read_bucket(&self.1, b, now)))
    }
}

/// Returns two rules as buckets, if both are.
#[inline]
pub(super) fn two_buckets<'a>(
    a: &'a impl Algorithm,
    b: &'a impl Algorithm,
) -> Option<TwoBuckets<'a>> {
    match (a.meter()?.kind(), b.meter()?.kind()) {
        (Kind::Bucket(a), Kind::Bucket(b)) => TwoBuckets::both(a, b),
        _ => None,
    }
}

/// Packs the states of two rules, if both are buckets.
pub(super) fn pack_both<A: Algorithm, B: Algorithm>(
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
pub(super) fn read_bucket<R: Algorithm>(
    rule: &R,
    packed: PackedState,
    now: StoreTime,
) -> Option<R::State> {
    rule.unpack(packed, PackedKind::DEBT, now)
}

fn look_both<A: Algorithm, B: Algorithm>(
    (a, b): &(A, B),
    state: Option<&<(A, B) as Algorithm>::State>,
    now: Timestamp,
) -> Decision {
    let (a_state, b_state) = state.map_or((None, None), |(a, b)| (a.as_ref(), b.as_ref()));
    a.look(a_state, now)
        .and(b.look(b_state, now), a.class_bits())
}

/// Splits a charge into one of the first rule, whose classes take the lowest `bits`, and one of the other rules.
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

/// Steps if `step` is `true`, to spend or to refuse; otherwise only looks, because another rule refuses.
pub(super) fn step_if<R: Algorithm>(
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

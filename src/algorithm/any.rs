//! A rule that configuration chose: any algorithm, read from text.

use std::{fmt, str::FromStr};

use super::{
    Algorithm, Mark, Meter, Moment, StateKind, Step,
    all::All,
    cascade::{Cascade, CascadeState},
    codec::{Codec, damaged, tag},
    fixed_window::{FixedWindow, FixedWindowState},
    leaky_bucket::{LeakyBucket, LeakyBucketState},
    shape::{Says, Shape},
    sliding_log::{SlidingLog, SlidingLogState},
    sliding_window::{SlidingWindow, SlidingWindowState},
    text::Words,
    three_color::{ThreeColor, ThreeColorState},
    token_bucket::{TokenBucket, TokenBucketState},
    warm_up::{WarmUp, WarmUpState},
    warm_up_spaced::{WarmUpSpaced, WarmUpSpacedState},
};
use crate::{
    clock::Timestamp,
    decision::{Charge, Cost, Decision},
    error::Error,
};

/// A rule chosen at run time, by configuration or per tenant.
///
/// Parses from text, prints what parses back, and reads from serde as a
/// string (feature `serde`). Within an algorithm, a change of the rule carries a client's usage over. A rule of another
/// algorithm has a [state of its own](Algorithm::state_kind): stores keep both, so a client gets at most the limit of each
/// while rules take turns. A state of another algorithm counts as none.
///
/// | text | rule |
/// |---|---|
/// | `token-bucket 100/1m burst=150 initial=300 keep=1h` | [`TokenBucket`] |
/// | `leaky-bucket 10/s queue=50 max-wait=2s` | [`LeakyBucket`] |
/// | `fixed-window 100/1m offset=10s`, `offset=spread`, `from=first-call` | [`FixedWindow`] |
/// | `sliding-window 100/1m slices=4` | [`SlidingWindow`] |
/// | `sliding-log 100/1m` | [`SlidingLog`] |
/// | `warm-up 200/s over=10s cold=3` | [`WarmUp`] |
/// | `warm-up-spaced 2/s over=4s cold=3 max-wait=5s` | [`WarmUpSpaced`] |
/// | `cascade 10/s burst=10 > 5/s burst=20` | [`Cascade`] |
/// | `three-color 100/s burst=100 peak=200/s peak-burst=200 aware` | [`ThreeColor`] |
/// | `token-bucket 10/s & fixed-window 1000/1h` | [`All`]: spent together or not at all |
///
/// All settings but the quotas may be left out; each rule's page says what they are then.
///
/// ```
/// use tollgate::AnyRule;
///
/// let rule: AnyRule = "token-bucket 100/1m burst=150".parse()?;
/// assert_eq!(rule.to_string(), "token-bucket 100/1m burst=150");
///
/// let error = "token-bucket 100/1m brust=150".parse::<AnyRule>().unwrap_err();
/// assert_eq!(error.column(), Some(21));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnyRule {
    /// Tokens at a constant rate.
    TokenBucket(TokenBucket),
    /// A queue with a constant outflow.
    LeakyBucket(LeakyBucket),
    /// A count for each window of the calendar.
    FixedWindow(FixedWindow),
    /// Counts of slices that slide.
    SlidingWindow(SlidingWindow),
    /// The time of every call.
    SlidingLog(SlidingLog),
    /// A rate that grows with use.
    WarmUp(WarmUp),
    /// A distance between calls that shrinks with use.
    WarmUpSpaced(WarmUpSpaced),
    /// Several buckets, the next one for what the one before cannot pay.
    Cascade(Cascade),
    /// Two rates, three colours.
    ThreeColor(ThreeColor),
    /// Several rules at once.
    All(All),
}

/// What an [`AnyRule`] remembers of a key.
#[derive(Clone, Debug)]
pub struct AnyState(Inner);

#[derive(Clone, Debug)]
enum Inner {
    TokenBucket(TokenBucketState),
    LeakyBucket(LeakyBucketState),
    FixedWindow(FixedWindowState),
    SlidingWindow(SlidingWindowState),
    SlidingLog(SlidingLogState),
    WarmUp(WarmUpState),
    WarmUpSpaced(WarmUpSpacedState),
    Cascade(CascadeState),
    ThreeColor(ThreeColorState),
    All(<All as Algorithm>::State),
}

/// Goes on with the rule that it is, whichever.
macro_rules! each {
    ($any:expr, $rule:ident => $go_on:expr) => {
        match $any {
            AnyRule::TokenBucket($rule) => $go_on,
            AnyRule::LeakyBucket($rule) => $go_on,
            AnyRule::FixedWindow($rule) => $go_on,
            AnyRule::SlidingWindow($rule) => $go_on,
            AnyRule::SlidingLog($rule) => $go_on,
            AnyRule::WarmUp($rule) => $go_on,
            AnyRule::WarmUpSpaced($rule) => $go_on,
            AnyRule::Cascade($rule) => $go_on,
            AnyRule::ThreeColor($rule) => $go_on,
            AnyRule::All($rule) => $go_on,
        }
    };
}

/// A state that an [`AnyState`] can be.
pub(super) trait Own: Sized {
    fn into_any(self) -> AnyState;
    /// Takes it out, or gives back what is of another algorithm.
    fn from_any(any: AnyState) -> Result<Self, AnyState>;
    fn in_any(any: &AnyState) -> Option<&Self>;
}

macro_rules! own {
    ($($Kind:ident($State:ty)),+ $(,)?) => {$(
        impl Own for $State {
            #[inline]
            fn into_any(self) -> AnyState {
                AnyState(Inner::$Kind(self))
            }

            #[inline]
            fn from_any(any: AnyState) -> Result<Self, AnyState> {
                match any.0 {
                    Inner::$Kind(own) => Ok(own),
                    other => Err(AnyState(other)),
                }
            }

            #[inline]
            fn in_any(any: &AnyState) -> Option<&Self> {
                match &any.0 {
                    Inner::$Kind(own) => Some(own),
                    _ => None,
                }
            }
        }
    )+};
}

own!(
    TokenBucket(TokenBucketState),
    LeakyBucket(LeakyBucketState),
    FixedWindow(FixedWindowState),
    SlidingWindow(SlidingWindowState),
    SlidingLog(SlidingLogState),
    WarmUp(WarmUpState),
    WarmUpSpaced(WarmUpSpacedState),
    Cascade(CascadeState),
    ThreeColor(ThreeColorState),
    All(<All as Algorithm>::State),
);

impl Algorithm for AnyRule {
    type State = AnyState;

    #[inline]
    fn step(&self, state: &mut Option<AnyState>, now: Timestamp, cost: Cost) -> Step {
        each!(self, rule => step_own(rule, state, now, cost))
    }

    fn look(&self, state: Option<&AnyState>, now: Timestamp) -> Decision {
        each!(self, rule => rule.look(state.and_then(Own::in_any), now))
    }

    /// A charge that another algorithm made stays as it is.
    fn settle(&self, state: &mut Option<AnyState>, charge: &Charge, now: Timestamp, actual: u64) {
        each!(self, rule => settle_own(rule, state, charge, now, actual))
    }

    /// A state of another algorithm says nothing to this rule: it can be forgotten at once.
    #[inline]
    fn forgettable_at(&self, state: &AnyState) -> Timestamp {
        each!(self, rule => Own::in_any(state).map_or_else(Timestamp::default, |own| rule.forgettable_at(own)))
    }

    /// That of the rule that it is.
    #[inline]
    fn state_kind(&self) -> StateKind {
        // First, so that all others are looked up in a table.
        if let Self::All(rule) = self {
            return rule.state_kind();
        }
        each!(self, rule => rule.state_kind())
    }

    fn class_bits(&self) -> u32 {
        each!(self, rule => rule.class_bits())
    }

    fn wanes(&self) -> bool {
        each!(self, rule => rule.wanes())
    }

    fn may_delay(&self) -> bool {
        each!(self, rule => rule.may_delay())
    }

    #[inline]
    fn for_key(&self, digest: &dyn Fn() -> u64) -> Option<Self> {
        each!(self, rule => rule.for_key(digest).map(Self::from))
    }

    #[inline]
    fn meter(&self) -> Option<Meter<'_>> {
        match self {
            Self::TokenBucket(rule) => rule.meter(),
            Self::LeakyBucket(rule) => rule.meter(),
            Self::FixedWindow(rule) => rule.meter(),
            _ => None,
        }
    }

    fn mark_of(&self, state: &AnyState, now: Moment) -> Option<Mark> {
        match self {
            Self::TokenBucket(rule) => rule.mark_of(Own::in_any(state)?, now),
            Self::LeakyBucket(rule) => rule.mark_of(Own::in_any(state)?, now),
            Self::FixedWindow(rule) => rule.mark_of(Own::in_any(state)?, now),
            _ => None,
        }
    }

    fn state_of(&self, mark: Mark, shape: Shape, now: Moment) -> Option<AnyState> {
        fn own<R: Algorithm<State: Own>>(
            rule: &R,
            mark: Mark,
            shape: Shape,
            now: Moment,
        ) -> Option<AnyState> {
            rule.state_of(mark, shape, now).map(Own::into_any)
        }
        match (self, shape.says()) {
            (Self::TokenBucket(rule), Says::Debt | Says::Bucket) => own(rule, mark, shape, now),
            (Self::LeakyBucket(rule), Says::Debt | Says::Queue) => own(rule, mark, shape, now),
            (Self::FixedWindow(rule), Says::Debt | Says::Window(_)) => own(rule, mark, shape, now),
            _ => None,
        }
    }
}

/// Takes the state: the algorithm's own one, or that of another algorithm.
#[inline]
fn split<S: Own>(state: &mut Option<AnyState>) -> (Option<S>, Option<AnyState>) {
    match state.take().map(S::from_any) {
        None => (None, None),
        Some(Ok(own)) => (Some(own), None),
        Some(Err(foreign)) => (None, Some(foreign)),
    }
}

/// Steps on the state if it is of the rule's algorithm, and on none otherwise.
#[inline]
fn step_own<R: Algorithm<State: Own>>(
    rule: &R,
    state: &mut Option<AnyState>,
    now: Timestamp,
    cost: Cost,
) -> Step {
    let (mut own, foreign) = split(state);
    let step = rule.step(&mut own, now, cost);
    *state = own.map(Own::into_any).or(foreign);
    step
}

fn settle_own<R: Algorithm<State: Own>>(
    rule: &R,
    state: &mut Option<AnyState>,
    charge: &Charge,
    now: Timestamp,
    actual: u64,
) {
    let (mut own, foreign) = split(state);
    if foreign.is_none() {
        rule.settle(&mut own, charge, now, actual);
    }
    *state = own.map(Own::into_any).or(foreign);
}

impl AnyRule {
    /// The same rule for a request that was given the colour `class` before: 0 green, 1 yellow, 2 and
    /// above red.
    ///
    /// Matters to markers that are [aware](ThreeColor::aware) of it, alone or among [`All`].
    #[must_use]
    pub fn given(self, class: u8) -> Self {
        match self {
            Self::ThreeColor(rule) => rule.given(class).into(),
            Self::All(all) => {
                let given = |rule: &Self| match rule {
                    Self::ThreeColor(rule) => Some(rule.given(class).into()),
                    _ => None,
                };
                Self::All(all.changed(given).unwrap_or(all))
            }
            other => other,
        }
    }

    pub(super) fn parse_one(text: &str) -> Result<Self, Error> {
        let Some((name, column)) = Words::first(text) else {
            return Err(Error::new(
                "no rule: expected an algorithm and a quota, as in `token-bucket 100/1m`",
            )
            .at_column(1));
        };
        match name {
            "token-bucket" => text.parse().map(Self::TokenBucket),
            "leaky-bucket" => text.parse().map(Self::LeakyBucket),
            "fixed-window" => text.parse().map(Self::FixedWindow),
            "sliding-window" => text.parse().map(Self::SlidingWindow),
            "sliding-log" => text.parse().map(Self::SlidingLog),
            "warm-up" => text.parse().map(Self::WarmUp),
            "warm-up-spaced" => text.parse().map(Self::WarmUpSpaced),
            "cascade" => text.parse().map(Self::Cascade),
            "three-color" => text.parse().map(Self::ThreeColor),
            _ => Err(Error::new(format!(
                "unknown algorithm `{name}`: expected `token-bucket`, `leaky-bucket`, `fixed-window`, \
                 `sliding-window`, `sliding-log`, `warm-up`, `warm-up-spaced`, `cascade` or `three-color`, \
                 as in `token-bucket 100/1m burst=150`"
            ))
            .at_column(column)),
        }
    }
}

impl FromStr for AnyRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.contains('&') {
            All::parse(text).map(Self::All)
        } else {
            Self::parse_one(text)
        }
    }
}

impl fmt::Display for AnyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(self, rule => rule.fmt(f))
    }
}

macro_rules! from {
    ($($Kind:ident),+) => {$(
        impl From<$Kind> for AnyRule {
            fn from(rule: $Kind) -> Self {
                Self::$Kind(rule)
            }
        }
    )+};
}

from!(
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    WarmUp,
    WarmUpSpaced,
    Cascade,
    ThreeColor,
    All
);

impl AnyState {
    /// A state of one rule, not of several.
    pub(super) fn decode_one(bytes: &mut &[u8]) -> Result<Self, Error> {
        fn own<S: Own + Codec>(bytes: &mut &[u8]) -> Result<AnyState, Error> {
            S::decode(bytes).map(Own::into_any)
        }
        match bytes.first().map(|byte| tag::of_any_version(*byte)) {
            Some(tag::TOKEN_BUCKET) => own::<TokenBucketState>(bytes),
            Some(tag::LEAKY_BUCKET) => own::<LeakyBucketState>(bytes),
            Some(tag::FIXED_WINDOW) => own::<FixedWindowState>(bytes),
            Some(tag::SLIDING_WINDOW) => own::<SlidingWindowState>(bytes),
            Some(tag::SLIDING_LOG) => own::<SlidingLogState>(bytes),
            Some(tag::WARM_UP) => own::<WarmUpState>(bytes),
            Some(tag::WARM_UP_SPACED) => own::<WarmUpSpacedState>(bytes),
            Some(tag::CASCADE) => own::<CascadeState>(bytes),
            Some(tag::THREE_COLOR) => own::<ThreeColorState>(bytes),
            _ => Err(damaged()),
        }
    }
}

impl Codec for AnyState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match &self.0 {
            Inner::TokenBucket(state) => state.encode(bytes),
            Inner::LeakyBucket(state) => state.encode(bytes),
            Inner::FixedWindow(state) => state.encode(bytes),
            Inner::SlidingWindow(state) => state.encode(bytes),
            Inner::SlidingLog(state) => state.encode(bytes),
            Inner::WarmUp(state) => state.encode(bytes),
            Inner::WarmUpSpaced(state) => state.encode(bytes),
            Inner::Cascade(state) => state.encode(bytes),
            Inner::ThreeColor(state) => state.encode(bytes),
            Inner::All(states) => states.encode(bytes),
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        let first = bytes.first().map(|byte| tag::of_any_version(*byte));
        if first == Some(tag::ALL) {
            Codec::decode(bytes).map(<All as Algorithm>::State::into_any)
        } else {
            Self::decode_one(bytes)
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for AnyRule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for AnyRule {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

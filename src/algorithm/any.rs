//! A rule chosen by configuration: any algorithm, read from text.

use std::{fmt, str::FromStr, time::Duration};

use super::{
    Algorithm, All, Renewal, StateKind, Step,
    codec::{Codec, damaged, tag},
    packed::{
        BuiltIn, Form, InMemory, InWords, Meaning, PackedKind, PackedState, StoreTime, TwoWords,
    },
    registry::{NAMES, algorithms},
    rule::RuleWords,
};
use crate::{
    decision::{Charge, Cost, Decision},
    error::Error,
    time::Timestamp,
};

/// A state that a state of several algorithms can contain.
pub(super) trait Own<Any = AnyState>: Sized {
    fn into_any(self) -> Any;
    /// Returns the state, or an error with the unchanged state of another algorithm.
    fn from_any(any: Any) -> Result<Self, Any>;
    fn in_any(any: &Any) -> Option<&Self>;
}

macro_rules! any {
    ($(
        $folder:ident { $Rule:ident, $State:ident }
        name $name:literal, tag $tag:literal, kind $kind:literal, grants $grants:literal, text $text:literal;
    )+) => {
        /// A rule chosen at run time, by configuration or per tenant.
        ///
        /// Parses from text, prints what parses back, and reads from serde as a string (feature
        /// `serde`). Within an algorithm, a change of the rule carries a client's usage over; only
        /// [counters](super::Counted) count other windows anew. A rule of another algorithm has a
        /// [state of its own](Algorithm::state_kind): stores keep both, so while rules take turns,
        /// a client gets at most the limit of each.
        ///
        /// | text | rule |
        /// |---|---|
        $(#[doc = concat!("| ", $text, " | [`", stringify!($Rule), "`](super::", stringify!($Rule), ") |")])+
        /// | `token-bucket 10/s & fixed-window 1000/1h` | [`All`]: spent together or not at all |
        ///
        /// All settings but the quotas may be left out; the page of each rule documents the
        /// defaults.
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
        #[derive(Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum AnyRule {
            $(
                #[doc = concat!("A rule such as ", $text, ".")]
                $Rule(super::$Rule),
            )+
            /// Several rules at once.
            All(All),
        }

        #[derive(Clone, Debug)]
        enum StateOfRule {
            $($Rule(super::$State),)+
            All(<All as Algorithm>::State),
        }

        $(any!(@member $Rule(super::$State));)+
        any!(@member All(<All as Algorithm>::State));

        impl AnyRule {
            /// Reads a rule by the name of its algorithm; `None` if the name is unknown.
            fn parse_named(name: &str, text: &str) -> Option<Result<Self, Error>> {
                match name {
                    $($name => Some(text.parse().map(Self::$Rule)),)+
                    _ => None,
                }
            }

            /// Returns the script kind of the rule's first tuple.
            pub(super) fn kind(&self) -> i64 {
                match self {
                    $(Self::$Rule(_) => $kind,)+
                    Self::All(_) => All::KIND,
                }
            }
        }

        impl AnyState {
            /// Decodes a state of one rule, not of several.
            pub(super) fn decode_one(bytes: &mut &[u8]) -> Result<Self, Error> {
                let family = bytes.first().map(|byte| tag::family(*byte));
                $(if family == Some(tag::family($tag)) {
                    return super::$State::decode(bytes).map(Own::into_any);
                })+
                Err(damaged())
            }
        }

        impl Codec for AnyState {
            fn encode(&self, bytes: &mut Vec<u8>) {
                match &self.0 {
                    $(StateOfRule::$Rule(state) => state.encode(bytes),)+
                    StateOfRule::All(states) => states.encode(bytes),
                }
            }

            fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
                let first = bytes.first().map(|byte| tag::family(*byte));
                if first == Some(tag::family(All::TAG)) {
                    Codec::decode(bytes).map(<All as Algorithm>::State::into_any)
                } else {
                    Self::decode_one(bytes)
                }
            }
        }
    };
    (@member $Rule:ident($State:ty)) => {
        impl From<super::$Rule> for AnyRule {
            fn from(rule: super::$Rule) -> Self {
                Self::$Rule(rule)
            }
        }

        impl Own for $State {
            #[inline]
            fn into_any(self) -> AnyState {
                AnyState(StateOfRule::$Rule(self))
            }

            #[inline]
            fn from_any(any: AnyState) -> Result<Self, AnyState> {
                match any.0 {
                    StateOfRule::$Rule(own) => Ok(own),
                    other => Err(AnyState(other)),
                }
            }

            #[inline]
            fn in_any(any: &AnyState) -> Option<&Self> {
                match &any.0 {
                    StateOfRule::$Rule(own) => Some(own),
                    _ => None,
                }
            }
        }
    };
}

algorithms!(any);

/// The state of a key under an [`AnyRule`].
#[derive(Clone, Debug)]
pub struct AnyState(StateOfRule);

/// Evaluates an expression for the rule in an [`AnyRule`], whichever its algorithm.
macro_rules! each {
    (
        ($any:expr, $rule:ident => $value:expr)
        $($folder:ident { $Rule:ident, $State:ident } $($column:ident $entry:tt),+;)+
    ) => {
        match $any {
            $(AnyRule::$Rule($rule) => $value,)+
            AnyRule::All($rule) => $value,
        }
    };
    ($any:expr, $rule:ident => $value:expr) => {
        $crate::algorithm::registry::algorithms!(each ($any, $rule => $value))
    };
}

pub(super) use each;

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

    fn forgets(
        &self,
        state: Option<&AnyState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        each!(self, rule => rule.forgets(state.and_then(Own::in_any), charge, now, actual))
    }

    /// This rule does not read a state of another algorithm, which can be forgotten at once.
    #[inline]
    fn forgettable_at(&self, state: &AnyState) -> Timestamp {
        each!(self, rule => Own::in_any(state).map_or_else(Timestamp::default, |own| rule.forgettable_at(own)))
    }

    /// Returns the kind of the rule that was chosen.
    #[inline]
    fn state_kind(&self) -> StateKind {
        // First, so that all others are looked up in a table.
        if let Self::All(rule) = self {
            return rule.state_kind();
        }
        each!(self, rule => rule.state_kind())
    }

    fn grant_at(&self, look: &Decision) -> Option<Timestamp> {
        each!(self, rule => rule.grant_at(look))
    }

    fn grant_slack(&self) -> Option<u64> {
        each!(self, rule => rule.grant_slack())
    }

    fn renewal(&self) -> Option<Renewal> {
        each!(self, rule => rule.renewal())
    }

    fn class_bits(&self) -> u32 {
        each!(self, rule => rule.class_bits())
    }

    fn most_bytes(&self) -> u64 {
        each!(self, rule => rule.most_bytes())
    }

    fn may_shrink_when_idle(&self) -> bool {
        each!(self, rule => rule.may_shrink_when_idle())
    }

    fn may_delay(&self) -> bool {
        each!(self, rule => rule.may_delay())
    }

    #[inline]
    fn waits_for_turn(&self) -> Option<Duration> {
        match self {
            Self::InFlight(rule) => rule.waits_for_turn(),
            _ => None,
        }
    }

    #[inline]
    fn for_key(&self, digest: &dyn Fn() -> u64) -> Option<Self> {
        each!(self, rule => rule.for_key(digest).map(Self::from))
    }

    #[inline]
    fn built_in(&self) -> BuiltIn<'_, AnyState> {
        let form = match self {
            Self::TokenBucket(rule) => Form::Bucket(rule),
            Self::LeakyBucket(rule) => Form::Queue(rule),
            Self::FixedWindow(rule) => Form::Window(rule),
            Self::SlidingWindow(rule) => Form::Slices(rule),
            Self::Cascade(rule) => Form::Either(rule),
            Self::ThreeColor(rule) => Form::Marked(rule),
            Self::All(rule) => Form::List(rule),
            Self::InFlight(rule) => Form::InFlight(rule),
            _ => Form::Plain,
        };
        BuiltIn::new(form, self)
    }
}

impl InWords<AnyState> for AnyRule {
    fn write_words(&self, state: &AnyState, now: StoreTime) -> Option<TwoWords> {
        each!(self, rule => rule.to_two_words(Own::in_any(state)?, now))
    }

    fn read_words(&self, words: TwoWords, now: StoreTime) -> Option<AnyState> {
        each!(self, rule => rule.read_two_words(words, now).map(Own::into_any))
    }

    fn write_word(&self, state: &AnyState, now: StoreTime) -> Option<PackedState> {
        each!(self, rule => rule.pack(Own::in_any(state)?, now))
    }

    fn read_word(
        &self,
        packed: PackedState,
        packed_kind: PackedKind,
        now: StoreTime,
    ) -> Option<AnyState> {
        let is_own = match packed_kind.meaning() {
            Meaning::Debt => true,
            Meaning::Bucket => matches!(self, Self::TokenBucket(_)),
            Meaning::Queue => matches!(self, Self::LeakyBucket(_)),
            Meaning::Window(_) => matches!(self, Self::FixedWindow(_)),
            Meaning::Slices(_) => matches!(self, Self::SlidingWindow(_)),
            Meaning::InFlight => matches!(self, Self::InFlight(_)),
        };
        if !is_own {
            return None;
        }
        each!(self, rule => rule.unpack(packed, packed_kind, now).map(Own::into_any))
    }
}

/// Takes the state: as the first value if it is of the rule's algorithm, and otherwise as the
/// second.
#[inline]
fn split<S: Own<Any>, Any>(state: &mut Option<Any>) -> (Option<S>, Option<Any>) {
    match state.take().map(S::from_any) {
        None => (None, None),
        Some(Ok(own)) => (Some(own), None),
        Some(Err(foreign)) => (None, Some(foreign)),
    }
}

/// Steps on the state if it is of the rule's algorithm, and on none otherwise.
#[inline]
pub(super) fn step_own<R: Algorithm<State: Own<Any>>, Any>(
    rule: &R,
    state: &mut Option<Any>,
    now: Timestamp,
    cost: Cost,
) -> Step {
    let (mut own, foreign) = split(state);
    let step = rule.step(&mut own, now, cost);
    *state = own.map(Own::into_any).or(foreign);
    step
}

pub(super) fn settle_own<R: Algorithm<State: Own<Any>>, Any>(
    rule: &R,
    state: &mut Option<Any>,
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
    /// Returns the rule for a request that was given the colour `class` before: 0 green, 1 yellow,
    /// 2 and above red.
    ///
    /// Changes only markers that are [aware](super::ThreeColor::aware) of colours, alone or among
    /// [`All`].
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
        let Some((name, column)) = RuleWords::first(text) else {
            return Err(Error::new(
                "no rule: expected an algorithm and a quota, as in `token-bucket 100/1m`",
            )
            .at_column(1));
        };
        Self::parse_named(name, text).unwrap_or_else(|| {
            let (last, others) = NAMES.split_last().unwrap_or((&name, &[]));
            Err(Error::new(format!(
                "unknown algorithm `{name}`: expected `{}` or `{last}`, as in `token-bucket 100/1m burst=150`",
                others.join("`, `")
            ))
            .at_column(column))
        })
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

impl fmt::Debug for AnyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyRule({self})")
    }
}

impl fmt::Display for AnyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(self, rule => rule.fmt(f))
    }
}

#[cfg(feature = "serde")]
crate::quota::as_text!(AnyRule);

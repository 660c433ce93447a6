//! A rule that configuration chose: any algorithm, read from text.

use std::{fmt, str::FromStr};

use super::{
    Algorithm, Mark, Meter, Moment, Step,
    both::{join, passes, step_if},
    text::Words,
    token_bucket::{TokenBucket, TokenBucketState},
};
use crate::{
    clock::Timestamp,
    decision::{Charge, Cost, Decision},
    error::Error,
};

/// A rule chosen at run time, by configuration or per tenant.
///
/// Parses from text, prints what parses back, and reads from serde as a
/// string (feature `serde`). A rule of another algorithm than the one that wrote a key's state
/// begins afresh ([`Step::Restarted`]); within an algorithm a change mints nothing.
///
/// | text | rule |
/// |---|---|
/// | `token-bucket 100/1m` | [`TokenBucket`] with a burst of 100 |
/// | `token-bucket 100/1m burst=150 initial=300 keep=1h` | all its settings |
/// | `token-bucket 10/s & token-bucket 1000/1h` | both, spent together or not at all |
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
    /// Several rules at once.
    All(All),
}

/// Several rules on one key, spent together or not at all: `… & …` in an [`AnyRule`]'s text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct All(Box<[AnyRule]>);

/// What an [`AnyRule`] remembers of a key.
#[derive(Clone, Debug)]
pub struct AnyState(Inner);

#[derive(Clone, Debug)]
enum Inner {
    TokenBucket(TokenBucketState),
    All(Box<[Option<AnyState>]>),
}

impl AnyState {
    fn of_token_bucket(state: TokenBucketState) -> Self {
        Self(Inner::TokenBucket(state))
    }

    fn of_all(states: Box<[Option<Self>]>) -> Self {
        Self(Inner::All(states))
    }

    fn token_bucket(self) -> Result<TokenBucketState, Self> {
        match self.0 {
            Inner::TokenBucket(state) => Ok(state),
            other => Err(Self(other)),
        }
    }

    fn all(self) -> Result<Box<[Option<Self>]>, Self> {
        match self.0 {
            Inner::All(states) => Ok(states),
            other => Err(Self(other)),
        }
    }
}

impl Algorithm for AnyRule {
    type State = AnyState;

    #[inline]
    fn step(&self, state: &mut Option<AnyState>, now: Timestamp, cost: Cost) -> Step {
        match self {
            Self::TokenBucket(rule) => with_own(
                state,
                AnyState::token_bucket,
                AnyState::of_token_bucket,
                |own| rule.step(own, now, cost),
            ),
            Self::All(rule) => with_own(state, AnyState::all, AnyState::of_all, |own| {
                rule.step(own, now, cost)
            }),
        }
    }

    fn look(&self, state: Option<&AnyState>, now: Timestamp) -> Decision {
        match (self, state.map(|state| &state.0)) {
            (Self::TokenBucket(rule), Some(Inner::TokenBucket(state))) => {
                rule.look(Some(state), now)
            }
            (Self::TokenBucket(rule), _) => rule.look(None, now),
            (Self::All(rule), Some(Inner::All(states))) => rule.look(Some(states), now),
            (Self::All(rule), _) => rule.look(None, now),
        }
    }

    /// A charge that another algorithm made stays as it is.
    fn settle(&self, state: &mut Option<AnyState>, charge: &Charge, now: Timestamp, actual: u64) {
        match self {
            Self::TokenBucket(rule) => {
                let (mut own, foreign) = split(state, AnyState::token_bucket);
                if foreign.is_none() {
                    rule.settle(&mut own, charge, now, actual);
                }
                *state = own.map(AnyState::of_token_bucket).or(foreign);
            }
            Self::All(rule) => {
                let (mut own, foreign) = split(state, AnyState::all);
                if foreign.is_none() {
                    rule.settle(&mut own, charge, now, actual);
                }
                *state = own.map(AnyState::of_all).or(foreign);
            }
        }
    }

    /// A state of another algorithm says nothing to this rule: it can be forgotten at once.
    #[inline]
    fn forgettable_at(&self, state: &AnyState) -> Timestamp {
        match (self, &state.0) {
            (Self::TokenBucket(rule), Inner::TokenBucket(state)) => rule.forgettable_at(state),
            (Self::All(rule), Inner::All(states)) => rule.forgettable_at(states),
            _ => Timestamp::default(),
        }
    }

    #[inline]
    fn meter(&self) -> Option<&Meter> {
        match self {
            Self::TokenBucket(rule) => rule.meter(),
            Self::All(_) => None,
        }
    }

    fn mark_of(&self, state: &AnyState, now: Moment) -> Option<Mark> {
        match (self, &state.0) {
            (Self::TokenBucket(rule), Inner::TokenBucket(state)) => rule.mark_of(state, now),
            _ => None,
        }
    }

    /// All marks are those of token buckets.
    fn state_of(&self, mark: Mark, now: Moment) -> Option<AnyState> {
        let state = match self {
            Self::TokenBucket(rule) => rule.state_of(mark, now)?,
            Self::All(_) => TokenBucketState::holding(now.mark().since(mark), now.at()),
        };
        Some(AnyState::of_token_bucket(state))
    }
}

/// Takes the state: the algorithm's own one, or that of another algorithm.
#[inline]
fn split<S>(
    state: &mut Option<AnyState>,
    own: impl FnOnce(AnyState) -> Result<S, AnyState>,
) -> (Option<S>, Option<AnyState>) {
    match state.take().map(own) {
        None => (None, None),
        Some(Ok(own)) => (Some(own), None),
        Some(Err(foreign)) => (None, Some(foreign)),
    }
}

/// Runs a step on the state if it is of the step's algorithm, and on none otherwise.
#[inline]
fn with_own<S>(
    state: &mut Option<AnyState>,
    own: impl FnOnce(AnyState) -> Result<S, AnyState>,
    any: impl FnOnce(S) -> AnyState,
    step: impl FnOnce(&mut Option<S>) -> Step,
) -> Step {
    let (mut own, foreign) = split(state, own);
    let step = step(&mut own);
    match (own, foreign) {
        (Some(own), None) => {
            *state = Some(any(own));
            step
        }
        (Some(own), Some(_)) => {
            *state = Some(any(own));
            Step::Restarted(step.decision())
        }
        (None, foreign) => {
            *state = foreign;
            step
        }
    }
}

impl Algorithm for All {
    /// One state per rule, by position.
    type State = Box<[Option<AnyState>]>;

    fn step(&self, state: &mut Option<Self::State>, now: Timestamp, cost: Cost) -> Step {
        let mut states = self.sized(state.take());
        let all = self
            .zip(&states)
            .all(|(rule, state)| passes(rule, state, now, cost));
        let step = self
            .0
            .iter()
            .zip(&mut states)
            .map(|(rule, state)| {
                let refuses = !passes(rule, state, now, cost);
                step_if(rule, state, now, cost, all || refuses)
            })
            .reduce(join);
        if states.iter().any(Option::is_some) {
            *state = Some(states);
        }
        step.unwrap_or_else(|| unreachable!("`All` holds at least two rules"))
    }

    fn look(&self, state: Option<&Self::State>, now: Timestamp) -> Decision {
        let states = self.sized(state.cloned());
        self.zip(&states)
            .map(|(rule, state)| rule.look(state.as_ref(), now))
            .reduce(Decision::and)
            .unwrap_or_else(|| unreachable!("`All` holds at least two rules"))
    }

    fn settle(
        &self,
        state: &mut Option<Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        let mut states = self.sized(state.take());
        for (rule, state) in self.0.iter().zip(&mut states) {
            rule.settle(state, charge, now, actual);
        }
        *state = states.iter().any(Option::is_some).then_some(states);
    }

    fn forgettable_at(&self, states: &Self::State) -> Timestamp {
        self.zip(states)
            .filter_map(|(rule, state)| Some(rule.forgettable_at(state.as_ref()?)))
            .max()
            .unwrap_or_default()
    }
}

impl All {
    /// The rules in order.
    pub fn rules(&self) -> &[AnyRule] {
        &self.0
    }

    fn zip<'a>(
        &'a self,
        states: &'a [Option<AnyState>],
    ) -> impl Iterator<Item = (&'a AnyRule, &'a Option<AnyState>)> {
        self.0.iter().zip(states)
    }

    /// One state per rule; a rule that was added has none yet.
    fn sized(&self, states: Option<Box<[Option<AnyState>]>>) -> Box<[Option<AnyState>]> {
        let mut states = states.map_or_else(Vec::new, Vec::from);
        states.resize(self.0.len(), None);
        states.into_boxed_slice()
    }
}

impl FromStr for AnyRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if !text.contains('&') {
            return Self::parse_one(text);
        }
        let mut at = 0;
        let mut rules = Vec::new();
        for part in text.split('&') {
            rules.push(Self::parse_one(part).map_err(|error| error.shifted(at))?);
            at += part.len() + 1;
        }
        Ok(Self::All(All(rules.into_boxed_slice())))
    }
}

impl AnyRule {
    fn parse_one(text: &str) -> Result<Self, Error> {
        match Words::first(text) {
            Some(("token-bucket", _)) => text.parse().map(Self::TokenBucket),
            Some((name, column)) => Err(Error::new(format!(
                "unknown algorithm `{name}`: expected `token-bucket`, as in `token-bucket 100/1m burst=150`"
            ))
            .at_column(column)),
            None => Err(Error::new(
                "no rule: expected an algorithm and a quota, as in `token-bucket 100/1m`",
            )
            .at_column(1)),
        }
    }
}

impl fmt::Display for AnyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenBucket(rule) => rule.fmt(f),
            Self::All(All(rules)) => {
                for (index, rule) in rules.iter().enumerate() {
                    if index > 0 {
                        f.write_str(" & ")?;
                    }
                    rule.fmt(f)?;
                }
                Ok(())
            }
        }
    }
}

impl From<TokenBucket> for AnyRule {
    fn from(rule: TokenBucket) -> Self {
        Self::TokenBucket(rule)
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

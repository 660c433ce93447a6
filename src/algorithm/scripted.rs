//! Rules as numbers, for the stores that run a script next to the data.
//!
//! `Scripted` is public because it is a useful bound, and sealed because a rule needs a step in Lua
//! that only this crate can add.

use std::fmt::Display;

use super::{
    Algorithm, All, AnyRule, Block,
    all::split_charge,
    any::{Own, each},
    registry::algorithms,
};
#[cfg(feature = "redis")]
use super::{LUA, Lua, SlidingLog, TokenBucket};
use crate::{
    decision::{Charge, Position},
    error::Error,
    time::Timestamp,
};

/// A part of a rule or of a state as whole numbers for a script: its kind, then its settings or
/// values.
///
/// Times are in microseconds. All numbers lie between ±2⁵³, a range in which the numbers of a
/// script are exact.
pub(crate) type ScriptTuple = Vec<i64>;

/// Returns the gain of a microsecond, the price of a token, the burst and the tokens that it
/// keeps free, if the rule is a single token bucket that starts full.
#[cfg(feature = "redis")]
pub(crate) fn lone_bucket(parts: &[ScriptTuple]) -> Option<[i64; 4]> {
    let [part] = parts else { return None };
    match part[..] {
        [TokenBucket::KIND, gain, price, burst, initial, _, kept] if initial == burst => {
            Some([gain, price, burst, kept])
        }
        _ => None,
    }
}

/// Returns the prefix of all states of a rule with these parts. States of other kinds begin with
/// other numbers.
#[cfg(feature = "redis")]
pub(crate) fn kind_in_script(parts: &[ScriptTuple]) -> ScriptTuple {
    match parts.first().map(Vec::as_slice) {
        Some(all @ [All::KIND, ..]) => all.to_vec(),
        Some([kind, ..]) => vec![*kind],
        _ => ScriptTuple::new(),
    }
}

/// Returns the index in [`LUA`] of the algorithm of a rule with these parts, if it is one alone.
#[cfg(feature = "redis")]
pub(crate) fn lone_algorithm(parts: &[ScriptTuple]) -> Option<usize> {
    let [part] = parts else { return None };
    let kind = part.first()?;
    LUA.iter().position(|lua| lua.kind == *kind)
}

/// Returns the parts of a rule, counted from 1, whose states have a log beside them.
#[cfg(feature = "redis")]
pub(crate) fn logs_in_script(parts: &[ScriptTuple]) -> impl Iterator<Item = usize> {
    let is_log = |(_, part): &(usize, &ScriptTuple)| part.first() == Some(&SlidingLog::KIND);
    let logs = parts.iter().enumerate().filter(is_log);
    logs.map(|(n, _)| n + 1)
}

/// Returns `true` if scripts can grant units of a rule with these parts ahead of their use.
#[cfg(feature = "redis")]
pub(crate) fn can_grant(parts: &[ScriptTuple]) -> bool {
    let grants = |lua: &&Lua| lua.grants;
    let kinds: Vec<i64> = LUA.iter().filter(grants).map(|lua| lua.kind).collect();
    let can = |part: &ScriptTuple| {
        matches!(part[..], [All::KIND, ..]) || part.first().is_some_and(|kind| kinds.contains(kind))
    };
    parts.iter().all(can)
}

/// The greatest number of a [`ScriptTuple`], just below 2⁵³: greater numbers may be rounded to 2⁵³.
const MOST: u64 = (1 << 53) - 1;
/// The greatest of two factors whose product a script divides exactly, 2⁵¹.
pub(super) const MOST_FACTOR: u128 = 1 << 51;

/// Keeps [`Scripted`] to the rules of this crate.
pub trait Sealed {}

macro_rules! seal {
    ($($folder:ident { $Rule:ident, $State:ident } $($column:ident $value:tt),+;)+) => {
        $(impl Sealed for super::$Rule {})+
        impl Sealed for All {}
        impl Sealed for AnyRule {}
        impl Sealed for Block {}
    };
}

algorithms!(seal);

/// A rule that a store of the script class can run, such as `Redis`: every algorithm, [`All`], and
/// [`AnyRule`].
///
/// Sealed, because the program that such a store runs contains the steps of these rules, and of no
/// others. Use it as a bound:
///
#[cfg_attr(feature = "redis", doc = "```")]
#[cfg_attr(not(feature = "redis"), doc = "```text")]
/// use tollgate::{algorithm::Scripted, store::driver::{Evaluate, ScriptStore}};
///
/// fn store<E, Rule>(data: E) -> ScriptStore<E, Rule>
/// where
///     E: Evaluate,
///     Rule: Scripted,
/// {
///     ScriptStore::new(data)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the rule `{Self}` cannot be run by a script",
    label = "not a rule with a step in the script",
    note = "scripts run `TokenBucket` and the other algorithms, and `AnyRule`: in place of a pair of rules take an `AnyRule` of both \
            (`\"token-bucket 10/s & fixed-window 1000/1h\".parse::<AnyRule>()?`); for a rule of your own take a store that compares and \
            swaps (`CasStore`), or `Local`"
)]
pub trait Scripted: Algorithm + PartialEq + Sealed {
    // The script decides by the numbers of the rule and writes those of the state. From the state
    // that it found, `Algorithm::step` then makes the decision anew. Both must agree on verdict and
    // state for times in whole microseconds.

    /// Appends the parts of the rule.
    ///
    /// # Errors
    ///
    /// When the rule does not fit into numbers up to 2⁵³.
    #[doc(hidden)]
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error>;

    /// Returns the rule as a script counts, if that is coarser than in memory.
    ///
    /// Stores decide, look and settle by it, because its [`Algorithm::step`] agrees with the
    /// script. `None`, the default, means that the rule counts alike in both.
    #[doc(hidden)]
    fn in_script(&self) -> Option<Self> {
        None
    }

    /// Decodes a state from its parts: one for each part of the rule, `None` if it is missing.
    ///
    /// Returns `None` if they are not a state of this rule.
    #[doc(hidden)]
    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<Self::State>;

    /// Appends the parts of a state: one for each part of the rule.
    #[doc(hidden)]
    fn state_parts(&self, state: &Self::State, parts: &mut Vec<Option<ScriptTuple>>);

    /// Appends a charge, to be corrected to the `actual` cost: one part for each part of the rule.
    ///
    /// The script then changes the state as [`Algorithm::settle`] does. The default appends one
    /// part.
    #[doc(hidden)]
    fn charge_parts(&self, charge: &Charge, actual: u64, parts: &mut Vec<ScriptTuple>) {
        parts.push(charge_part(charge, actual));
    }
}

/// A charge in numbers: its time, its units, the actual cost and its class; the call's departure;
/// the end of the charge on the time axis of a bucket; and the microseconds that had been refunded
/// to the key before, below zero if it must be the last charge.
///
/// Departure and end are pairs of microseconds and the nanoseconds beyond them, or -1 and 0 if they
/// are not known.
fn charge_part(charge: &Charge, actual: u64) -> ScriptTuple {
    /// An unknown instant.
    const NONE: [i64; 2] = [-1, 0];
    let in_two = |nanos: u128| {
        let micro = u128::from(MICRO);
        [most(nanos / micro), (nanos % micro) as i64]
    };
    let departs = charge
        .delay
        .map(|delay| in_two(u128::from(charge.at.as_nanos()) + delay.as_nanos()));
    let position = charge.position;
    let ends = position.map(|position| in_two(position.end().into()));
    let micros = |nanos: u64| count(nanos / MICRO);
    let refunded = micros(position.map_or(0, Position::refunded));
    let is_if_last = position.is_some_and(Position::is_if_last);
    let [departs, departs_nanos] = departs.unwrap_or(NONE);
    let [ends, ends_nanos] = ends.unwrap_or(NONE);
    vec![
        micros(charge.at.as_nanos()),
        count(charge.cost),
        count(actual),
        charge.class.into(),
        departs,
        departs_nanos,
        ends,
        ends_nanos,
        if is_if_last { -1 - refunded } else { refunded },
    ]
}

/// Returns the tuple of a state that has one; `None` if it is missing.
pub(super) fn only(parts: &[Option<ScriptTuple>]) -> Option<&[i64]> {
    parts.first()?.as_deref()
}

/// Returns the error of a rule whose numbers do not fit.
fn too_large(rule: &impl Display) -> Error {
    Error::new(format!(
        "the rule `{rule}` does not fit into a script's numbers: expected limits below 2^53, and less than 2^53 microseconds \
         (285 years) to use or refill them; choose a smaller burst or limit, or a shorter period"
    ))
}

/// Returns the number if it fits, or the error of its rule.
pub(super) fn fitting(number: u128, rule: &impl Display) -> Result<i64, Error> {
    if number <= u128::from(MOST) {
        Ok(number as i64)
    } else {
        Err(too_large(rule))
    }
}

/// Returns nanoseconds in microseconds, or an error if they are not whole ones.
pub(super) fn micros(nanos: u64, rule: &impl Display) -> Result<i64, Error> {
    if nanos.is_multiple_of(MICRO) {
        return fitting((nanos / MICRO).into(), rule);
    }
    Err(Error::new(format!(
        "the rule `{rule}` is not a matter of whole microseconds, in which a script counts: expected periods, \
         offsets, slices and waits of whole microseconds; choose other ones"
    )))
}

/// Nanoseconds in a microsecond.
pub(super) const MICRO: u64 = 1000;

/// Returns a number that a script wrote, if it is in range and not below zero.
pub(super) fn natural(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| *number <= MOST)
}

/// Returns an instant that a script wrote, if it is in range.
pub(super) fn instant(micros: i64) -> Option<Timestamp> {
    let nanos = natural(micros)? * MICRO;
    Some(Timestamp::from_nanos(nanos))
}

/// Returns an instant for a script, rounded up.
pub(super) fn in_micros(at: Timestamp) -> i64 {
    at.as_nanos().div_ceil(MICRO) as i64
}

/// Returns a count for a script, cut to its numbers.
pub(super) fn count(units: u64) -> i64 {
    units.min(MOST) as i64
}

/// Returns a count in 128 bits for a script, cut to its numbers.
pub(super) fn most(units: u128) -> i64 {
    units.min(MOST.into()) as i64
}

impl Scripted for AnyRule {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        each!(self, rule => rule.rule_parts(parts))
    }

    fn in_script(&self) -> Option<Self> {
        each!(self, rule => rule.in_script().map(Self::from))
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<Self::State> {
        each!(self, rule => rule.state_of_parts(parts).map(Own::into_any))
    }

    fn state_parts(&self, state: &Self::State, parts: &mut Vec<Option<ScriptTuple>>) {
        each!(self, rule => match Own::in_any(state) {
            Some(state) => rule.state_parts(state, parts),
            None => parts.push(None),
        });
    }

    fn charge_parts(&self, charge: &Charge, actual: u64, parts: &mut Vec<ScriptTuple>) {
        each!(self, rule => rule.charge_parts(charge, actual, parts));
    }
}

impl All {
    /// Returns the part in front of rules and states. It contains the kinds of the members, which
    /// together are the kind.
    fn head(&self) -> ScriptTuple {
        let kinds = self.rules().iter().map(AnyRule::kind);
        [All::KIND].into_iter().chain(kinds).collect()
    }
}

impl Scripted for All {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        parts.push(self.head());
        self.rules()
            .iter()
            .try_for_each(|rule| rule.rule_parts(parts))
    }

    fn in_script(&self) -> Option<Self> {
        self.changed(AnyRule::in_script)
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<Self::State> {
        let (first, parts) = parts.split_first()?;
        if first.as_ref()? != &self.head() {
            return None;
        }
        let states: Box<[_]> = self
            .rules()
            .iter()
            .enumerate()
            .map(|(n, rule)| rule.state_of_parts(parts.get(n..n + 1)?))
            .collect();
        states.iter().any(Option::is_some).then_some(states)
    }

    fn state_parts(&self, states: &Self::State, parts: &mut Vec<Option<ScriptTuple>>) {
        parts.push(Some(self.head()));
        for (n, rule) in self.rules().iter().enumerate() {
            match states.get(n).and_then(Option::as_ref) {
                Some(state) => rule.state_parts(state, parts),
                None => parts.push(None),
            }
        }
    }

    /// The part that marks several rules gets an empty charge.
    fn charge_parts(&self, charge: &Charge, actual: u64, parts: &mut Vec<ScriptTuple>) {
        parts.push(Vec::new());
        let mut rest = charge.duplicate();
        for rule in self.rules() {
            let (own, others) = split_charge(&rest, rule.class_bits());
            rule.charge_parts(&own, actual, parts);
            rest = others;
        }
    }
}

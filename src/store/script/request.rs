//! What the programs are asked.

use std::{collections::HashMap, time::Duration};

use super::pack::{put_array, put_bool, put_bytes, put_number};
use crate::{
    algorithm::{Part, Scripted},
    clock::Timestamp,
    error::Error,
    store::{Ask, name::key_name},
};

/// The version of states.
pub(super) const VERSION: u8 = 1;

/// One ask, kept until it is answered.
pub(super) struct Question<Rule> {
    pub(super) key: Box<[u8]>,
    pub(super) rule: Rule,
    /// The rule in numbers, as it goes out.
    numbers: Vec<u8>,
    pub(super) cost: crate::Cost,
}

/// Asks that are decided together, all or nothing.
pub(super) struct Call<Rule>(pub(super) Vec<Question<Rule>>);

impl<Rule: Scripted> Call<Rule> {
    /// # Errors
    ///
    /// When a rule does not fit into numbers.
    pub(super) fn of(prefix: &str, asks: &[Ask<'_, Rule>]) -> Result<Self, Error> {
        let question = |ask: &Ask<'_, Rule>| {
            let rule = ask.rule_for_key().unwrap_or_else(|| ask.rule().clone());
            Ok(Question {
                key: key_name(prefix, ask.policy(), ask.key()),
                numbers: in_numbers(&rule)?,
                rule,
                cost: ask.cost(),
            })
        };
        let questions: Result<_, _> = asks.iter().map(question).collect();
        questions.map(Self)
    }
}

/// A rule as the program reads it.
///
/// # Errors
///
/// When it does not fit into numbers.
pub(super) fn in_numbers(rule: &impl Scripted) -> Result<Vec<u8>, Error> {
    let mut parts = Vec::new();
    rule.rule_parts(&mut parts)?;
    let mut bytes = Vec::with_capacity(32);
    put_array(&mut bytes, parts.len());
    parts.iter().for_each(|part| put_part(&mut bytes, part));
    Ok(bytes)
}

fn put_part(bytes: &mut Vec<u8>, part: &Part) {
    put_array(bytes, part.len());
    part.iter().for_each(|number| put_number(bytes, *number));
}

/// A state as the program keeps it.
pub(super) fn state_bytes<Rule: Scripted>(rule: &Rule, state: &Rule::State) -> Vec<u8> {
    let mut parts = Vec::new();
    rule.state_parts(state, &mut parts);
    let mut bytes = Vec::with_capacity(32);
    put_array(&mut bytes, parts.len() + 1);
    put_number(&mut bytes, VERSION.into());
    for part in &parts {
        match part {
            Some(part) => put_part(&mut bytes, part),
            None => put_bool(&mut bytes, false),
        }
    }
    bytes
}

/// Several calls as one request: the keys that it is about, in the order of first sight.
pub(super) struct Request {
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) argument: Vec<u8>,
    /// For each ask of each call the number of its key, beginning with 0.
    pub(super) places: Vec<usize>,
}

impl Request {
    /// A request at `now`, or at the server's time.
    pub(super) fn of<'a, Rule: 'a>(
        now: Option<Timestamp>,
        calls: impl Iterator<Item = &'a Call<Rule>> + Clone,
    ) -> Self {
        let mut keys: HashMap<&[u8], usize> = HashMap::new();
        let mut rules: Vec<&[u8]> = Vec::new();
        let (mut in_order, mut places, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for Call(questions) in calls {
            numbers.push(questions.len() as i64);
            for question in questions {
                let next = keys.len();
                let key = *keys.entry(&question.key).or_insert_with(|| {
                    in_order.push(question.key.clone());
                    next
                });
                let known = rules.iter().position(|rule| *rule == question.numbers);
                let rule = known.unwrap_or_else(|| {
                    rules.push(&question.numbers);
                    rules.len() - 1
                });
                places.push(key);
                // A cost beyond what the program can count is beyond every limit as well.
                let cost = question.cost.get().min(1 << 53) as i64;
                numbers.extend([rule as i64 + 1, key as i64 + 1, cost]);
            }
        }
        let mut argument = Vec::with_capacity(64 + 4 * numbers.len());
        put_array(&mut argument, 3);
        put_number(
            &mut argument,
            now.map_or(0, |now| now.as_nanos() / 1000) as i64,
        );
        put_array(&mut argument, rules.len());
        rules
            .iter()
            .for_each(|rule| argument.extend_from_slice(rule));
        put_array(&mut argument, numbers.len());
        numbers
            .iter()
            .for_each(|number| put_number(&mut argument, *number));
        Self {
            keys: in_order,
            argument,
            places,
        }
    }

    /// A request that only tells what is there.
    pub(super) fn to_see(now: Option<Timestamp>, keys: Vec<Box<[u8]>>) -> Self {
        let nothing = Self::of::<()>(now, std::iter::empty());
        Self { keys, ..nothing }
    }
}

/// What must be under a key for it to be replaced.
pub(super) enum Expected<'a> {
    Whatever,
    This(Option<&'a [u8]>),
}

/// The argument of a swap.
pub(super) fn swap(expected: Expected<'_>, state: Option<&[u8]>, keep: Duration) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    put_array(&mut bytes, 3);
    match expected {
        Expected::Whatever => put_bool(&mut bytes, true),
        Expected::This(None) => put_bool(&mut bytes, false),
        Expected::This(Some(state)) => put_bytes(&mut bytes, state),
    }
    match state {
        None => put_bool(&mut bytes, false),
        Some(state) => put_bytes(&mut bytes, state),
    }
    let millis = keep.as_micros().div_ceil(1000).clamp(1, 1 << 52);
    put_number(&mut bytes, millis as i64);
    bytes
}

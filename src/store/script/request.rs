//! What the programs are asked.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use smallvec::SmallVec;

use super::{
    Program,
    pack::{put_array, put_bool, put_bytes, put_number},
};
use crate::{
    algorithm::{Part, Scripted, lone_bucket},
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
    numbers: Arc<Numbers>,
    pub(super) cost: crate::Cost,
}

impl<Rule> Question<Rule> {
    /// A cost beyond what the programs can count is beyond every limit as well.
    fn cost(&self) -> i64 {
        self.cost.get().min(1 << 53) as i64
    }
}

/// Asks that are decided together, all or nothing.
pub(super) struct Call<Rule>(pub(super) SmallVec<[Question<Rule>; 1]>);

impl<Rule> AsRef<Self> for Call<Rule> {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<Rule: Scripted> Call<Rule> {
    /// # Errors
    ///
    /// When a rule does not fit into numbers.
    pub(super) fn of(
        prefix: &str,
        rules: &Rules<Rule>,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Self, Error> {
        let question = |ask: &Ask<'_, Rule>| {
            let rule = ask.rule_for_key().unwrap_or_else(|| ask.rule().clone());
            let rule = rule.in_script().unwrap_or(rule);
            Ok(Question {
                key: key_name(prefix, ask.policy(), ask.key()),
                numbers: rules.in_numbers(&rule)?,
                rule,
                cost: ask.cost(),
            })
        };
        let questions: Result<_, _> = asks.iter().map(question).collect();
        questions.map(Self)
    }
}

/// A rule as the programs read it.
struct Numbers {
    /// A list of its parts, in MessagePack.
    bytes: Vec<u8>,
    /// Gain, price and burst, if it is one token bucket that starts full.
    bucket: Option<[i64; 3]>,
}

/// Rules in numbers: the last one is kept, for most calls come under the rule of the one before.
pub(super) struct Rules<Rule>(Mutex<Option<(Rule, Arc<Numbers>)>>);

impl<Rule> Default for Rules<Rule> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<Rule: Scripted> Rules<Rule> {
    /// # Errors
    ///
    /// When it does not fit into numbers.
    fn in_numbers(&self, rule: &Rule) -> Result<Arc<Numbers>, Error> {
        let last = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, numbers)) = &*last() {
            if known == rule {
                return Ok(Arc::clone(numbers));
            }
        }
        let mut parts = Vec::new();
        rule.rule_parts(&mut parts)?;
        let mut bytes = Vec::with_capacity(32);
        put_array(&mut bytes, parts.len());
        parts.iter().for_each(|part| put_part(&mut bytes, part));
        let bucket = lone_bucket(&parts);
        let numbers = Arc::new(Numbers { bytes, bucket });
        *last() = Some((rule.clone(), Arc::clone(&numbers)));
        Ok(numbers)
    }
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
    pub(super) program: Program,
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) argument: Vec<u8>,
    /// For each ask of each call the number of its key, beginning with 0.
    pub(super) places: Vec<usize>,
}

/// One ask of a request.
struct Item {
    /// The numbers of its rule and key, beginning with 0.
    rule: usize,
    key: usize,
    cost: i64,
}

impl Request {
    /// A request at `now`, or at the server's time.
    pub(super) fn of<'a, Rule: 'a>(
        now: Option<Timestamp>,
        calls: impl Iterator<Item = &'a Call<Rule>> + Clone,
    ) -> Self {
        let mut known: HashMap<&[u8], usize, _> =
            HashMap::with_hasher(foldhash::fast::RandomState::default());
        let (mut keys, mut rules, mut items) =
            (Vec::new(), Vec::<&Arc<Numbers>>::new(), Vec::new());
        for question in calls.clone().flat_map(|call| &call.0) {
            let next = keys.len();
            let key = *known.entry(&question.key).or_insert_with(|| {
                keys.push(question.key.clone());
                next
            });
            let is_known = |rule: &&Arc<Numbers>| {
                Arc::ptr_eq(rule, &question.numbers) || rule.bytes == question.numbers.bytes
            };
            let rule = rules.iter().position(is_known).unwrap_or_else(|| {
                rules.push(&question.numbers);
                rules.len() - 1
            });
            let cost = question.cost();
            items.push(Item { rule, key, cost });
        }
        let places = items.iter().map(|item| item.key).collect();
        let now = now.map_or(0, |now| now.as_nanos() / 1000) as i64;
        let buckets: Option<Vec<_>> = rules.iter().map(|rule| rule.bucket).collect();
        let alone = || calls.clone().all(|call| call.0.len() == 1);
        let (program, argument) = match buckets.filter(|_| alone()) {
            Some(buckets) if !items.is_empty() => (Program::BUCKETS, runs(now, &buckets, items)),
            _ => {
                let asks = calls.map(|call| call.0.len());
                (Program::DECIDE, list(now, &rules, asks, &items))
            }
        };
        Self {
            program,
            keys,
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

/// The argument of a request to decide.
fn list(
    now: i64,
    rules: &[&Arc<Numbers>],
    asks: impl Iterator<Item = usize>,
    mut items: &[Item],
) -> Vec<u8> {
    let mut numbers = Vec::with_capacity(4 * items.len());
    for count in asks {
        let (own, rest) = items.split_at(count);
        items = rest;
        numbers.push(count as i64);
        let own = own.iter();
        numbers.extend(own.flat_map(|item| [item.rule as i64 + 1, item.key as i64 + 1, item.cost]));
    }
    let mut bytes = Vec::with_capacity(64 + 2 * numbers.len());
    put_array(&mut bytes, 3);
    put_number(&mut bytes, now);
    put_array(&mut bytes, rules.len());
    rules
        .iter()
        .for_each(|rule| bytes.extend_from_slice(&rule.bytes));
    put_array(&mut bytes, numbers.len());
    numbers
        .iter()
        .for_each(|number| put_number(&mut bytes, *number));
    bytes
}

/// The argument of a request about buckets: calls on different keys may change places.
fn runs(now: i64, buckets: &[[i64; 3]], mut items: Vec<Item>) -> Vec<u8> {
    // Stable: those on one key stay in their order.
    items.sort_by_key(|item| item.key);
    let mut bytes = Vec::with_capacity(16 + 32 * buckets.len() + 8 * items.len());
    // From 1 on, as Lua counts; the rules begin at the third place.
    let place = |rule: usize| 3 + 3 * rule as i64;
    put_number(&mut bytes, now);
    put_number(&mut bytes, place(buckets.len()));
    let rules = buckets.iter().flatten();
    rules.for_each(|number| put_number(&mut bytes, *number));
    for run in items
        .chunk_by(|one, next| (one.rule, one.key, one.cost) == (next.rule, next.key, next.cost))
    {
        let Item { rule, key, cost } = run[0];
        for number in [key as i64 + 1, place(rule), cost, run.len() as i64] {
            put_number(&mut bytes, number);
        }
    }
    bytes
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

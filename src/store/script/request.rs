//! The arguments of a program.

use std::{
    collections::HashMap,
    mem, ptr,
    sync::{Arc, Mutex, PoisonError},
};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::{
    Program,
    pack::{put_array, put_number},
    settlement::Correction,
};
use crate::{
    algorithm::{Part, Scripted, can_grant, kind_in_script, lone_bucket},
    error::Error,
    store::{Ask, Spend, name::key_name},
    time::Timestamp,
};

/// The form of a value of one state.
pub(super) const VERSION: u8 = 1;
/// The form of a value of several states, of different kinds.
pub(super) const SEVERAL: u8 = 2;

/// An ask that outlives its call.
pub(super) struct Question<Rule> {
    /// Empty after a [`Request`] has taken it.
    pub(super) key: Box<[u8]>,
    pub(super) rule: Rule,
    pub(super) numbers: Arc<Numbers>,
    pub(super) spend: Spend,
}

impl<Rule> Question<Rule> {
    /// Cost, and up to how many units are granted. What the programs cannot count is beyond every limit as well.
    fn units(&self) -> [i64; 2] {
        let in_script = |units: u64| units.min(1 << 53) as i64;
        [self.spend.cost().get(), self.spend.most()].map(in_script)
    }
}

/// Asks that are decided together, all or nothing.
pub(super) struct Call<Rule>(pub(super) SmallVec<[Question<Rule>; 1]>);

impl<Rule> AsRef<Self> for Call<Rule> {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<Rule> AsMut<Self> for Call<Rule> {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

/// Returns a rule as the programs run it, for the key of this digest.
pub(super) fn rule_in_script<Rule: Scripted>(rule: &Rule, digest: impl Fn() -> u64) -> Rule {
    let own = rule.for_key(&digest).unwrap_or_else(|| rule.clone());
    own.in_script().unwrap_or(own)
}

/// Checks that calls under a rule can be decided, for any key.
///
/// # Errors
///
/// Fails if the rule does not fit into a script's numbers.
pub(super) fn fits<Rule: Scripted>(rule: &Rule) -> Result<(), Error> {
    rule_in_script(rule, || 0).rule_parts(&mut Vec::new())
}

impl<Rule: Scripted> Call<Rule> {
    /// # Errors
    ///
    /// Fails if a rule does not fit into a script's numbers.
    pub(super) fn of(
        prefix: &str,
        rules: &Rules<Rule>,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Self, Error> {
        let question = |ask: &Ask<'_, Rule>| {
            let rule = rule_in_script(ask.rule(), || ask.key().digest());
            let numbers = rules
                .in_numbers(&rule)
                .map_err(|error| fits(ask.rule()).err().unwrap_or(error))?;
            Ok(Question {
                key: key_name(prefix, ask.policy(), ask.key()),
                rule,
                spend: match numbers.grants {
                    true => ask.spend(),
                    false => Spend::exactly(ask.cost()),
                },
                numbers,
            })
        };
        let questions: Result<_, _> = asks.iter().map(question).collect();
        questions.map(Self)
    }
}

/// A rule as the programs read it.
pub(super) struct Numbers {
    /// A list of its parts, in MessagePack.
    bytes: Vec<u8>,
    /// The beginning of the states of its kind.
    kind: Part,
    /// Gain, price and burst, if it is one token bucket that starts full.
    bucket: Option<[i64; 3]>,
    /// Units can be granted ahead of their use.
    grants: bool,
}

impl Numbers {
    /// Returns `true` if both rules read each other's states.
    pub(super) fn is_of_kind(&self, other: &Self) -> bool {
        ptr::eq(self, other) || self.kind == other.kind
    }
}

/// Converts rules into numbers. The last rule is cached, because most calls come under the rule of the call before.
pub(super) struct Rules<Rule>(Mutex<Option<(Rule, Arc<Numbers>)>>);

impl<Rule> Default for Rules<Rule> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<Rule: Scripted> Rules<Rule> {
    /// # Errors
    ///
    /// Fails if the rule does not fit into a script's numbers.
    pub(super) fn in_numbers(&self, rule: &Rule) -> Result<Arc<Numbers>, Error> {
        let last = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, numbers)) = &*last()
            && known == rule
        {
            return Ok(Arc::clone(numbers));
        }
        let mut parts = Vec::new();
        rule.rule_parts(&mut parts)?;
        let mut bytes = Vec::with_capacity(32);
        put_array(&mut bytes, parts.len());
        parts.iter().for_each(|part| put_part(&mut bytes, part));
        let numbers = Arc::new(Numbers {
            bytes,
            kind: kind_in_script(&parts),
            bucket: lone_bucket(&parts),
            grants: can_grant(&parts),
        });
        *last() = Some((rule.clone(), Arc::clone(&numbers)));
        Ok(numbers)
    }
}

pub(super) fn put_part(bytes: &mut Vec<u8>, part: &Part) {
    put_array(bytes, part.len());
    part.iter().for_each(|number| put_number(bytes, *number));
}

/// Corrections and calls as one request. Its keys stand in the order of their first use, those of the calls first.
pub(super) struct Request {
    pub(super) program: Program,
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) argument: Vec<u8>,
    /// For each ask of each call, or for each delta, the number of its key, beginning with 0.
    pub(super) places: Vec<usize>,
}

/// One ask of a request.
struct Item {
    /// The numbers of its rule and key, beginning with 0.
    rule: usize,
    key: usize,
    cost: i64,
    /// Up to how many units are granted.
    up_to: i64,
}

impl Request {
    /// A request at `now`, or at the server's time. Takes the keys of the calls.
    pub(super) fn of<C, Rule>(
        now: Option<Timestamp>,
        corrections: Vec<Correction>,
        calls: &mut [C],
    ) -> Self
    where
        C: AsRef<Call<Rule>> + AsMut<Call<Rule>>,
    {
        let mut known: HashMap<&[u8], usize, _> =
            HashMap::with_capacity_and_hasher(calls.len(), RandomState::default());
        let mut rules = Vec::<&Numbers>::new();
        let mut items = Vec::with_capacity(calls.len());
        for question in calls.iter().flat_map(|call| &call.as_ref().0) {
            let next = known.len();
            let key = *known.entry(&question.key).or_insert(next);
            let rule = number_of(&mut rules, &question.numbers);
            let [cost, up_to] = question.units();
            items.push(Item {
                rule,
                key,
                cost,
                up_to,
            });
        }
        let corrected: Vec<_> = corrections
            .iter()
            .map(|correction| {
                let next = known.len();
                let key = *known.entry(&correction.key).or_insert(next);
                [number_of(&mut rules, &correction.rule), key]
            })
            .collect();
        let mut keys = Vec::with_capacity(known.len());
        let syncs = corrections.iter().any(Correction::is_delta);
        let places: Vec<_> = match syncs {
            true => corrected.iter().map(|[_, key]| *key).collect(),
            false => items.iter().map(|item| item.key).collect(),
        };
        let now = now.map(|now| now.as_nanos() / 1000);
        let buckets: Option<Vec<_>> = rules.iter().map(|rule| rule.bucket).collect();
        let are_lone = calls.iter().all(|call| call.as_ref().0.len() == 1);
        let are_counted = (1..=MOST_CALLS).contains(&items.len());
        let grants = items.iter().any(|item| item.up_to > item.cost);
        let is_fast = are_lone && are_counted && corrected.is_empty() && !grants;
        let (program, argument) = match buckets.filter(|_| is_fast) {
            Some(buckets) => of_buckets(now, &buckets, items),
            None => {
                let asks = calls.iter().map(|call| call.as_ref().0.len());
                let program = match (grants, corrected.is_empty()) {
                    _ if syncs => Program::SYNC,
                    (true, _) => Program::GRANT,
                    (false, false) => Program::SETTLE,
                    (false, true) => Program::DECIDE,
                };
                let corrected = corrections.iter().zip(&corrected);
                (program, list(program, now, &rules, asks, &items, corrected))
            }
        };
        let questions = calls.iter_mut().flat_map(|call| &mut call.as_mut().0);
        for (question, place) in questions.zip(&places) {
            if *place == keys.len() {
                keys.push(mem::take(&mut question.key));
            }
        }
        for (correction, [_, place]) in corrections.into_iter().zip(corrected) {
            if place == keys.len() {
                keys.push(correction.key);
            }
        }
        Self {
            program,
            keys,
            argument,
            places,
        }
    }

    /// Returns a request that only reads keys.
    pub(super) fn to_see(now: Option<Timestamp>, keys: Vec<Box<[u8]>>) -> Self {
        let nothing = Self::of::<Call<()>, ()>(now, Vec::new(), &mut []);
        Self { keys, ..nothing }
    }
}

/// Returns the index of a rule among those of a request, adding it if it is new.
fn number_of<'a>(rules: &mut Vec<&'a Numbers>, numbers: &'a Numbers) -> usize {
    let is_known = |rule: &&Numbers| ptr::eq(*rule, numbers) || rule.bytes == numbers.bytes;
    rules.iter().position(is_known).unwrap_or_else(|| {
        rules.push(numbers);
        rules.len() - 1
    })
}

/// The argument of a request to settle, grant and decide.
fn list<'c>(
    program: Program,
    now: Option<u64>,
    rules: &[&Numbers],
    asks: impl Iterator<Item = usize>,
    mut items: &[Item],
    corrections: impl ExactSizeIterator<Item = (&'c Correction, &'c [usize; 2])>,
) -> Vec<u8> {
    let mut numbers = Vec::with_capacity(4 * items.len());
    for count in asks {
        let (own, rest) = items.split_at(count);
        items = rest;
        numbers.push(count as i64);
        for item in own {
            numbers.extend([item.rule as i64 + 1, item.key as i64 + 1, item.cost]);
            numbers.extend((program == Program::GRANT).then_some(item.up_to));
        }
    }
    let mut bytes = Vec::with_capacity(64 + 2 * numbers.len());
    let settles = program != Program::DECIDE;
    put_array(&mut bytes, 3 + usize::from(settles));
    put_number(&mut bytes, now.unwrap_or(0) as i64);
    put_array(&mut bytes, rules.len());
    rules
        .iter()
        .for_each(|rule| bytes.extend_from_slice(&rule.bytes));
    put_array(&mut bytes, numbers.len());
    numbers
        .iter()
        .for_each(|number| put_number(&mut bytes, *number));
    if settles {
        put_array(&mut bytes, corrections.len());
    }
    for (correction, places) in corrections {
        correction.put(&mut bytes, *places);
    }
    bytes
}

/// The most calls of a program for buckets, which counts them in a byte.
const MOST_CALLS: usize = u8::MAX as usize;

/// The program for a request about buckets, and its argument: calls on different keys may change places.
fn of_buckets(now: Option<u64>, buckets: &[[i64; 3]], mut items: Vec<Item>) -> (Program, Vec<u8>) {
    // Stable: those on one key stay in their order.
    items.sort_by_key(|item| item.key);
    let mut bytes = Vec::with_capacity(16 + 32 * buckets.len() + 8 * items.len());
    let mut put = |numbers: &[i64]| {
        numbers
            .iter()
            .for_each(|number| put_number(&mut bytes, *number))
    };
    let (second, micros) = now.map_or((-1, 0), |now| {
        ((now / 1_000_000) as i64, (now % 1_000_000) as i64)
    });
    put(&[second]);
    let runs = items
        .chunk_by(|one, next| (one.rule, one.key, one.cost) == (next.rule, next.key, next.cost));
    if let ([bucket], Some(run), None) = (buckets, runs.clone().next(), runs.clone().nth(1)) {
        put(bucket);
        put(&[run[0].cost, run.len() as i64, micros]);
        return (Program::ONE_BUCKET, bytes);
    }
    // From 1 on, as Lua counts; the rules begin at the fourth place.
    let place = |rule: usize| 4 + 3 * rule as i64;
    put(&[micros, place(buckets.len())]);
    put(buckets.as_flattened());
    for run in runs {
        let Item {
            rule, key, cost, ..
        } = run[0];
        put(&[key as i64 + 1, place(rule), cost, run.len() as i64]);
    }
    (Program::BUCKETS, bytes)
}

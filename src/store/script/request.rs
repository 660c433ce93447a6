//! The arguments of a program.

use std::{
    collections::HashMap,
    mem, ptr,
    sync::{Arc, Mutex, PoisonError},
};

use foldhash::fast::RandomState;
use rmp::encode::{ByteBuf, write_array_len, write_sint};
use smallvec::SmallVec;

use super::{Program, settle::Correction};
use crate::{
    algorithm::{
        ScriptTuple, Scripted, can_grant, kind_in_script, logs_in_script, lone_algorithm,
        lone_bucket,
    },
    error::Error,
    store::{
        Ask, Spend,
        ask::{key_name, log_name},
    },
    time::Timestamp,
};

/// An ask that outlives its call.
pub(super) struct ScriptAsk<Rule> {
    /// Empty after a [`Request`] has taken it.
    pub(super) key: Box<[u8]>,
    pub(super) rule: Rule,
    pub(super) encoded: Arc<EncodedRule>,
    pub(super) spend: Spend,
}

impl<Rule> ScriptAsk<Rule> {
    /// Cost, and up to how many units are granted. What the programs cannot count is beyond every limit as well.
    fn units(&self) -> [i64; 2] {
        let in_script = |units: u64| units.min(1 << 53) as i64;
        [self.spend.cost().get(), self.spend.most()].map(in_script)
    }
}

/// Asks that are decided together, all or nothing.
pub(super) struct ScriptCall<Rule>(pub(super) SmallVec<[ScriptAsk<Rule>; 1]>);

impl<Rule> AsRef<Self> for ScriptCall<Rule> {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<Rule> AsMut<Self> for ScriptCall<Rule> {
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

impl<Rule: Scripted> ScriptCall<Rule> {
    /// # Errors
    ///
    /// Fails if a rule does not fit into a script's numbers.
    pub(super) fn of(
        prefix: &str,
        rules: &RuleEncoder<Rule>,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Self, Error> {
        let owned = |ask: &Ask<'_, Rule>| {
            let rule = rule_in_script(ask.rule(), || ask.key().digest());
            let encoded = rules
                .encode(prefix, &rule)
                .map_err(|error| fits(ask.rule()).err().unwrap_or(error))?;
            Ok(ScriptAsk {
                key: key_name(prefix, ask.policy(), ask.key()),
                rule,
                spend: match encoded.grants {
                    true => ask.spend(),
                    false => Spend::exactly(ask.cost()),
                },
                encoded,
            })
        };
        let owned: Result<_, _> = asks.iter().map(owned).collect();
        owned.map(Self)
    }
}

/// A rule as the programs read it.
pub(super) struct EncodedRule {
    /// A list of its parts, in MessagePack.
    bytes: Vec<u8>,
    /// The beginning of the states of its kind.
    kind: ScriptTuple,
    /// The only algorithm, by its place in the list.
    algorithm: Option<usize>,
    /// Gain, price and burst, if it is one token bucket that starts full.
    bucket: Option<[i64; 3]>,
    /// Units can be granted ahead of their use.
    grants: bool,
    /// The logs that lie beside its states.
    logs: Vec<StateLog>,
}

/// A log that lies beside the states of a kind.
pub(super) struct StateLog {
    prefix: String,
    /// The part of the rule, counted from 1.
    part: usize,
    name: String,
}

impl StateLog {
    /// Returns the logs of a kind of states, by the parts of a rule or a state.
    pub(super) fn all(prefix: &str, parts: &[ScriptTuple]) -> Vec<Self> {
        let kind = kind_in_script(parts);
        let log = |part| {
            let kind = kind.iter().map(|kind| format!("{kind}-"));
            Self {
                prefix: prefix.to_owned(),
                part,
                name: format!("log-{}{part}", kind.collect::<String>()),
            }
        };
        logs_in_script(parts).map(log).collect()
    }

    /// Returns the key of the log beside the states under a key.
    pub(super) fn key(&self, states: &[u8]) -> Box<[u8]> {
        log_name(&self.prefix, states, &self.name)
    }
}

impl EncodedRule {
    /// Returns `true` if both rules read each other's states.
    pub(super) fn is_of_kind(&self, other: &Self) -> bool {
        ptr::eq(self, other) || self.kind == other.kind
    }
}

/// Converts rules into numbers. The last rule is cached, because most calls come under the rule of the call before.
pub(super) struct RuleEncoder<Rule>(Mutex<Option<(Rule, Arc<EncodedRule>)>>);

impl<Rule> Default for RuleEncoder<Rule> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<Rule: Scripted> RuleEncoder<Rule> {
    /// # Errors
    ///
    /// Fails if the rule does not fit into a script's numbers.
    pub(super) fn encode(&self, prefix: &str, rule: &Rule) -> Result<Arc<EncodedRule>, Error> {
        let last = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, encoded)) = &*last()
            && known == rule
        {
            return Ok(Arc::clone(encoded));
        }
        let mut parts = Vec::new();
        rule.rule_parts(&mut parts)?;
        let mut bytes = Vec::with_capacity(32);
        put_array(&mut bytes, parts.len());
        parts.iter().for_each(|part| put_part(&mut bytes, part));
        let encoded = Arc::new(EncodedRule {
            bytes,
            kind: kind_in_script(&parts),
            algorithm: lone_algorithm(&parts),
            bucket: lone_bucket(&parts),
            grants: can_grant(&parts),
            logs: StateLog::all(prefix, &parts),
        });
        *last() = Some((rule.clone(), Arc::clone(&encoded)));
        Ok(encoded)
    }
}

pub(super) fn put_part(bytes: &mut Vec<u8>, part: &ScriptTuple) {
    put_array(bytes, part.len());
    part.iter().for_each(|number| put_number(bytes, *number));
}

/// Corrections and calls as one request. Its keys stand in the order of their first use, those of the calls first, and those of logs last.
pub(super) struct Request {
    pub(super) program: Program,
    pub(super) keys: Vec<Box<[u8]>>,
    /// The number of keys that belong to states. An answer is about these.
    pub(super) states: usize,
    pub(super) argument: Vec<u8>,
    /// For each ask of each call, or for each delta, the number of its key, beginning with 0.
    pub(super) key_indices: Vec<usize>,
}

/// One ask of a request.
struct EncodedAsk {
    /// The numbers of its rule and key, beginning with 0.
    rule: usize,
    key: usize,
    cost: i64,
    /// Up to how many units are granted.
    up_to: i64,
}

/// The logs beside the states of a request.
#[derive(Default)]
struct RequestLogs {
    known: HashMap<Box<[u8]>, usize, RandomState>,
    /// The rule, the key of the states and the log of each, and its key among those of logs, all from 0 on; the log by its part from 1 on.
    references: Vec<[usize; 4]>,
    keys: Vec<Box<[u8]>>,
}

impl RequestLogs {
    /// Adds those of a rule, unless they are known.
    fn add(&mut self, rules: &[&EncodedRule], rule: usize, (key, name): (usize, &[u8])) {
        let logs = &rules[rule].logs;
        if logs.is_empty() || self.references.iter().any(|log| log[..2] == [rule, key]) {
            return;
        }
        for log in logs {
            let log_key = log.key(name);
            let next = self.keys.len();
            let known = *self.known.entry(log_key).or_insert_with_key(|log_key| {
                self.keys.push(log_key.clone());
                next
            });
            self.references.push([rule, key, log.part, known]);
        }
    }

    /// Appends how many keys are those of states, and all logs; nothing if there is none.
    fn put(&self, bytes: &mut Vec<u8>, states: usize) {
        if self.references.is_empty() {
            return put_array(bytes, 0);
        }
        put_array(bytes, 1 + 4 * self.references.len());
        put_number(bytes, states as i64);
        for [rule, key, part, log] in &self.references {
            for number in [rule + 1, key + 1, *part, states + log + 1] {
                put_number(bytes, number as i64);
            }
        }
    }
}

impl Request {
    /// A request at `now`, or at the server's time. Takes the keys of the calls.
    pub(super) fn of<C, Rule>(
        now: Option<Timestamp>,
        corrections: Vec<Correction>,
        calls: &mut [C],
    ) -> Self
    where
        C: AsRef<ScriptCall<Rule>> + AsMut<ScriptCall<Rule>>,
    {
        Self::build(now, corrections, calls, false)
    }

    /// A request that decides a call of one ask without charging it. Takes its key.
    pub(super) fn to_look<Rule>(call: &mut ScriptCall<Rule>) -> Self {
        Self::build(None, Vec::new(), &mut [call], true)
    }

    fn build<C, Rule>(
        now: Option<Timestamp>,
        corrections: Vec<Correction>,
        calls: &mut [C],
        is_look: bool,
    ) -> Self
    where
        C: AsRef<ScriptCall<Rule>> + AsMut<ScriptCall<Rule>>,
    {
        let mut known: HashMap<&[u8], usize, _> =
            HashMap::with_capacity_and_hasher(calls.len(), RandomState::default());
        let mut rules = Vec::<&EncodedRule>::new();
        let mut items = Vec::with_capacity(calls.len());
        let mut logs = RequestLogs::default();
        for ask in calls.iter().flat_map(|call| &call.as_ref().0) {
            let next = known.len();
            let key = *known.entry(&ask.key).or_insert(next);
            let rule = rule_index(&mut rules, &ask.encoded);
            logs.add(&rules, rule, (key, &ask.key));
            let [cost, up_to] = ask.units();
            items.push(EncodedAsk {
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
                let rule = rule_index(&mut rules, &correction.encoded);
                logs.add(&rules, rule, (key, &correction.key));
                [rule, key]
            })
            .collect();
        let states = known.len();
        let mut keys = Vec::with_capacity(states + logs.keys.len());
        let syncs = corrections.iter().any(Correction::is_delta);
        let key_indices: Vec<_> = match syncs {
            true => corrected.iter().map(|[_, key]| *key).collect(),
            false => items.iter().map(|item| item.key).collect(),
        };
        let now = now.map(|now| now.as_nanos() / 1000);
        let buckets: Option<Vec<_>> = rules.iter().map(|rule| rule.bucket).collect();
        let are_lone = calls.iter().all(|call| call.as_ref().0.len() == 1);
        let are_counted = (1..=MOST_CALLS).contains(&items.len());
        let grants = items.iter().any(|item| item.up_to > item.cost);
        let is_fast = are_lone && are_counted && corrected.is_empty() && !grants && !is_look;
        let (program, argument) = match buckets.filter(|_| is_fast) {
            Some(buckets) => of_buckets(now, &buckets, items),
            None => {
                let asks = calls.iter().map(|call| call.as_ref().0.len());
                let asks = asks.map(|count| if is_look { -1 } else { count as i64 });
                let program = match (grants, corrected.is_empty()) {
                    _ if syncs => Program::SYNC,
                    (true, _) => Program::GRANT,
                    (false, false) => Program::SETTLE,
                    (false, true) => Program::DECIDE,
                };
                let first = rules.first().and_then(|rule| rule.algorithm);
                let is_alone = rules.iter().all(|rule| rule.algorithm == first);
                let program = first
                    .filter(|_| is_alone)
                    .map_or(program, |one| program.only(one));
                let corrected = corrections.iter().zip(&corrected);
                let mut bytes = list(program, now, &rules, asks, &items);
                logs.put(&mut bytes, states);
                put_corrections(program, &mut bytes, corrected);
                (program, bytes)
            }
        };
        let asks = calls.iter_mut().flat_map(|call| &mut call.as_mut().0);
        for (ask, index) in asks.zip(&key_indices) {
            if *index == keys.len() {
                keys.push(mem::take(&mut ask.key));
            }
        }
        for (correction, [_, index]) in corrections.into_iter().zip(corrected) {
            if index == keys.len() {
                keys.push(correction.key);
            }
        }
        keys.append(&mut logs.keys);
        Self {
            program,
            keys,
            states,
            argument,
            key_indices,
        }
    }
}

/// Returns the index of a rule among those of a request, adding it if it is new.
fn rule_index<'a>(rules: &mut Vec<&'a EncodedRule>, encoded: &'a EncodedRule) -> usize {
    let is_known = |rule: &&EncodedRule| ptr::eq(*rule, encoded) || rule.bytes == encoded.bytes;
    rules.iter().position(is_known).unwrap_or_else(|| {
        rules.push(encoded);
        rules.len() - 1
    })
}

/// The argument of a request to settle, grant and decide, up to its logs. Of each call the number of its asks, or -1 for a look.
fn list(
    program: Program,
    now: Option<u64>,
    rules: &[&EncodedRule],
    asks: impl Iterator<Item = i64>,
    mut items: &[EncodedAsk],
) -> Vec<u8> {
    let mut numbers = Vec::with_capacity(4 * items.len());
    for count in asks {
        let (own, rest) = items.split_at(count.unsigned_abs() as usize);
        items = rest;
        numbers.push(count);
        for item in own {
            numbers.extend([item.rule as i64 + 1, item.key as i64 + 1, item.cost]);
            numbers.extend((program == Program::GRANT).then_some(item.up_to));
        }
    }
    let mut bytes = Vec::with_capacity(64 + 2 * numbers.len());
    put_array(&mut bytes, 4 + usize::from(program.corrects()));
    put_number(&mut bytes, now.unwrap_or(0) as i64);
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

/// Appends corrections, of a program that makes them.
fn put_corrections<'c>(
    program: Program,
    bytes: &mut Vec<u8>,
    corrections: impl ExactSizeIterator<Item = (&'c Correction, &'c [usize; 2])>,
) {
    if !program.corrects() {
        return;
    }
    put_array(bytes, corrections.len());
    for (correction, indices) in corrections {
        correction.put(bytes, *indices);
    }
}

/// The most calls of a program for buckets, which counts them in a byte.
const MOST_CALLS: usize = u8::MAX as usize;

/// The program for a request about buckets, and its argument: calls on different keys may change places.
fn of_buckets(
    now: Option<u64>,
    buckets: &[[i64; 3]],
    mut items: Vec<EncodedAsk>,
) -> (Program, Vec<u8>) {
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
    let offset = |rule: usize| 4 + 3 * rule as i64;
    put(&[micros, offset(buckets.len())]);
    put(buckets.as_flattened());
    for run in runs {
        let EncodedAsk {
            rule, key, cost, ..
        } = run[0];
        put(&[key as i64 + 1, offset(rule), cost, run.len() as i64]);
    }
    (Program::BUCKETS, bytes)
}

/// Writing to memory cannot fail.
macro_rules! put {
    ($bytes:ident, $write:ident, $value:expr) => {{
        let mut buffer = ByteBuf::from_vec(std::mem::take($bytes));
        let Ok(_) = $write(&mut buffer, $value);
        *$bytes = buffer.into_vec();
    }};
}

pub(super) fn put_array(bytes: &mut Vec<u8>, len: usize) {
    put!(bytes, write_array_len, len as u32);
}

pub(super) fn put_number(bytes: &mut Vec<u8>, number: i64) {
    put!(bytes, write_sint, number);
}

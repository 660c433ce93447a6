//! One request: the keys and the argument of a program, and the reply to it.
//!
//! ```text
//! EVALSHA  <SHA-1 of the program>  <number of keys>  KEYS...  ARGV[1]
//!
//! KEYS     states that calls ask about | states that corrections are about | logs beside those states
//!          Each key stands once, in the order of its first use. A reply is about the keys of states.
//!          While a slot of a cluster moves, keys after the first are sent as ARGV[2..].
//!
//! program     ARGV[1], in MessagePack                               reply
//! ----------  ----------------------------------------------------  ----------------------------
//! DECIDE      [ now, [rule..], [call..], [log..] ]                  list
//! SETTLE      [ now, [rule..], [call..], [log..], [correction..] ]  list
//! GRANT       as SETTLE; each ask has `most`                        list; `admitted` has units
//! SYNC        as SETTLE; no calls, each correction is a delta       list
//! BUCKETS     second micros runs bucket.. run..                     bytes
//! ONE_BUCKET  second gain price burst kept cost count micros        bytes
//! RESET       none                                                  "1", or the server's error
//! COUNT_NODE  [ period, milliseconds to keep, seconds a period ]    [ current, previous ]
//!
//! DECIDE and SETTLE also exist with a single algorithm, for requests that need no other one.
//!
//! Argument of a list. The rules and keys of a request are numbered from 1 on.
//!   now         microseconds of Unix time; 0 for the server's clock
//!   rule        [ part.. ]; part = [ kind, setting.. ]
//!   call        count, and for each of so many asks:  rule key cost [most]
//!               A count of -1 is a look: one ask, which is not charged.
//!   log..       nothing, or the number of keys of states, and for each log:
//!               rule key part log-key; log-key is its number among KEYS
//!   correction  [ rule, key, charge.. ]; a charge for each part of the rule
//!   delta       [ rule, key, charge.., node, number ]; number 0 only reads the state
//!
//! Argument of buckets: bare numbers without a list around them.
//!   second      seconds of Unix time, with micros beyond them; -1 for the server's clock
//!   runs        position of the first run among all these numbers, from 1 on
//!   bucket      gain price burst kept
//!   run         key position-of-bucket cost count; `count` equal calls about one key
//!
//! Reply as a list
//!   [ now, [admitted..], healed, unsettled, error, state.. ]
//!   admitted    for each key: admitted calls whose first ask is about it, and with GRANT their units
//!   error       text of the server for a write that it rejected, or false
//!   state       for each key: the value that was found, after corrections and with what was
//!               read of its logs, or false
//!
//! Reply as bytes
//!   healed      1 byte
//!   admitted    1 byte for each key
//!   state       32 bytes for each key, zeros if there is none
//!   text        "second micros", then for each key with refunded units " key micros until",
//!               then, if a write was rejected, a line feed and the text of the server
//!
//! Value of a key of states
//!   [ 1, part.. ]                 one state: a part for each part of its rule, or false
//!                                 A token bucket has numbers of fixed width, and behind them the
//!                                 second at which it expires: 32 bytes.
//!   [ 2, [ until, part.. ].. ]    states of several kinds; until = microsecond at which one expires
//! ```

use std::{
    collections::HashMap,
    mem, ptr,
    sync::{Arc, Mutex},
};

use foldhash::fast::RandomState;
use rmp::encode::{ByteBuf, write_array_len, write_sint};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{Program, settle::Correction};
use crate::{
    algorithm::{
        ScriptTuple, Scripted, can_grant, kind_in_script, logs_in_script, lone_algorithm,
        lone_bucket,
    },
    error::Error,
    locks::lock,
    store::{
        Ask, Decisions, Spend, StoreError,
        ask::ResolvedAsk,
        names::{key_name, log_name},
    },
    time::Timestamp,
};

/// The key of a state, with its rule in the form that programs read.
pub(super) struct ScriptKey {
    /// Empty after a [`ScriptRequest`] has taken it.
    pub(super) name: Box<[u8]>,
    /// Its index in that request.
    pub(super) index: usize,
    pub(super) encoded: Arc<EncodedRule>,
}

pub(super) type ScriptAsk<Rule> = ResolvedAsk<Rule, ScriptKey>;

/// Returns the cost, and the most units that may be granted. A number that programs cannot count
/// exceeds every limit as well.
fn in_script(spend: Spend) -> [i64; 2] {
    let in_script = |units: u64| units.min(1 << 53) as i64;
    [spend.cost().get(), spend.most()].map(in_script)
}

/// Asks that are decided together, all or nothing.
pub(super) struct ScriptCall<Rule> {
    pub(super) asks: SmallVec<[ScriptAsk<Rule>; 1]>,
    /// The sender of the result, if the call waits in the queue.
    pub(super) reply: Option<oneshot::Sender<Result<Decisions, StoreError>>>,
}

/// Returns a rule in the form that the programs run, for the key with this digest.
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
    /// Copies the asks of a call.
    ///
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
                rule,
                spend: match encoded.grants {
                    true => ask.spend(),
                    false => Spend::exactly(ask.cost()),
                },
                at: ScriptKey {
                    name: key_name(prefix, ask.policy(), ask.key()),
                    index: 0,
                    encoded,
                },
            })
        };
        let asks = asks.iter().map(owned).collect::<Result<_, Error>>()?;
        Ok(Self { asks, reply: None })
    }

    /// Returns `true` if the caller no longer waits, so that it must not be charged.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Sends the result to the caller, if it still waits.
    pub(super) fn answer(self, decisions: Result<Decisions, StoreError>) {
        if let Some(reply) = self.reply {
            let _ = reply.send(decisions);
        }
    }
}

/// A rule in the form that the programs read.
pub(super) struct EncodedRule {
    /// The list of its parts, in MessagePack.
    bytes: Vec<u8>,
    /// The numbers that all states of its kind begin with.
    kind: ScriptTuple,
    /// Index in the list of algorithms, if the rule is one algorithm alone.
    algorithm: Option<usize>,
    /// Gain, price and burst, if the rule is one token bucket that starts full.
    bucket: Option<[i64; 4]>,
    /// `true` if units can be granted ahead of their use.
    grants: bool,
    /// The logs beside its states.
    logs: Vec<StateLog>,
}

/// A log beside the states of a kind.
pub(super) struct StateLog {
    prefix: String,
    /// Number of the part of the rule that keeps the log, from 1 on.
    part: usize,
    name: String,
}

impl StateLog {
    /// Returns the logs of a rule or a state with these parts.
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

    /// Returns the key of the log, from the key of the states.
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

/// Encodes rules. Caches the last one, because most calls have the rule of the call before.
pub(super) struct RuleEncoder<Rule>(Mutex<Option<(Rule, Arc<EncodedRule>)>>);

impl<Rule> Default for RuleEncoder<Rule> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<Rule: Scripted> RuleEncoder<Rule> {
    /// Returns the encoded rule, from the cache if it is the last one.
    ///
    /// # Errors
    ///
    /// Fails if the rule does not fit into a script's numbers.
    pub(super) fn encode(&self, prefix: &str, rule: &Rule) -> Result<Arc<EncodedRule>, Error> {
        let last = || lock(&self.0);
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

/// A request with corrections and calls. Its keys stand in the order of their first use: calls
/// first, then corrections, then logs.
pub(super) struct ScriptRequest {
    pub(super) program: Program,
    pub(super) keys: Vec<Box<[u8]>>,
    /// Number of keys of states. The answer is about these.
    pub(super) states: usize,
    pub(super) argument: Vec<u8>,
    /// The index of the key of each correction.
    pub(super) corrected: Vec<usize>,
    /// Those of them whose correction may take units.
    pub(super) taken_from: Vec<usize>,
}

/// An ask of a request, with its rule and key by their indices.
struct EncodedAsk {
    rule: usize,
    key: usize,
    cost: i64,
    /// The most units that may be granted.
    up_to: i64,
}

/// The logs beside the states of a request.
#[derive(Default)]
struct RequestLogs {
    known: HashMap<Box<[u8]>, usize, RandomState>,
    /// For each log: index of its rule, index of the key of the states, number of its part (from 1
    /// on), and index of its key in `keys`.
    references: Vec<[usize; 4]>,
    keys: Vec<Box<[u8]>>,
}

impl RequestLogs {
    /// Adds the logs of a rule beside the states under a key, unless they are known.
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

    /// Appends the number of keys of states, and the logs; an empty list if there are no logs.
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

impl ScriptRequest {
    /// Creates a request at `now`, or at the server's time. Takes the keys out of the calls. A look
    /// decides a call of one ask without charging it.
    pub(super) fn of<Rule>(
        now: Option<Timestamp>,
        corrections: Vec<Correction>,
        calls: &mut [ScriptCall<Rule>],
        is_look: bool,
    ) -> Self {
        let mut known: HashMap<&[u8], usize, _> =
            HashMap::with_capacity_and_hasher(calls.len(), RandomState::default());
        let mut rules = Vec::<&EncodedRule>::new();
        let mut items = Vec::with_capacity(calls.len());
        let mut logs = RequestLogs::default();
        for ask in calls.iter().flat_map(|call| &call.asks) {
            let next = known.len();
            let key = *known.entry(&ask.at.name).or_insert(next);
            let rule = rule_index(&mut rules, &ask.at.encoded);
            logs.add(&rules, rule, (key, &ask.at.name));
            let [cost, up_to] = in_script(ask.spend);
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
        let indices: Vec<_> = items.iter().map(|item| item.key).collect();
        let now = now.map(|now| now.as_nanos() / 1000);
        let buckets: Option<Vec<_>> = rules.iter().map(|rule| rule.bucket).collect();
        let are_lone = calls.iter().all(|call| call.asks.len() == 1);
        let are_counted = (1..=MOST_CALLS).contains(&items.len());
        let grants = items.iter().any(|item| item.up_to > item.cost);
        let is_fast = are_lone && are_counted && corrected.is_empty() && !grants && !is_look;
        let (program, argument) = match buckets.filter(|_| is_fast) {
            Some(buckets) => of_buckets(now, &buckets, items),
            None => {
                let asks = calls.iter().map(|call| call.asks.len());
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
                let mut bytes = list(program, now, &rules, asks, &items);
                logs.put(&mut bytes, states);
                if program.corrects() {
                    put_array(&mut bytes, corrections.len());
                    for (correction, indices) in corrections.iter().zip(&corrected) {
                        correction.put(&mut bytes, *indices);
                    }
                }
                (program, bytes)
            }
        };
        let asks = calls.iter_mut().flat_map(|call| &mut call.asks);
        for (ask, index) in asks.zip(indices) {
            ask.at.index = index;
            if index == keys.len() {
                keys.push(mem::take(&mut ask.at.name));
            }
        }
        let mut taken_from = Vec::new();
        for (correction, [_, index]) in corrections.into_iter().zip(&corrected) {
            if correction.may_take {
                taken_from.push(*index);
            }
            if *index == keys.len() {
                keys.push(correction.key);
            }
        }
        keys.append(&mut logs.keys);
        Self {
            program,
            keys,
            states,
            argument,
            corrected: corrected.into_iter().map(|[_, key]| key).collect(),
            taken_from,
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

/// Encodes the argument of a program with a list, up to its logs. `asks` has the number of asks of
/// each call, or -1 for a look.
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

/// The most calls of a request about buckets: its reply counts them in a byte.
const MOST_CALLS: usize = u8::MAX as usize;

/// Returns the program for a request about buckets, and its argument. Calls about different keys
/// may change their order.
fn of_buckets(
    now: Option<u64>,
    buckets: &[[i64; 4]],
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
    // From 1 on, as Lua counts; the first bucket begins at the fourth number.
    let offset = |rule: usize| 4 + 4 * rule as i64;
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

/// Appends a value in MessagePack. Writing to memory cannot fail.
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

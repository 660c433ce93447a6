//! The answer of a program, and the decisions that this side repeats on the states that the program
//! found.
//!
//! `request` shows the form of an answer.

use std::{borrow::Cow, sync::Arc};

use rmp::decode::{read_array_len, read_bin_len, read_f32, read_f64, read_int, read_str_len};
use smallvec::SmallVec;

use super::{
    Program,
    request::{EncodedRule, ScriptAsk, ScriptCall, ScriptKey, put_array, put_number},
};
use crate::{
    algorithm::{Algorithm, ScriptTuple, Scripted},
    decision::Decision,
    store::{
        Decisions, StoreError,
        engine::{CopiedStates, Entry, States},
    },
    time::Timestamp,
};

/// The form of a value of one state.
const VERSION: u8 = 1;
/// The form of a value of several states, of different kinds.
const SEVERAL: u8 = 2;

/// The states under the keys of a request.
pub(super) struct ScriptAnswer<'a> {
    pub(super) now: Timestamp,
    /// Number of admitted calls for each key. A call counts for the key of its first ask.
    admitted: Vec<u64>,
    /// `true` if `admitted` also counts the units of those calls, because the program grants units.
    counts_units: bool,
    /// Number of values that could not be read and count as none.
    pub(super) healed: u64,
    /// Number of corrections that [gave nothing back](crate::algorithm::Algorithm::forgets).
    pub(super) unsettled: u64,
    /// Text of the server for a write that it rejected. Then no call was charged.
    pub(super) unwritten: Option<Cow<'a, str>>,
    pub(super) states: Vec<Option<Cow<'a, [u8]>>>,
}

/// Length of a state that the programs for buckets write, in bytes.
const BUCKET: usize = 32;

impl<'a> ScriptAnswer<'a> {
    /// Reads the answer to a request about `keys` keys of states.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are no answer of this program about this number of keys.
    pub(super) fn read(program: Program, bytes: &'a [u8], keys: usize) -> Result<Self, StoreError> {
        let answer = match program {
            Program::BUCKETS | Program::ONE_BUCKET => Self::of_buckets(bytes, keys),
            _ => Self::of_list(bytes, keys).map(|answer| Self {
                counts_units: program == Program::GRANT,
                ..answer
            }),
        };
        answer.ok_or_else(|| {
            StoreError::other("the program's answer cannot be read: expected what this version of the program writes; \
                 give other versions another prefix")
        })
    }

    fn of_list(mut bytes: &'a [u8], keys: usize) -> Option<Self> {
        let bytes = &mut bytes;
        if take_array(bytes)? != keys + 5 {
            return None;
        }
        let now = in_nanos(u64::try_from(take_number(bytes)?).ok()?)?;
        if take_array(bytes)? != keys {
            return None;
        }
        let admitted = (0..keys).map(|_| u64::try_from(take_number(bytes)?).ok());
        Some(Self {
            now,
            admitted: admitted.collect::<Option<_>>()?,
            counts_units: false,
            healed: u64::try_from(take_number(bytes)?).ok()?,
            unsettled: u64::try_from(take_number(bytes)?).ok()?,
            unwritten: take_bytes_or_false(bytes)?.map(String::from_utf8_lossy),
            states: (0..keys)
                .map(|_| Some(take_bytes_or_false(bytes)?.map(Cow::Borrowed)))
                .collect::<Option<_>>()?,
        })
    }

    fn of_buckets(bytes: &'a [u8], keys: usize) -> Option<Self> {
        let (healed, bytes) = bytes.split_first()?;
        let (admitted, bytes) = bytes.split_at_checked(keys)?;
        let (states, text) = bytes.split_at_checked(BUCKET * keys)?;
        let text = std::str::from_utf8(text).ok()?;
        let (numbers, unwritten) = match text.split_once('\n') {
            Some((numbers, why)) => (numbers, Some(Cow::Borrowed(why))),
            None => (text, None),
        };
        let numbers: Vec<u64> = numbers
            .split(' ')
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        let (&[second, micros], refunded) = numbers.split_first_chunk()?;
        let micros = second.checked_mul(1_000_000)?.checked_add(micros)?;
        let refunded = refunded.chunks(3);
        let mut states: Vec<_> = states
            .chunks_exact(BUCKET)
            .map(|state| (state[0] != 0).then_some(Cow::Borrowed(state)))
            .collect();
        for numbers in refunded {
            let &[index, micros, until] = numbers else {
                return None;
            };
            let state = states.get_mut(usize::try_from(index).ok()?.checked_sub(1)?)?;
            *state = Some(Cow::Owned(with_refund(state.as_deref()?, [micros, until])?));
        }
        Some(Self {
            now: in_nanos(micros)?,
            admitted: admitted.iter().map(|count| (*count).into()).collect(),
            counts_units: false,
            healed: (*healed).into(),
            unsettled: 0,
            unwritten,
            states,
        })
    }
}

/// Returns the state of a bucket with refunded units, in the bytes that the driver writes.
fn with_refund(mut state: &[u8], refunded: [u64; 2]) -> Option<Vec<u8>> {
    let state = &mut state;
    let (_, _, numbers) = (take_array(state)?, take_number(state)?, take_array(state)?);
    let mut bytes = Vec::with_capacity(2 * BUCKET);
    put_array(&mut bytes, 2);
    put_number(&mut bytes, VERSION.into());
    put_array(&mut bytes, numbers + refunded.len());
    for _ in 0..numbers {
        put_number(&mut bytes, take_number(state)?);
    }
    for number in refunded {
        put_number(&mut bytes, i64::try_from(number).ok()?);
    }
    Some(bytes)
}

fn in_nanos(micros: u64) -> Option<Timestamp> {
    micros.checked_mul(1000).map(Timestamp::from_nanos)
}

/// Returns the state of the rule's kind in a value, if there is one.
pub(super) fn state_of<Rule: Scripted>(rule: &Rule, bytes: &[u8]) -> Option<Rule::State> {
    let states = states(bytes)?;
    states.iter().find_map(|parts| rule.state_of_parts(parts))
}

/// States of a value, each a list of its parts.
type ValueStates = Vec<Vec<Option<ScriptTuple>>>;

/// Returns the states in a value; `None` if it cannot be read.
pub(super) fn states(mut bytes: &[u8]) -> Option<ValueStates> {
    let bytes = &mut bytes;
    let count = take_array(bytes)?.checked_sub(1)?;
    match u8::try_from(take_number(bytes)?).ok()? {
        VERSION => Some(vec![take_parts(bytes, count)?]),
        SEVERAL => (0..count)
            .map(|_| {
                let count = take_array(bytes)?.checked_sub(1)?;
                let _stop = take_number(bytes)?;
                take_parts(bytes, count)
            })
            .collect(),
        _ => None,
    }
}

fn take_parts(bytes: &mut &[u8], count: usize) -> Option<Vec<Option<ScriptTuple>>> {
    let part = |bytes: &mut &[u8]| -> Option<Option<ScriptTuple>> {
        if take_false(bytes) {
            return Some(None);
        }
        let numbers = take_array(bytes)?;
        let numbers: Option<ScriptTuple> = (0..numbers).map(|_| take_number(bytes)).collect();
        numbers.map(Some)
    };
    (0..count).map(|_| part(bytes)).collect()
}

/// Returns the result of each call of a request, in their order. `taken_from` are the indices of
/// the keys from which corrections may take units; `unwritten` returns the error for a write that
/// the server rejected.
pub(super) fn decided<'c, Rule: Scripted + 'c>(
    answer: &ScriptAnswer<'_>,
    calls: impl Iterator<Item = &'c ScriptCall<Rule>>,
    taken_from: &[usize],
    unwritten: impl FnOnce(&str) -> StoreError,
) -> Vec<Result<Decisions, StoreError>> {
    match &answer.unwritten {
        None => decisions(answer, calls),
        Some(why) => refusals(answer, calls, taken_from, &unwritten(why)),
    }
}

/// Returns the decisions of calls, repeated on the states of the answer.
///
/// A call fails if the program decided otherwise about one of its keys: no caller may get a wrong
/// decision.
fn decisions<'c, Rule: Scripted + 'c>(
    answer: &ScriptAnswer<'_>,
    calls: impl Iterator<Item = &'c ScriptCall<Rule>>,
) -> Vec<Result<Decisions, StoreError>> {
    let mut replay = Replay::new(answer);
    let decided: Vec<_> = calls.map(|call| (call, replay.decide(call))).collect();
    let differs = |(replayed, reported)| replayed != reported;
    let mut differs: Vec<bool> = replay
        .admitted
        .iter()
        .zip(&answer.admitted)
        .map(differs)
        .collect();
    if !differs.contains(&true) {
        return decided
            .into_iter()
            .map(|(_, decisions)| Ok(decisions))
            .collect();
    }
    // The effect of such a call on its other keys is not known either.
    while let Some((call, _)) = decided.iter().find(|(call, _)| {
        let mut own = call.asks.iter().map(|ask| differs[ask.at.index]);
        own.clone().any(|differs| differs) && !own.all(|differs| differs)
    }) {
        call.asks
            .iter()
            .for_each(|ask| differs[ask.at.index] = true);
    }
    let result = |(call, decisions): (&ScriptCall<Rule>, _)| match call
        .asks
        .iter()
        .any(|ask| differs[ask.at.index])
    {
        true => Err(disagreement()),
        false => Ok(decisions),
    };
    decided.into_iter().map(result).collect()
}

/// Returns the result of each call if the server rejected the write. Refusals hold, because they
/// write nothing; calls that would be admitted fail. So do calls about a key from which a
/// correction took units, because it was not written. After a refund that was not written a call
/// is refused all the more, and its wait is the shortest that it can be.
fn refusals<'c, Rule: Scripted + 'c>(
    answer: &ScriptAnswer<'_>,
    calls: impl Iterator<Item = &'c ScriptCall<Rule>>,
    taken_from: &[usize],
    error: &StoreError,
) -> Vec<Result<Decisions, StoreError>> {
    let result = |call: &ScriptCall<Rule>| {
        // Each by itself: no call before it was charged.
        let decisions = Replay::new(answer).decide(call);
        let mut indices = call.asks.iter().map(|ask| ask.at.index);
        if decisions.is_admitted() || indices.any(|index| taken_from.contains(&index)) {
            Err(error.duplicate())
        } else {
            Ok(decisions)
        }
    };
    calls.map(result).collect()
}

#[cold]
fn disagreement() -> StoreError {
    StoreError::other(
        "the program beside the data decided otherwise than this process: expected the same version of both; \
         give other versions another prefix",
    )
}

/// The state of one kind under a key.
struct ByKind<Rule: Algorithm> {
    /// The rule that decoded the state.
    encoded: Arc<EncodedRule>,
    entry: Entry<Rule::State>,
}

/// Repeats the decisions of a program on the states that it found.
struct Replay<'a, Rule: Scripted> {
    answer: &'a ScriptAnswer<'a>,
    /// States of each key, one for each kind of rule that was asked for.
    states: Vec<SmallVec<[ByKind<Rule>; 1]>>,
    /// Number of admitted calls for each key, in the form of [`ScriptAnswer::admitted`].
    admitted: Vec<u64>,
}

/// Bits of the units of an ask that an [answer](ScriptAnswer::counts_units) counts.
const MASK: u64 = (1 << 32) - 1;

impl<Rule: Scripted> CopiedStates<Rule, ScriptKey> for Replay<'_, Rule> {
    fn now(&self) -> Timestamp {
        self.answer.now
    }

    /// Returns the state that an ask is about.
    ///
    /// Until a call has written the state, each rule decodes the answer anew, because a rule may
    /// leave a part of a state out.
    fn entry(&mut self, ask: &ScriptAsk<Rule>) -> &mut Entry<Rule::State> {
        let ScriptKey { index, encoded, .. } = &ask.at;
        let states = &mut self.states[*index];
        let read = || {
            let bytes = self.answer.states[*index].as_deref();
            let state = bytes.and_then(|bytes| state_of(&ask.rule, bytes));
            ByKind {
                encoded: Arc::clone(encoded),
                entry: Entry::new(state, Timestamp::default()),
            }
        };
        let known = states
            .iter()
            .position(|known| known.encoded.is_of_kind(encoded));
        let known = known.unwrap_or_else(|| {
            states.push(read());
            states.len() - 1
        });
        let known = &mut states[known];
        if !known.entry.is_written && !Arc::ptr_eq(&known.encoded, encoded) {
            *known = read();
        }
        &mut known.entry
    }
}

impl<'a, Rule: Scripted> Replay<'a, Rule> {
    fn new(answer: &'a ScriptAnswer<'a>) -> Self {
        let keys = answer.states.len();
        Self {
            answer,
            states: (0..keys).map(|_| SmallVec::new()).collect(),
            admitted: vec![0; keys],
        }
    }

    /// Returns the decisions of a call.
    ///
    /// The server's clock shows microseconds, and so do the waits.
    fn decide(&mut self, call: &ScriptCall<Rule>) -> Decisions {
        let exact = self.spend(&call.asks).decisions;
        if let Some(first) = call.asks.first().filter(|_| exact.is_admitted()) {
            let units =
                |decision: &Decision| decision.charge().map_or(0, |charge| charge.cost & MASK);
            let units: u64 = match self.answer.counts_units {
                true => exact.as_slice().iter().map(units).sum(),
                false => 0,
            };
            self.admitted[first.at.index] += 1 + units;
        }
        exact
            .as_slice()
            .iter()
            .map(|decision| decision.in_micros())
            .collect()
    }
}

pub(super) fn take_array(bytes: &mut &[u8]) -> Option<usize> {
    let len = read_array_len(bytes).ok()? as usize;
    // Each element takes a byte or more.
    (len <= bytes.len()).then_some(len)
}

/// Takes a whole number. As in Lua, it may be encoded as a floating-point number.
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<i64> {
    let before = *bytes;
    if let Ok(number) = read_int(bytes) {
        return Some(number);
    }
    *bytes = before;
    let fraction = read_f64(bytes).or_else(|_| {
        *bytes = before;
        read_f32(bytes).map(f64::from)
    });
    let fraction = fraction.ok()?;
    // The cast truncates a number that is no integer or out of range, which then differs.
    let number = fraction as i64;
    (number as f64 == fraction).then_some(number)
}

/// Takes a string of bytes, or `false`, which stands for none.
fn take_bytes_or_false<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    if take_false(bytes) {
        return Some(None);
    }
    let before = *bytes;
    let len = read_str_len(bytes).or_else(|_| {
        *bytes = before;
        read_bin_len(bytes)
    });
    let (value, rest) = bytes.split_at_checked(len.ok()? as usize)?;
    *bytes = rest;
    Some(Some(value))
}

/// Takes `false`, if it comes next.
fn take_false(bytes: &mut &[u8]) -> bool {
    const FALSE: u8 = 0xc2;
    match bytes.split_first() {
        Some((&FALSE, rest)) => {
            *bytes = rest;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Cost, Policy, TokenBucket,
        store::{Ask, script::request::RuleEncoder},
    };

    fn calls(clients: &[&[&str]]) -> Vec<ScriptCall<TokenBucket>> {
        let (rules, policy, rule) = (
            RuleEncoder::default(),
            Policy::new("api"),
            TokenBucket::per_hour(5),
        );
        let call = |clients: &&[&str]| {
            let ask = |client: &&str| Ask::new(&policy, &rule, (*client).into(), Cost::ONE);
            let asks: Vec<_> = clients.iter().map(ask).collect();
            ScriptCall::of("test", &rules, &asks).expect("a rule that fits")
        };
        clients.iter().map(call).collect()
    }

    fn answer(admitted: &[u64]) -> ScriptAnswer<'static> {
        ScriptAnswer {
            now: Timestamp::from_nanos(1_000_000_000),
            admitted: admitted.to_vec(),
            counts_units: false,
            healed: 0,
            unsettled: 0,
            unwritten: None,
            states: vec![None; admitted.len()],
        }
    }

    #[test]
    fn a_key_that_was_granted_other_units_fails() {
        let (rules, policy, rule) = (
            RuleEncoder::default(),
            Policy::new("api"),
            TokenBucket::per_hour(100),
        );
        let ask = Ask::new(&policy, &rule, "a".into(), Cost::ONE).up_to(30);
        let call = ScriptCall::of("test", &rules, &[ask]).expect("a rule that fits");
        // A quarter of what remains.
        for (units, agrees) in [(25, true), (24, false), (30, false)] {
            let answer = ScriptAnswer {
                counts_units: true,
                ..answer(&[1 + units])
            };
            let decided = decisions(&answer, [&call].into_iter());
            assert_eq!(decided[0].is_ok(), agrees, "{units}");
        }
    }

    #[test]
    fn a_key_that_was_decided_otherwise_fails_alone() {
        // The keys of clients a to e, asked in this order.
        let mut calls = calls(&[&["a"], &["b"], &["c", "d"], &["a"], &["d"], &["e"]]);
        let asks = calls.iter_mut().flat_map(|call| &mut call.asks);
        for (ask, index) in asks.zip([0, 1, 2, 3, 0, 3, 4]) {
            ask.at.index = index;
        }
        let fates = |admitted: &[u64]| -> Vec<bool> {
            let decided = decisions(&answer(admitted), calls.iter());
            decided.iter().map(Result::is_ok).collect()
        };
        assert_eq!(fates(&[2, 1, 1, 1, 1]), [true; 6]);
        assert_eq!(
            fates(&[2, 0, 1, 1, 1]),
            [true, false, true, true, true, true]
        );
        assert_eq!(
            fates(&[1, 1, 1, 1, 1]),
            [false, true, true, false, true, true]
        );
        // Who asked about two keys has charged both or none.
        assert_eq!(
            fates(&[2, 1, 1, 0, 1]),
            [true, true, false, true, false, true]
        );
        assert_eq!(
            fates(&[2, 1, 0, 1, 1]),
            [true, true, false, true, false, true]
        );
    }
}

//! What the program answers, and the decisions that follow from it.

use std::borrow::Cow;

use super::{
    Program,
    pack::{put_array, put_number, take_array, take_bytes_or_false, take_false, take_number},
    request::{Call, VERSION},
};
use crate::{
    algorithm::{Part, Scripted, Step},
    clock::Timestamp,
    decision::Decision,
    store::{Decisions, Error},
};

/// What was found under the keys of a request.
pub(super) struct Answer<'a> {
    pub(super) now: Timestamp,
    /// Calls that the program admitted.
    pub(super) admitted: u64,
    /// States that could not be read, and are none.
    pub(super) healed: u64,
    pub(super) states: Vec<Option<Cow<'a, [u8]>>>,
}

/// As long are the states that the programs for buckets write.
const BUCKET: usize = 32;

impl<'a> Answer<'a> {
    /// # Errors
    ///
    /// When the bytes are no answer of this program about so many keys.
    pub(super) fn read(program: Program, bytes: &'a [u8], keys: usize) -> Result<Self, Error> {
        let answer = match program {
            Program::BUCKETS | Program::ONE_BUCKET => Self::of_buckets(bytes, keys),
            _ => Self::of_list(bytes, keys),
        };
        answer.ok_or_else(|| {
            Error::other("the program's answer cannot be read: expected what this version of the program writes; \
                 give other versions another prefix")
        })
    }

    fn of_list(mut bytes: &'a [u8], keys: usize) -> Option<Self> {
        let bytes = &mut bytes;
        if take_array(bytes)? != keys + 3 {
            return None;
        }
        Some(Self {
            now: in_nanos(u64::try_from(take_number(bytes)?).ok()?)?,
            admitted: u64::try_from(take_number(bytes)?).ok()?,
            healed: u64::try_from(take_number(bytes)?).ok()?,
            states: (0..keys)
                .map(|_| Some(take_bytes_or_false(bytes)?.map(Cow::Borrowed)))
                .collect::<Option<_>>()?,
        })
    }

    fn of_buckets(bytes: &'a [u8], keys: usize) -> Option<Self> {
        let ([admitted, healed], bytes) = bytes.split_first_chunk()?;
        let (states, time) = bytes.split_at_checked(BUCKET * keys)?;
        let numbers = std::str::from_utf8(time).ok()?.split(' ');
        let numbers: Vec<u64> = numbers
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        let (&[second, micros], given_back) = numbers.split_first_chunk()?;
        let micros = second.checked_mul(1_000_000)?.checked_add(micros)?;
        let given_back = given_back.chunks(3);
        let mut states: Vec<_> = states
            .chunks_exact(BUCKET)
            .map(|state| (state[0] != 0).then_some(Cow::Borrowed(state)))
            .collect();
        for numbers in given_back {
            let &[place, micros, until] = numbers else {
                return None;
            };
            let state = states.get_mut(usize::try_from(place).ok()?.checked_sub(1)?)?;
            *state = Some(Cow::Owned(with_given_back(
                state.as_deref()?,
                [micros, until],
            )?));
        }
        Some(Self {
            now: in_nanos(micros)?,
            admitted: (*admitted).into(),
            healed: (*healed).into(),
            states,
        })
    }
}

/// The state of a bucket to which something was given back, as it lies in the store.
fn with_given_back(mut state: &[u8], given_back: [u64; 2]) -> Option<Vec<u8>> {
    let state = &mut state;
    let (_, _, numbers) = (take_array(state)?, take_number(state)?, take_array(state)?);
    let mut bytes = Vec::with_capacity(2 * BUCKET);
    put_array(&mut bytes, 2);
    put_number(&mut bytes, VERSION.into());
    put_array(&mut bytes, numbers + given_back.len());
    for _ in 0..numbers {
        put_number(&mut bytes, take_number(state)?);
    }
    for number in given_back {
        put_number(&mut bytes, i64::try_from(number).ok()?);
    }
    Some(bytes)
}

fn in_nanos(micros: u64) -> Option<Timestamp> {
    micros.checked_mul(1000).map(Timestamp::from_nanos)
}

/// The state that the bytes under a key are; `None` where they say nothing to the rule.
pub(super) fn state_of<Rule: Scripted>(rule: &Rule, mut bytes: &[u8]) -> Option<Rule::State> {
    let bytes = &mut bytes;
    let parts = take_array(bytes)?.checked_sub(1)?;
    if take_number(bytes)? != i64::from(VERSION) {
        return None;
    }
    let part = |bytes: &mut &[u8]| -> Option<Option<Part>> {
        if take_false(bytes) {
            return Some(None);
        }
        let numbers = take_array(bytes)?;
        let numbers: Option<Part> = (0..numbers).map(|_| take_number(bytes)).collect();
        numbers.map(Some)
    };
    let parts: Option<Vec<_>> = (0..parts).map(|_| part(bytes)).collect();
    rule.state_of_parts(&parts?)
}

/// The decisions of a request's calls, in their order; `places` are those of its asks.
///
/// # Errors
///
/// When the program admitted others: should that ever be, nobody is told what may not be so.
pub(super) fn decisions<'c, Rule: Scripted + 'c>(
    answer: &Answer<'_>,
    calls: impl Iterator<Item = &'c Call<Rule>>,
    mut places: &[usize],
) -> Result<Vec<Decisions>, Error> {
    let mut replay = Replay::new(answer);
    let decided = calls
        .map(|call| {
            let (own, rest) = places.split_at(call.0.len());
            places = rest;
            replay.decide(call, own)
        })
        .collect();
    if replay.admitted == answer.admitted {
        Ok(decided)
    } else {
        Err(disagreement())
    }
}

#[cold]
fn disagreement() -> Error {
    Error::other(
        "the program beside the data decided otherwise than this process: expected the same version of both; \
         give other versions another prefix",
    )
}

/// Makes the decisions of calls anew, as the program made them.
struct Replay<'a, Rule: Scripted> {
    now: Timestamp,
    found: &'a [Option<Cow<'a, [u8]>>],
    /// What a key's state has become; the inner `None` is no state.
    states: Vec<Option<Option<Rule::State>>>,
    admitted: u64,
}

impl<'a, Rule: Scripted> Replay<'a, Rule> {
    fn new(answer: &'a Answer<'a>) -> Self {
        Self {
            now: answer.now,
            states: answer.states.iter().map(|_| None).collect(),
            found: &answer.states,
            admitted: 0,
        }
    }

    fn state(&mut self, place: usize, rule: &Rule) -> &mut Option<Rule::State> {
        let found = self.found[place].as_deref();
        self.states[place].get_or_insert_with(|| state_of(rule, found?))
    }

    /// The decisions of a call whose asks are about the keys of these places.
    ///
    /// The server's clock tells microseconds, and so do the waits.
    fn decide(&mut self, call: &Call<Rule>, places: &[usize]) -> Decisions {
        let exact = self.decide_exactly(call, places);
        exact
            .as_slice()
            .iter()
            .map(|decision| decision.in_micros())
            .collect()
    }

    fn decide_exactly(&mut self, Call(questions): &Call<Rule>, places: &[usize]) -> Decisions {
        let now = self.now;
        if let ([question], [place]) = (&questions[..], places) {
            let state = self.state(*place, &question.rule);
            let decision = question.rule.step(state, now, question.cost).decision();
            self.admitted += u64::from(decision.is_admitted());
            return decision.into();
        }
        let asks = || questions.iter().zip(places);
        let looks: Vec<Decision> = asks()
            .map(|(question, place)| {
                let state = self.state(*place, &question.rule).clone();
                question.rule.look(state.as_ref(), now)
            })
            .collect();
        // Of these keys alone: a request may be about many more.
        let before: Vec<_> = places
            .iter()
            .map(|place| self.states[*place].clone())
            .collect();
        let mut decisions = Vec::with_capacity(questions.len());
        // What is left of each write if the call is refused: only what a refusal wrote.
        let mut left = Vec::new();
        for ((question, place), before) in asks().zip(&before) {
            let state = self.state(*place, &question.rule);
            let step = question.rule.step(state, now, question.cost);
            if !matches!(step, Step::Kept(_)) {
                let admitted = step.decision().is_admitted();
                left.push((
                    *place,
                    if admitted {
                        before.clone()
                    } else {
                        Some(state.clone())
                    },
                ));
            }
            decisions.push(step);
        }
        let all = decisions.iter().all(|step| step.decision().is_admitted());
        self.admitted += u64::from(all);
        if all {
            return decisions.iter().map(|step| step.decision()).collect();
        }
        // In order, as the program: of a key that was asked for twice, the last write says.
        for (place, state) in places.iter().copied().zip(before).chain(left) {
            self.states[place] = state;
        }
        decisions
            .iter()
            .zip(looks)
            .map(|(step, look)| match step.decision() {
                refusal if !refusal.is_admitted() => refusal,
                _ => look,
            })
            .collect()
    }
}

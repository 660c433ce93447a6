//! The answer of a program.

use std::borrow::Cow;

use super::{
    Program,
    pack::{put_array, put_number, take_array, take_bytes_or_false, take_false, take_number},
    request::{SEVERAL, VERSION},
};
use crate::{
    algorithm::{ScriptTuple, Scripted},
    store::Error,
    time::Timestamp,
};

/// The states under the keys of a request.
pub(super) struct Answer<'a> {
    pub(super) now: Timestamp,
    /// For each key, the number of admitted calls whose first ask is about it.
    pub(super) admitted: Vec<u64>,
    /// `admitted` is the number of those calls plus the units that they spent, because the program grants units.
    pub(super) counts_units: bool,
    /// The number of values that could not be read and count as none.
    pub(super) healed: u64,
    /// The number of corrections that [gave nothing back](crate::algorithm::Algorithm::forgets).
    pub(super) unsettled: u64,
    /// The reason why the server took no write; then no call was charged.
    pub(super) unwritten: Option<Cow<'a, str>>,
    pub(super) states: Vec<Option<Cow<'a, [u8]>>>,
}

/// The length of the states that the programs for buckets write.
const BUCKET: usize = 32;

impl<'a> Answer<'a> {
    /// # Errors
    ///
    /// Fails if the bytes are no answer of this program about this number of keys.
    pub(super) fn read(program: Program, bytes: &'a [u8], keys: usize) -> Result<Self, Error> {
        let answer = match program {
            Program::BUCKETS | Program::ONE_BUCKET => Self::of_buckets(bytes, keys),
            _ => Self::of_list(bytes, keys).map(|answer| Self {
                counts_units: program == Program::GRANT,
                ..answer
            }),
        };
        answer.ok_or_else(|| {
            Error::other("the program's answer cannot be read: expected what this version of the program writes; \
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
            admitted: admitted.iter().map(|count| (*count).into()).collect(),
            counts_units: false,
            healed: (*healed).into(),
            unsettled: 0,
            unwritten,
            states,
        })
    }
}

/// Returns the bytes of the state of a bucket to which something was given back, as the driver writes them.
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

/// Returns the state of a rule's kind in the value of a key; `None` if it has none.
pub(super) fn state_of<Rule: Scripted>(rule: &Rule, bytes: &[u8]) -> Option<Rule::State> {
    let states = states(bytes)?;
    states.iter().find_map(|parts| rule.state_of_parts(parts))
}

/// The states of a value, each with its parts.
type States = Vec<Vec<Option<ScriptTuple>>>;

/// Returns the states in the value of a key, of different kinds.
pub(super) fn states(mut bytes: &[u8]) -> Option<States> {
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

//! The decisions that follow from an answer, made anew from the states that the program found.

use std::{borrow::Cow, sync::Arc};

use smallvec::SmallVec;

use super::{
    answer::{Answer, state_of},
    request::{Call, Numbers, Question},
};
use crate::{
    algorithm::{Algorithm, Scripted},
    decision::Decision,
    store::{
        Decisions, Error, Spend,
        engine::{Entry, States},
    },
    time::Timestamp,
};

/// Returns the result of each call of a request, in their order. `places` are the indices of the keys of its asks; `unwritten` makes an error
/// of the reason why the server took no write.
pub(super) fn decided<'c, Rule: Scripted + 'c>(
    answer: &Answer<'_>,
    calls: impl Iterator<Item = &'c Call<Rule>>,
    places: &[usize],
    unwritten: impl FnOnce(&str) -> Error,
) -> Vec<Result<Decisions, Error>> {
    match &answer.unwritten {
        None => decisions(answer, calls, places),
        Some(why) => refusals(answer, calls, places, &unwritten(why)),
    }
}

/// Returns the decisions of calls.
///
/// A call is an error if the program decided otherwise about one of its keys: no caller may get an answer that is not true.
fn decisions<'c, Rule: Scripted + 'c>(
    answer: &Answer<'_>,
    calls: impl Iterator<Item = &'c Call<Rule>>,
    mut places: &[usize],
) -> Vec<Result<Decisions, Error>> {
    let mut replay = Replay::new(answer);
    let calls = calls.map(|call| {
        let (own, rest) = places.split_at(call.0.len());
        places = rest;
        (own, replay.decide(call, own))
    });
    let decided: Vec<_> = calls.collect();
    let differs = |(replayed, told)| replayed != told;
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
    while let Some((own, _)) = decided.iter().find(|(own, _)| {
        let mut own = own.iter().map(|place| differs[*place]);
        own.clone().any(|differs| differs) && !own.all(|differs| differs)
    }) {
        own.iter().for_each(|place| differs[*place] = true);
    }
    let told = |(own, decisions): (&[usize], _)| match own.iter().any(|place| differs[*place]) {
        true => Err(disagreement()),
        false => Ok(decisions),
    };
    decided.into_iter().map(told).collect()
}

/// Returns the result of each call if nothing could be written: refusals hold, because they write nothing, and calls that would
/// be admitted get the error.
fn refusals<'c, Rule: Scripted + 'c>(
    answer: &Answer<'_>,
    calls: impl Iterator<Item = &'c Call<Rule>>,
    mut places: &[usize],
    error: &Error,
) -> Vec<Result<Decisions, Error>> {
    let told = |call: &Call<Rule>| {
        let (own, rest) = places.split_at(call.0.len());
        places = rest;
        // Each by itself: no call before it was charged.
        let decisions = Replay::new(answer).decide(call, own);
        if decisions.is_admitted() {
            Err(error.duplicate())
        } else {
            Ok(decisions)
        }
    };
    calls.map(told).collect()
}

#[cold]
fn disagreement() -> Error {
    Error::other(
        "the program beside the data decided otherwise than this process: expected the same version of both; \
         give other versions another prefix",
    )
}

/// The state of a kind of rules.
struct ByKind<Rule: Algorithm> {
    /// The rule that read the state.
    numbers: Arc<Numbers>,
    entry: Entry<Rule::State>,
}

/// Makes the decisions of calls anew, as the program made them.
struct Replay<'a, Rule: Scripted> {
    now: Timestamp,
    found: &'a [Option<Cow<'a, [u8]>>],
    /// For each key, its states by the kinds of rules that asked.
    states: Vec<SmallVec<[ByKind<Rule>; 1]>>,
    /// As [`Answer::admitted`].
    admitted: Vec<u64>,
    counts_units: bool,
}

/// The units of an ask that an [answer](Answer::counts_units) counts.
const MASK: u64 = (1 << 32) - 1;

/// An ask, and the index of its key.
type Placed<'q, Rule> = (&'q Question<Rule>, usize);

impl<'q, Rule: Scripted> States<Placed<'q, Rule>> for Replay<'_, Rule> {
    type Rule = Rule;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn rule<'p>((question, _): &'p Placed<'q, Rule>) -> &'p Rule {
        &question.rule
    }

    fn spend_of((question, _): &Placed<'q, Rule>) -> Spend {
        question.spend
    }

    /// Until a call has written a state, each rule reads the answer for itself: it may leave some of that out.
    fn entry(&mut self, (question, place): &Placed<'q, Rule>) -> &mut Entry<Rule::State> {
        let (states, numbers) = (&mut self.states[*place], &question.numbers);
        let read = || {
            let bytes = self.found[*place].as_deref();
            let state = bytes.and_then(|bytes| state_of(&question.rule, bytes));
            ByKind {
                numbers: Arc::clone(numbers),
                entry: Entry::new(state),
            }
        };
        let known = states
            .iter()
            .position(|known| known.numbers.is_of_kind(numbers));
        let known = known.unwrap_or_else(|| {
            states.push(read());
            states.len() - 1
        });
        let known = &mut states[known];
        if !known.entry.is_written() && !Arc::ptr_eq(&known.numbers, numbers) {
            *known = read();
        }
        &mut known.entry
    }
}

impl<'a, Rule: Scripted> Replay<'a, Rule> {
    fn new(answer: &'a Answer<'a>) -> Self {
        let found = &answer.states;
        Self {
            now: answer.now,
            states: found.iter().map(|_| SmallVec::new()).collect(),
            admitted: vec![0; found.len()],
            counts_units: answer.counts_units,
            found,
        }
    }

    /// Returns the decisions of a call whose asks are about the keys at `places`.
    ///
    /// The server's clock shows microseconds, and so do the waits.
    fn decide(&mut self, Call(questions): &Call<Rule>, places: &[usize]) -> Decisions {
        let asks: SmallVec<[Placed<'_, Rule>; 2]> =
            questions.iter().zip(places.iter().copied()).collect();
        let exact = self.spend(&asks).decisions;
        if let Some(first) = places.first().filter(|_| exact.is_admitted()) {
            let units =
                |decision: &Decision| decision.charge().map_or(0, |charge| charge.cost & MASK);
            let units: u64 = match self.counts_units {
                true => exact.as_slice().iter().map(units).sum(),
                false => 0,
            };
            self.admitted[*first] += 1 + units;
        }
        exact
            .as_slice()
            .iter()
            .map(|decision| decision.in_micros())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Cost, Policy, TokenBucket,
        store::{Ask, script::request::Rules},
    };

    fn calls(clients: &[&[&str]]) -> Vec<Call<TokenBucket>> {
        let (rules, policy, rule) = (
            Rules::default(),
            Policy::new("api"),
            TokenBucket::per_hour(5),
        );
        let call = |clients: &&[&str]| {
            let ask = |client: &&str| Ask::new(&policy, &rule, (*client).into(), Cost::ONE);
            let asks: Vec<_> = clients.iter().map(ask).collect();
            Call::of("test", &rules, &asks).expect("a rule that fits")
        };
        clients.iter().map(call).collect()
    }

    fn answer(admitted: &[u64]) -> Answer<'static> {
        Answer {
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
            Rules::default(),
            Policy::new("api"),
            TokenBucket::per_hour(100),
        );
        let ask = Ask::new(&policy, &rule, "a".into(), Cost::ONE).up_to(30);
        let call = Call::of("test", &rules, &[ask]).expect("a rule that fits");
        // A quarter of what remains.
        for (units, agrees) in [(25, true), (24, false), (30, false)] {
            let answer = Answer {
                counts_units: true,
                ..answer(&[1 + units])
            };
            let told = decisions(&answer, [&call].into_iter(), &[0]);
            assert_eq!(told[0].is_ok(), agrees, "{units}");
        }
    }

    #[test]
    fn a_key_that_was_decided_otherwise_fails_alone() {
        // The keys of clients a to e, asked in this order.
        let calls = calls(&[&["a"], &["b"], &["c", "d"], &["a"], &["d"], &["e"]]);
        let places = [0, 1, 2, 3, 0, 3, 4];
        let fates = |admitted: &[u64]| -> Vec<bool> {
            let told = decisions(&answer(admitted), calls.iter(), &places);
            told.iter().map(Result::is_ok).collect()
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

//! Decisions that follow from an answer: made anew from what the program found.

use std::{borrow::Cow, sync::Arc};

use smallvec::SmallVec;

use super::{
    answer::{Answer, state_of},
    request::{Call, Numbers, Question},
};
use crate::{
    algorithm::{Algorithm, Scripted, Step},
    decision::Decision,
    store::{Decisions, Error},
    time::Timestamp,
};

/// What became of each call of a request, in their order; `places` are those of its asks, and `unwritten` is what kept the
/// server from writing.
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

/// The decisions of calls.
///
/// An error where the program decided otherwise about a key: should that ever be, nobody is told what may not be so.
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
    // What a call did to its other keys is not known either.
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

/// What each call is told where nothing could be written: refusals write nothing and hold, and who would be admitted gets
/// the error.
fn refusals<'c, Rule: Scripted + 'c>(
    answer: &Answer<'_>,
    calls: impl Iterator<Item = &'c Call<Rule>>,
    mut places: &[usize],
    error: &Error,
) -> Vec<Result<Decisions, Error>> {
    let told = |call: &Call<Rule>| {
        let (own, rest) = places.split_at(call.0.len());
        places = rest;
        // Each by itself: none of those before it was charged.
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
    /// The rule that read it.
    numbers: Arc<Numbers>,
    state: Option<Rule::State>,
    /// Whether a call has changed it. Until then each rule reads for itself what was found: it may leave some of that out.
    is_written: bool,
}

/// Makes the decisions of calls anew, as the program made them.
struct Replay<'a, Rule: Scripted> {
    now: Timestamp,
    found: &'a [Option<Cow<'a, [u8]>>],
    /// What the states of a key have become, by the kinds of rules that asked.
    states: Vec<SmallVec<[ByKind<Rule>; 1]>>,
    /// As [`Answer::admitted`].
    admitted: Vec<u64>,
}

impl<'a, Rule: Scripted> Replay<'a, Rule> {
    fn new(answer: &'a Answer<'a>) -> Self {
        let found = &answer.states;
        Self {
            now: answer.now,
            states: found.iter().map(|_| SmallVec::new()).collect(),
            admitted: vec![0; found.len()],
            found,
        }
    }

    fn state(&mut self, place: usize, question: &Question<Rule>) -> &mut ByKind<Rule> {
        let (states, numbers) = (&mut self.states[place], &question.numbers);
        let read = || ByKind {
            numbers: Arc::clone(numbers),
            state: self.found[place]
                .as_deref()
                .and_then(|found| state_of(&question.rule, found)),
            is_written: false,
        };
        let known = states
            .iter()
            .position(|known| known.numbers.is_of_kind(numbers));
        let known = known.unwrap_or_else(|| {
            states.push(read());
            states.len() - 1
        });
        let known = &mut states[known];
        if !known.is_written && !Arc::ptr_eq(&known.numbers, numbers) {
            *known = read();
        }
        known
    }

    fn step(&mut self, place: usize, question: &Question<Rule>) -> Step {
        let now = self.now;
        let known = self.state(place, question);
        let step = question.rule.step(&mut known.state, now, question.cost);
        known.is_written |= !matches!(step, Step::Kept(_));
        step
    }

    /// The decisions of a call whose asks are about the keys of these places.
    ///
    /// The server's clock tells microseconds, and so do the waits.
    fn decide(&mut self, call: &Call<Rule>, places: &[usize]) -> Decisions {
        let exact = self.decide_exactly(call, places);
        if let Some(first) = places.first().filter(|_| exact.is_admitted()) {
            self.admitted[*first] += 1;
        }
        exact
            .as_slice()
            .iter()
            .map(|decision| decision.in_micros())
            .collect()
    }

    fn decide_exactly(&mut self, Call(questions): &Call<Rule>, places: &[usize]) -> Decisions {
        if let ([question], [place]) = (&questions[..], places) {
            return self.step(*place, question).decision().into();
        }
        let asks = || questions.iter().zip(places);
        // Of these keys alone: a request may be about many more.
        let before: Vec<_> = asks()
            .map(|(question, place)| {
                let known = self.state(*place, question);
                (known.state.clone(), known.is_written)
            })
            .collect();
        let look = |((question, _), (before, _)): ((&Question<Rule>, _), &(Option<_>, bool))| {
            question.rule.look(before.as_ref(), self.now)
        };
        let looks: Vec<Decision> = asks().zip(&before).map(look).collect();
        let mut steps = Vec::with_capacity(questions.len());
        // What is left of each write if the call is refused: only what a refusal wrote.
        let mut left = Vec::new();
        for (n, (question, place)) in asks().enumerate() {
            let step = self.step(*place, question);
            if !matches!(step, Step::Kept(_)) {
                let state = match step.decision().is_admitted() {
                    true => before[n].clone(),
                    false => (self.state(*place, question).state.clone(), true),
                };
                left.push((n, state));
            }
            steps.push(step);
        }
        if steps.iter().all(|step| step.decision().is_admitted()) {
            return steps.into_iter().map(Step::decision).collect();
        }
        // In order, as the program: of a state that was asked for twice, the last write says.
        for (n, (state, is_written)) in before.into_iter().enumerate().chain(left) {
            let known = self.state(places[n], &questions[n]);
            (known.state, known.is_written) = (state, is_written);
        }
        let decision = |(step, look): (Step, Decision)| match step.decision() {
            refusal if !refusal.is_admitted() => refusal,
            _ => look,
        };
        steps.into_iter().zip(looks).map(decision).collect()
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
            healed: 0,
            unwritten: None,
            states: vec![None; admitted.len()],
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

//! What a store may remember, as its rules see it: each answer is compared with what the rule itself
//! decides at the instant that the answer tells.

use super::{answer::Closely, place::Place};
use crate::{
    algorithm::{Algorithm, StateKind, Step, packed::StoreTime},
    decision::{Charge, Cost, Decision},
    time::Timestamp,
};

/// All keys, in a list: the keys of one law are few.
pub(super) struct Model<R: Algorithm> {
    known: Vec<Known<R>>,
    /// The latest instant that was seen.
    newest: Timestamp,
    /// To how much the store rounds waits up, in nanoseconds.
    step: u64,
}

/// A key, with each state that the answers so far leave possible.
///
/// There is more than one where a store may have forgotten the key, as its rule says it can, or where nobody
/// knows at which instant it settled.
struct Known<R: Algorithm> {
    place: Place,
    /// A key has a state of each kind of rule that charged it.
    kind: StateKind,
    possible: Vec<Possible<R>>,
    /// Since something happened at an instant that nobody knows, waits are not compared.
    is_loose: bool,
}

#[derive(Clone)]
struct Possible<R: Algorithm> {
    state: Option<R::State>,
    /// The rule that wrote last.
    by: R,
}

/// What the rule decides instead.
pub(super) struct Otherwise(pub(super) Box<Decision>);

impl<R: Algorithm> Model<R> {
    pub(super) fn new(step: u64) -> Self {
        Self {
            known: Vec::new(),
            newest: Timestamp::default(),
            step,
        }
    }

    /// An instant was seen.
    pub(super) fn saw(&mut self, at: Timestamp) {
        self.newest = self.newest.max(at);
    }

    /// The latest instant that was seen.
    pub(super) fn newest(&self) -> Timestamp {
        self.newest
    }

    fn known(&mut self, place: &Place, by: &R) -> &mut Known<R> {
        let kind = by.state_kind();
        let is_it = |known: &Known<R>| known.place == *place && known.kind == kind;
        let index = self.known.iter().position(is_it);
        let index = index.unwrap_or_else(|| {
            self.known.push(Known {
                place: place.clone(),
                kind,
                possible: Vec::new(),
                is_loose: false,
            });
            self.known.len() - 1
        });
        let (newest, known) = (self.newest, &mut self.known[index]);
        let is_over = |possible: &Possible<R>| {
            let state = possible.state.as_ref();
            state.is_some_and(|state| possible.by.forgettable_at(state) <= newest)
        };
        let may_be_forgotten = known.possible.is_empty() || known.possible.iter().any(is_over);
        if may_be_forgotten && known.possible.iter().all(|known| known.state.is_some()) {
            known.possible.push(Possible::new(None, by));
        }
        known
    }

    /// Keeps what answers a call as the store did, and what that wrote.
    pub(super) fn spend(
        &mut self,
        place: &Place,
        rule: &R,
        cost: Cost,
        answer: &Decision,
    ) -> Result<(), Otherwise> {
        self.keep(place, rule, answer, |rule, mut state| {
            let step = rule.step(&mut state, answer.at(), cost);
            let wrote = !matches!(step, Step::Kept(_));
            (step.decision(), wrote.then_some(state))
        })
    }

    /// Keeps what refuses a call as the store did. What a first sight writes may be there, or not.
    pub(super) fn refused(
        &mut self,
        place: &Place,
        rule: &R,
        cost: Cost,
        answer: &Decision,
    ) -> Result<(), Otherwise> {
        self.keep(place, rule, answer, |rule, mut state| {
            let step = rule.step(&mut state, answer.at(), cost);
            (step.decision(), None)
        })
    }

    /// Keeps what answers a look as the store did.
    pub(super) fn look(
        &mut self,
        place: &Place,
        rule: &R,
        answer: &Decision,
    ) -> Result<(), Otherwise> {
        self.keep(place, rule, answer, |rule, state| {
            (rule.look(state.as_ref(), answer.at()), None)
        })
    }

    /// Keeps what answers as the store did; `decide` tells what it would answer, and what that writes.
    fn keep(
        &mut self,
        place: &Place,
        rule: &R,
        answer: &Decision,
        decide: impl Fn(&R, Option<R::State>) -> (Decision, Option<Option<R::State>>),
    ) -> Result<(), Otherwise> {
        self.saw(answer.at());
        let rule = &place.own(rule);
        let step = self.step;
        let known = self.known(place, rule);
        let is_loose = known.is_loose;
        let closely = Closely { step, is_loose };
        let (mut right, mut otherwise) = (Vec::new(), None);
        for possible in &known.possible {
            let mut stays = false;
            for state in possible.states(rule, answer.at()) {
                let (decision, wrote) = decide(rule, state);
                if !closely.agree(&decision, answer) {
                    otherwise.get_or_insert(decision);
                    continue;
                }
                match wrote {
                    None => stays = true,
                    Some(state) => add(&mut right, Possible::new(state, rule), answer.at()),
                }
            }
            if stays {
                add(&mut right, possible.clone(), answer.at());
            }
        }
        match otherwise {
            Some(decision) if right.is_empty() => Err(Otherwise(Box::new(decision))),
            _ => {
                known.possible = right;
                Ok(())
            }
        }
    }

    /// A charge was corrected, at the first of these instants, at the last, or between them.
    pub(super) fn settle(
        &mut self,
        place: &Place,
        rule: &R,
        charge: &Charge,
        between: [Timestamp; 2],
        actual: u64,
    ) {
        let rule = &place.own(rule);
        let known = self.known(place, rule);
        let [first, last] = between;
        known.is_loose |= first != last;
        let instants = &between[usize::from(first == last)..];
        let mut settled = Vec::new();
        for possible in &known.possible {
            for at in instants {
                let matters = |state: &Option<R::State>| {
                    let state = state.as_ref();
                    state.is_some_and(|state| rule.forgettable_at(state) > *at)
                };
                // A word has no instant of the last write, so a store that keeps one may give back less.
                let in_a_word = possible.in_a_word(rule, *at).map(Some);
                let in_a_word = in_a_word.filter(|_| rule.meter().is_some());
                for before in possible.states(rule, *at).chain(in_a_word) {
                    let mut state = before.clone();
                    rule.settle(&mut state, charge, *at, actual);
                    // A rule to which the state says nothing, before and after, may leave it to another rule.
                    if !matters(&before) && !matters(&state) {
                        add(&mut settled, possible.clone(), *at);
                    }
                    add(&mut settled, Possible::new(state, rule), *at);
                }
            }
        }
        known.possible = settled;
    }

    /// Nothing was spent, but perhaps a fresh key was seen for the first time; or a charge was `settled_back`.
    pub(super) fn perhaps(
        &mut self,
        place: &Place,
        rule: &R,
        cost: Cost,
        at: Timestamp,
        settled_back: bool,
    ) {
        self.saw(at);
        let rule = &place.own(rule);
        let known = self.known(place, rule);
        for possible in known.possible.clone() {
            for mut state in possible.states(rule, at) {
                let step = rule.step(&mut state, at, cost);
                match step.decision().charge() {
                    Some(charge) if settled_back => rule.settle(&mut state, &charge, at, 0),
                    None if !matches!(step, Step::Kept(_)) => {}
                    _ => continue,
                }
                add(&mut known.possible, Possible::new(state, rule), at);
            }
        }
    }

    /// From now on, waits are not compared: something happened at an instant that nobody knows.
    pub(super) fn loosen(&mut self, place: &Place, rule: &R) {
        self.known(place, rule).is_loose = true;
    }

    /// A key was reset.
    pub(super) fn forget(&mut self, place: &Place) {
        self.known.retain(|known| known.place != *place);
    }
}

impl<R: Algorithm> Possible<R> {
    fn new(state: Option<R::State>, by: &R) -> Self {
        let by = by.clone();
        Self { state, by }
    }

    /// The state; and what it is to another rule where the store kept it as a [mark](crate::algorithm::packed::PackedState), which
    /// does not tell when it was written.
    fn states(&self, rule: &R, at: Timestamp) -> impl Iterator<Item = Option<R::State>> + use<R> {
        let in_a_word = self.in_a_word(rule, at);
        [
            Some(self.state.clone()),
            in_a_word.filter(|_| rule.meter().is_none()).map(Some),
        ]
        .into_iter()
        .flatten()
    }

    /// The state as it comes back to a rule from a store that keeps it in a word.
    fn in_a_word(&self, rule: &R, at: Timestamp) -> Option<R::State> {
        let now = StoreTime::new(at, at);
        let mark = self.by.mark_of(self.state.as_ref()?, now)?;
        rule.state_of(mark, self.by.meter()?.shape(), now)
    }
}

/// As many are kept of a key, though they tell its rule the same: they may tell another rule something else.
const FEW: usize = 16;

/// Adds a state. Beyond a few, unless it tells the same as another one: now, later, and where the clock steps back.
fn add<R: Algorithm>(list: &mut Vec<Possible<R>>, new: Possible<R>, at: Timestamp) {
    let around = [-1, 0, 1, 1_000_000_000, 3_600_000_000_000]
        .map(|nanos| Timestamp::from_nanos(at.as_nanos().saturating_add_signed(nanos)));
    let moments = [Timestamp::default()].into_iter().chain(around);
    let spent = |possible: &Possible<R>, at| {
        let step = possible.by.step(&mut possible.state.clone(), at, Cost::ONE);
        step.decision()
    };
    let tells_else = |other: &Possible<R>| {
        let differ = |at| !Closely::EXACTLY.agree(&spent(other, at), &spent(&new, at));
        moments.clone().any(differ)
    };
    if list.len() < FEW || list.iter().all(tells_else) {
        list.push(new);
    }
}

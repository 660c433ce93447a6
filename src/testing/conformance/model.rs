//! A model of a store, which predicts each answer by the rule at the instant of the answer.

use std::time::Duration;

use super::checker::Subject;
use crate::{
    algorithm::{
        Algorithm, InFlight, StateKind, Step,
        packed::{InMemory, StoreTime},
    },
    decision::{Charge, Cost, Decision, Verdict},
    time::Timestamp,
};

/// The keys of one law, in a list because they are few.
// Of any rule, because suites also run the rules of users.
pub(super) struct Model<R: Algorithm> {
    known: Vec<KnownKey<R>>,
    /// The latest instant of an answer.
    newest: Timestamp,
    /// The resolution to which the store rounds waits up, in nanoseconds.
    step: u64,
}

/// A key, with all states that agree with the answers so far.
///
/// There are several states if the store may have removed the key because its state expired, or if
/// the instant of a settlement is unknown.
struct KnownKey<R: Algorithm> {
    subject: Subject,
    /// The kind of the rule: a key has a state for each kind.
    kind: StateKind,
    possible: Vec<PossibleState<R>>,
    /// Set after an event at an unknown instant; waits are then not compared.
    is_loose: bool,
}

#[derive(Clone)]
struct PossibleState<R: Algorithm> {
    state: Option<R::State>,
    /// The rule that wrote last.
    by: R,
}

/// The decision of the rule, if it differs from the answer.
pub(super) struct Mismatch(pub(super) Box<Decision>);

impl<R: Algorithm> Model<R> {
    pub(super) fn new(step: u64) -> Self {
        Self {
            known: Vec::new(),
            newest: Timestamp::default(),
            step,
        }
    }

    /// Records the instant of an answer.
    pub(super) fn saw(&mut self, at: Timestamp) {
        self.newest = self.newest.max(at);
    }

    /// Returns the latest instant of an answer.
    pub(super) fn newest(&self) -> Timestamp {
        self.newest
    }

    fn known(&mut self, subject: &Subject, by: &R) -> &mut KnownKey<R> {
        let kind = by.state_kind();
        let is_it = |known: &KnownKey<R>| known.subject == *subject && known.kind == kind;
        let index = self.known.iter().position(is_it);
        let index = index.unwrap_or_else(|| {
            self.known.push(KnownKey {
                subject: subject.clone(),
                kind,
                possible: Vec::new(),
                is_loose: false,
            });
            self.known.len() - 1
        });
        let (newest, known) = (self.newest, &mut self.known[index]);
        let is_over = |possible: &PossibleState<R>| {
            let state = possible.state.as_ref();
            state.is_some_and(|state| possible.by.forgettable_at(state) <= newest)
        };
        let may_be_forgotten = known.possible.is_empty() || known.possible.iter().any(is_over);
        if may_be_forgotten && known.possible.iter().all(|known| known.state.is_some()) {
            known.possible.push(PossibleState::new(None, by));
        }
        known
    }

    /// Keeps the states that agree with the answer to a call: as the call left them, or, if it
    /// stores nothing, as they were before it.
    pub(super) fn spend(
        &mut self,
        subject: &Subject,
        rule: &R,
        cost: Cost,
        answer: &Decision,
        stores: bool,
    ) -> Result<(), Mismatch> {
        self.keep(subject, rule, answer, |rule, mut state| {
            let step = rule.step(&mut state, answer.at(), cost);
            let wrote = stores && !matches!(step, Step::Kept(_));
            (step.decision(), wrote.then_some(state))
        })
    }

    /// Keeps the states that agree with the answer to a look.
    pub(super) fn look(
        &mut self,
        subject: &Subject,
        rule: &R,
        answer: &Decision,
    ) -> Result<(), Mismatch> {
        self.keep(subject, rule, answer, |rule, state| {
            (rule.look(state.as_ref(), answer.at()), None)
        })
    }

    /// Keeps the states that agree with an answer. `decide` returns the decision and the state that
    /// it stores.
    fn keep(
        &mut self,
        subject: &Subject,
        rule: &R,
        answer: &Decision,
        decide: impl Fn(&R, Option<R::State>) -> (Decision, Option<Option<R::State>>),
    ) -> Result<(), Mismatch> {
        self.saw(answer.at());
        let rule = &subject.own(rule);
        let step = self.step;
        let known = self.known(subject, rule);
        let is_loose = known.is_loose;
        let tolerance = Tolerance { step, is_loose };
        let (mut right, mut mismatch) = (Vec::new(), None);
        for possible in &known.possible {
            let mut stays = false;
            for state in possible.states(rule, answer.at()) {
                let (decision, wrote) = decide(rule, state);
                if !tolerance.agree(&decision, answer) {
                    mismatch.get_or_insert(decision);
                    continue;
                }
                match wrote {
                    None => stays = true,
                    Some(state) => add(&mut right, PossibleState::new(state, rule), answer.at()),
                }
            }
            if stays {
                add(&mut right, possible.clone(), answer.at());
            }
        }
        match mismatch {
            Some(decision) if right.is_empty() => Err(Mismatch(Box::new(decision))),
            _ => {
                known.possible = right;
                Ok(())
            }
        }
    }

    /// Records units that count as of one of these instants, or between them: a window may end
    /// meanwhile.
    pub(super) fn add_units(
        &mut self,
        subject: &Subject,
        rule: &R,
        between: [Timestamp; 2],
        units: u64,
    ) {
        let before = self.known(subject, rule).possible.clone();
        let mut all = Vec::new();
        for at in between {
            self.known(subject, rule).possible.clone_from(&before);
            self.settle(subject, rule, &Charge::new(at, 0), between, units);
            for possible in self.known(subject, rule).possible.drain(..) {
                add(&mut all, possible, at);
            }
        }
        self.known(subject, rule).possible = all;
    }

    /// Records a settlement at one of these instants or between them.
    pub(super) fn settle(
        &mut self,
        subject: &Subject,
        rule: &R,
        charge: &Charge,
        between: [Timestamp; 2],
        actual: u64,
    ) {
        let rule = &subject.own(rule);
        let known = self.known(subject, rule);
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
                // A packed state has no instant of the last write, so a store of packed states may
                // refund less.
                let word = possible.read_packed(rule, *at);
                let word = word.filter(|_| rule.packed_rule().is_some());
                let packed = [word, possible.read_words(rule, *at)];
                let packed = packed.into_iter().flatten().map(Some);
                for before in possible.states(rule, *at).chain(packed) {
                    let mut state = before.clone();
                    rule.settle(&mut state, charge, *at, actual);
                    // If the state is expired for this rule before and after, the store may keep
                    // that of another rule.
                    if !matters(&before) && !matters(&state) {
                        add(&mut settled, possible.clone(), *at);
                    }
                    add(&mut settled, PossibleState::new(state, rule), *at);
                }
            }
        }
        known.possible = settled;
    }

    /// Records a call without a charge: the state of a new key may have been stored, or a charge
    /// was `settled_back`.
    pub(super) fn perhaps(
        &mut self,
        subject: &Subject,
        rule: &R,
        cost: Cost,
        at: Timestamp,
        settled_back: bool,
    ) {
        self.saw(at);
        let rule = &subject.own(rule);
        let known = self.known(subject, rule);
        for possible in known.possible.clone() {
            for mut state in possible.states(rule, at) {
                let step = rule.step(&mut state, at, cost);
                match step.decision().charge() {
                    Some(charge) if settled_back => rule.settle(&mut state, &charge, at, 0),
                    None if !matches!(step, Step::Kept(_)) => {}
                    _ => continue,
                }
                add(&mut known.possible, PossibleState::new(state, rule), at);
            }
        }
    }

    /// Records an event at an unknown instant: from now on, waits are not compared.
    pub(super) fn loosen(&mut self, subject: &Subject, rule: &R) {
        self.known(subject, rule).is_loose = true;
    }

    /// Records a reset. A store may keep what calls hold, and does so without a lease.
    pub(super) fn forget(&mut self, subject: &Subject) {
        let newest = self.newest;
        self.known.retain_mut(|known| {
            let is_other = known.subject != *subject;
            let last = known.possible.first().map(|possible| possible.by.clone());
            let leased = last.filter(|by| !is_other && by.renewal().is_some());
            if let Some(by) = leased {
                add(&mut known.possible, PossibleState::new(None, &by), newest);
            }
            is_other || known.kind == InFlight::STATES
        });
    }
}

impl<R: Algorithm> PossibleState<R> {
    fn new(state: Option<R::State>, by: &R) -> Self {
        let by = by.clone();
        Self { state, by }
    }

    /// Returns the state, and the state as a rule that packs its own in another way, or not at all,
    /// reads it from a [packed state](crate::algorithm::packed::PackedState), which has no instant
    /// of the last write.
    fn states(&self, rule: &R, at: Timestamp) -> impl Iterator<Item = Option<R::State>> + use<R> {
        let kind = |rule: &R| rule.packed_rule().map(|packed| packed.packed_kind());
        let is_other = kind(rule).is_none() || kind(rule) != kind(&self.by);
        let packed = self.read_packed(rule, at);
        [
            Some(self.state.clone()),
            packed.filter(|_| is_other).map(Some),
        ]
        .into_iter()
        .flatten()
    }

    /// Returns the state as a rule reads it from a packed state.
    fn read_packed(&self, rule: &R, at: Timestamp) -> Option<R::State> {
        let now = StoreTime::new(at, at);
        let packed = self.by.pack(self.state.as_ref()?, now)?;
        rule.unpack(packed, self.by.packed_rule()?.packed_kind(), now)
    }

    /// Returns the state as a rule reads it from two words, which have no such instant either.
    fn read_words(&self, rule: &R, at: Timestamp) -> Option<R::State> {
        let now = StoreTime::new(at, at);
        let words = self.by.to_two_words(self.state.as_ref()?, now)?;
        rule.read_two_words(words, now)
    }
}

/// The number of states of a key that are kept even if its rule decides equally from them, because
/// another rule may not.
const MAX_EQUAL: usize = 16;

/// Adds a state. If there are many, adds it only if its rule decides differently from it: now,
/// later, or after a step back of the clock.
fn add<R: Algorithm>(list: &mut Vec<PossibleState<R>>, new: PossibleState<R>, at: Timestamp) {
    let around = [-1, 0, 1, 1_000_000_000, 3_600_000_000_000]
        .map(|nanos| Timestamp::from_nanos(at.as_nanos().saturating_add_signed(nanos)));
    let instants = [Timestamp::default()].into_iter().chain(around);
    let decide = |possible: &PossibleState<R>, at| {
        let step = possible.by.step(&mut possible.state.clone(), at, Cost::ONE);
        step.decision()
    };
    let differs = |other: &PossibleState<R>| {
        let differ = |at| !Tolerance::NONE.agree(&decide(other, at), &decide(&new, at));
        instants.clone().any(differ)
    };
    if list.len() < MAX_EQUAL || list.iter().all(differs) {
        list.push(new);
    }
}

/// The differences that an answer may have from the decision of its rule.
#[derive(Clone, Copy)]
struct Tolerance {
    /// The resolution to which waits may be rounded up, in nanoseconds; 1 for none.
    step: u64,
    /// Set if waits are not compared.
    is_loose: bool,
}

impl Tolerance {
    /// All numbers must be equal.
    const NONE: Self = Self {
        step: 1,
        is_loose: false,
    };

    /// Returns `true` if the answer of a store agrees with the decision of its rule at that
    /// instant.
    fn agree(self, rule: &Decision, store: &Decision) -> bool {
        let at_once = |decision: &Decision| {
            let numbers = (decision.limit(), decision.quota(), decision.remaining());
            let charge = decision.charge();
            let charge = charge.map(|charge| (charge.at, charge.class, charge.cost));
            (decision.is_admitted(), numbers, decision.class(), charge)
        };
        let waits = |decision: &Decision| {
            let verdict = match decision.verdict() {
                Verdict::Delay(wait) => Some(wait),
                _ => None,
            };
            let delay = decision.charge().and_then(|charge| charge.delay);
            [
                verdict,
                delay,
                decision.retry_after(),
                Some(decision.reset_after()),
                Some(decision.more_after()),
            ]
        };
        let mut pairs = waits(rule).into_iter().zip(waits(store));
        at_once(rule) == at_once(store) && pairs.all(|(rule, store)| self.is_wait(rule, store))
    }

    fn is_wait(self, rule: Option<Duration>, store: Option<Duration>) -> bool {
        match (rule, store) {
            (Some(rule), Some(store)) if !self.is_loose => {
                let beyond = store.checked_sub(rule).map(|beyond| beyond.as_nanos());
                let step = u128::from(self.step);
                let up_to = rule.as_nanos().next_multiple_of(step) - rule.as_nanos();
                beyond.is_some_and(|beyond| beyond <= up_to)
            }
            (rule, store) => rule.is_some() == store.is_some(),
        }
    }
}

/// Describes an answer in words.
pub(super) fn in_words(decision: &Decision) -> String {
    let number =
        |units: Option<u64>| units.map_or_else(|| "?".to_owned(), |units| units.to_string());
    let verdict = match decision.verdict() {
        Verdict::Allow => "allowed".to_owned(),
        Verdict::Delay(wait) => format!("allowed after {wait:?}"),
        Verdict::Refuse => match decision.retry_after() {
            Some(wait) => format!("refused, retry after {wait:?}"),
            None => "refused for ever".to_owned(),
        },
        Verdict::Undecided { admitted: true } => "undecided, admitted".to_owned(),
        Verdict::Undecided { .. } => "undecided, refused".to_owned(),
        Verdict::DryRun { .. } => "on a dry run".to_owned(),
    };
    let mut text = format!(
        "{verdict}, {} of {} left",
        number(decision.remaining()),
        number(decision.limit())
    );
    let waits = [
        ("more after", decision.more_after()),
        ("reset after", decision.reset_after()),
    ];
    for (name, wait) in waits
        .into_iter()
        .filter(|(_, wait)| *wait != Duration::ZERO)
    {
        text.push_str(&format!(", {name} {wait:?}"));
    }
    if decision.class() > 0 {
        text.push_str(&format!(", class {}", decision.class()));
    }
    if let Some(charge) = decision.charge() {
        text.push_str(&format!(", charged {}", charge.cost));
    }
    text
}

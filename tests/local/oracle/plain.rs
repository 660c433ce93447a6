//! The states that a store may hold, in a plain map that is written the slow obvious way.
#![allow(unreachable_pub, reason = "items of a test module")]

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use tollgate::{
    Charge, Cost, Decision, Timestamp,
    algorithm::{
        Algorithm, StateKind, Step,
        packed::{InMemory, StoreTime},
    },
};

/// A key under one of some policies.
pub type Who = (usize, u64);

/// A state that the store may hold of a key.
#[derive(Clone)]
pub struct Known<A: Algorithm> {
    state: Option<A::State>,
    /// The rule that wrote last.
    by: A,
}

/// Forgets nothing by itself. From the instant on at which the rule that wrote last says that a
/// state can be forgotten, the store may have done so, and both are possible until an answer tells
/// which it was. (Under one rule no answer ever does; a longer rule's answer may.)
pub struct Plain<A: Algorithm> {
    /// Of each kind of state that a key has.
    keys: HashMap<(Who, StateKind), Vec<Known<A>>>,
    /// The latest time that the store was told.
    pub now: Timestamp,
}

impl<A: Algorithm<State: fmt::Debug> + Clone> Plain<A> {
    pub fn new(now: Timestamp) -> Self {
        let keys = HashMap::new();
        Self { keys, now }
    }

    /// Forgets a key, whatever kinds of rules have charged it.
    pub fn reset(&mut self, who: Who) {
        self.keys.retain(|(known, _), _| *known != who);
    }

    pub fn clear(&mut self) {
        self.keys.clear();
    }

    fn possible(&mut self, who: Who, rule: &A) -> &mut Vec<Known<A>> {
        let now = self.now;
        let known = self.keys.entry((who, rule.state_kind())).or_default();
        let never_seen = known.is_empty();
        let forgettable = known.iter().any(|known| {
            let state = known.state.as_ref();
            state.is_some_and(|state| known.by.forgettable_at(state) <= now)
        });
        if never_seen || (forgettable && known.iter().all(|known| known.state.is_some())) {
            let (state, by) = (None, rule.clone());
            known.push(Known { state, by });
        }
        known
    }

    /// Keeps what answers a call as `is_right` wants it, and remembers what that wrote.
    pub fn step(
        &mut self,
        who: Who,
        rule: &A,
        cost: Cost,
        is_right: impl Fn(&Decision) -> bool,
    ) -> bool {
        let now = self.now;
        let possible = self.possible(who, rule);
        let in_words: Vec<_> = possible
            .iter()
            .filter_map(|known| Self::step_in_a_word(known, rule, now, cost))
            .filter(|(_, decision)| is_right(decision))
            .map(|(known, _)| known)
            .collect();
        let again: Vec<_> = possible
            .iter()
            .filter_map(|known| Self::step_out_of_a_word(known, rule, now, cost))
            .filter(|(_, decision)| is_right(decision))
            .map(|(known, _)| known)
            .collect();
        possible.retain_mut(|known| {
            let mut state = known.state.clone();
            let step = rule.step(&mut state, now, cost);
            if !matches!(step, Step::Kept(_)) {
                let by = rule.clone();
                *known = Known { state, by };
            }
            is_right(&step.decision())
        });
        // One of the same packed state is one too many.
        let at = StoreTime::new(now, now);
        let packed = |known: &Known<A>| rule.pack(known.state.as_ref()?, at);
        for new in in_words {
            if possible.iter().all(|known| packed(known) != packed(&new)) {
                possible.push(new);
            }
        }
        if !again.is_empty() {
            possible.extend(again);
            Self::without_twins(possible);
        }
        !possible.is_empty()
    }

    /// The state as a store reads it that keeps it in a word, which has no room for the instant of
    /// the last write.
    fn out_of_a_word(known: &Known<A>, rule: &A, now: Timestamp) -> Option<A::State> {
        let (at, state) = (StoreTime::new(now, now), known.state.as_ref()?);
        let unpacked = |by: &A| match by.packed_rule() {
            Some(meter) => rule.unpack(by.pack(state, at)?, meter.packed_kind(), at),
            None => rule.read_two_words(by.to_two_words(state, at)?, at),
        };
        unpacked(rule).or_else(|| unpacked(&known.by))
    }

    /// The step of a store that keeps the state in a word, under a rule that does not: it counts
    /// the calls again, as late as they can have come, and so it does from then on.
    fn step_out_of_a_word(
        known: &Known<A>,
        rule: &A,
        now: Timestamp,
        cost: Cost,
    ) -> Option<(Known<A>, Decision)> {
        let at = StoreTime::new(now, now);
        let is_packed = rule.pack(known.state.as_ref()?, at).is_some();
        // Two words are read by rules of the same kind only.
        if is_packed || rule.two_buckets().is_some() {
            return None;
        }
        let mut state = Some(Self::out_of_a_word(known, rule, now)?);
        let step = rule.step(&mut state, now, cost);
        let by = match step {
            Step::Kept(_) => known.by.clone(),
            Step::Wrote(_) => rule.clone(),
        };
        Some((Known { state, by }, step.decision()))
    }

    /// Leaves one of each state.
    fn without_twins(known: &mut Vec<Known<A>>) {
        let mut seen = HashSet::new();
        known.retain(|known| seen.insert(format!("{:?}", known.state)));
    }

    /// The step of a store that keeps the state in a word, in thirds of a nanosecond: a rule that
    /// counts in whole ones cuts a state of its own.
    fn step_in_a_word(
        known: &Known<A>,
        rule: &A,
        now: Timestamp,
        cost: Cost,
    ) -> Option<(Known<A>, Decision)> {
        let (at, meter) = (StoreTime::new(now, now), rule.packed_rule()?);
        let packed = rule.pack(known.state.as_ref()?, at)?;
        let (new, decision) = meter.step(Some(packed), at, cost);
        let known = match new {
            None => known.clone(),
            Some(new) => Known {
                state: rule.unpack(new, meter.packed_kind(), at),
                by: rule.clone(),
            },
        };
        Some((known, decision))
    }

    /// Keeps what would answer a look as `is_right` wants it.
    pub fn look(&mut self, who: Who, rule: &A, is_right: impl Fn(&Decision) -> bool) -> bool {
        let now = self.now;
        let possible = self.possible(who, rule);
        possible.retain(|known| {
            let looks_right = |state| is_right(&rule.look(state, now));
            let out_of_a_word = || Self::out_of_a_word(known, rule, now);
            looks_right(known.state.as_ref()) || looks_right(out_of_a_word().as_ref())
        });
        !possible.is_empty()
    }

    /// A call that the store refused: it spent nothing, but may have seen the key for the first
    /// time.
    pub fn refused(&mut self, who: Who, rule: &A, cost: Cost) {
        let now = self.now;
        let possible = self.possible(who, rule);
        let seen = possible.iter().filter_map(|known| {
            let mut state = known.state.clone();
            let step = rule.step(&mut state, now, cost);
            let wrote = !matches!(step, Step::Kept(_)) && !step.decision().is_admitted();
            let by = rule.clone();
            wrote.then_some(Known { state, by })
        });
        let seen: Vec<_> = seen.collect();
        possible.extend(seen);
    }

    /// A settlement of any of these charges: of one, or of what may have been charged.
    ///
    /// A settlement by a rule to which the state says nothing, before and after, is none; but a key
    /// that may have been pushed out is then known by what the settlement leaves of nobody.
    pub fn settle(
        &mut self,
        who: Who,
        rule: &A,
        charges: &[Charge],
        actual: u64,
        may_be_gone: bool,
    ) {
        let now = self.now;
        let matters = |state: &Option<A::State>| {
            let state = state.as_ref();
            state.is_some_and(|state| rule.forgettable_at(state) > now)
        };
        let possible = self.possible(who, rule);
        // A store that keeps a state in words does not know the instant of its last write, and may
        // give back less.
        let in_words: Vec<_> = possible
            .iter()
            .filter_map(|known| {
                let state = Some(Self::out_of_a_word(known, rule, now)?);
                let by = known.by.clone();
                Some(Known { state, by })
            })
            .collect();
        possible.extend(in_words);
        let by_it = |mut state: Option<A::State>, charge: &Charge| {
            rule.settle(&mut state, charge, now, actual);
            let by = rule.clone();
            Known { state, by }
        };
        let settled = |known: &Known<A>, charge: &Charge| {
            let settled = by_it(known.state.clone(), charge);
            if matters(&known.state) || matters(&settled.state) {
                return vec![settled];
            }
            let of_nobody = may_be_gone.then(|| by_it(None, charge));
            let of_nobody = of_nobody.filter(|known| matters(&known.state));
            of_nobody.into_iter().chain([known.clone()]).collect()
        };
        let each = |known: &Known<A>| {
            let of = |charge| settled(known, charge);
            charges.iter().flat_map(of).collect::<Vec<_>>()
        };
        *possible = possible.iter().flat_map(each).collect();
        Self::without_twins(possible);
    }

    /// The store may have forgotten a key that is full by this rule.
    pub fn may_be_forgotten_if_full(&mut self, who: Who, rule: &A) {
        let now = self.now;
        let known = self.possible(who, rule);
        let full = known.iter().any(|known| {
            let state = known.state.as_ref();
            state.is_none_or(|state| rule.forgettable_at(state) <= now)
        });
        if full {
            let (state, by) = (None, rule.clone());
            known.push(Known { state, by });
        }
    }
}

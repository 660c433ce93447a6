//! The questions of a request to its store.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use smallvec::{SmallVec, smallvec};

use super::{config::Role, limits::Limits};
use crate::{
    algorithm::Algorithm,
    decision::Decision,
    store::{Ask, Check, Decisions, NeverFails, OwnedAsks, Store, give_back},
};

/// The answer of a store to all asks of a request.
pub(super) enum Asked<A> {
    Decided(Decisions),
    Pending(Asking<A>),
}

pin_project! {
    /// A store's answer that is not ready.
    #[project = AskingProj]
    pub(super) enum Asking<A> {
        /// One question, about asks of one role.
        Merged { #[pin] answer: A, role: Role },
        /// A question for each role. Boxed, because it is rare.
        Separate { separate: Box<Separate<A>> },
    }
}

/// Asks the store about limits of which some may be on a dry run, or look first.
pub(super) fn ask_by_role<L, S>(
    limits: &L,
    store: &S,
    asks: &[Ask<'_, L::Rule>],
) -> Asked<S::Answer>
where
    L: Limits<Rule: Algorithm>,
    S: Store<L::Rule, Error: NeverFails>,
{
    let role = |ask: &Ask<'_, L::Rule>| {
        let limit = limits.find(ask.policy());
        limit.map_or(Role::Acquire, |limit| limit.role(ask.key()))
    };
    if let [ask] = asks {
        return ask_merged(store, asks, role(ask));
    }
    ask_separately(store, asks, asks.iter().map(role).collect())
}

/// Asks the store one question.
#[inline(always)]
pub(super) fn ask_merged<Rule, S>(store: &S, asks: &[Ask<'_, Rule>], role: Role) -> Asked<S::Answer>
where
    Rule: Algorithm,
    S: Store<Rule, Error: NeverFails>,
{
    let answer = match role {
        Role::Acquire | Role::DryRun => store.acquire(asks),
        Role::Look => store.look(&that_decide(asks.iter())),
    };
    match answer {
        Check::Ready(Ok(mut decisions)) => {
            decisions.complete(asks.len());
            set_role(role, asks.iter(), &mut decisions);
            Asked::Decided(decisions)
        }
        Check::Ready(Err(error)) => error.never(),
        Check::Pending(answer) => Asked::Pending(Asking::Merged { answer, role }),
    }
}

/// Asks the store a question for each role.
#[inline(never)]
fn ask_separately<Rule, S>(store: &S, asks: &[Ask<'_, Rule>], roles: Roles) -> Asked<S::Answer>
where
    Rule: Algorithm,
    S: Store<Rule, Error: NeverFails>,
{
    if let (&[_, _], &[first, second]) = (asks, roles.as_slice())
        && let (Role::Acquire, Role::DryRun) = (first, second)
    {
        return ask_with_candidate(store, asks, roles);
    }
    let mut separate = Separate::new(roles);
    separate.begin(store, asks);
    separate.asked(store, asks)
}

/// Asks the store about a live limit and the dry run behind it, the most common case.
#[inline]
fn ask_with_candidate<Rule, S>(store: &S, asks: &[Ask<'_, Rule>], roles: Roles) -> Asked<S::Answer>
where
    Rule: Algorithm,
    S: Store<Rule, Error: NeverFails>,
{
    let dry = store.acquire(&asks[1..]);
    let live = store.acquire(&asks[..1]);
    if let (Check::Ready(Ok(live)), Check::Ready(Ok(dry))) = (&live, &dry)
        && let (Some(live), Some(dry)) = (live.only(), dry.only())
    {
        return Asked::Decided(Decisions::two(live, &dry.as_dry_run()));
    }
    let mut separate = Separate::new(roles);
    separate.has_acquired = true;
    separate.receive(smallvec![1], dry, asks);
    separate.receive(smallvec![0], live, asks);
    separate.asked(store, asks)
}

/// Makes the decisions those of asks of one role.
// In place: a decision is slow to copy right after it was written.
#[inline(always)]
fn set_role<'a, Rule: Algorithm + 'a>(
    role: Role,
    asks: impl Iterator<Item = &'a Ask<'a, Rule>>,
    decisions: &mut Decisions,
) {
    if role != Role::Acquire {
        for (ask, decision) in asks.zip(decisions.as_mut_slice()) {
            match role {
                Role::Acquire => {}
                Role::Look => *decision = ask.decided_by(decision),
                Role::DryRun => decision.make_dry_run(),
            }
        }
    }
}

impl<A> Asking<A> {
    /// Gives back what a call holds by the answers so far, because it is dropped before the others.
    pub(super) fn give_back<Rule, S: Store<Rule>>(
        self: Pin<&mut Self>,
        store: &S,
        asks: &OwnedAsks<Rule>,
    ) {
        if let AskingProj::Separate { separate } = self.project() {
            let decisions = separate.decisions.iter();
            let decided = asks.iter().zip(decisions);
            give_back(
                store,
                decided.filter_map(|(ask, decision)| Some((ask, (*decision)?))),
            );
        }
    }

    /// Waits for the decisions.
    pub(super) fn poll<Rule, S>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        store: &S,
        asks: &OwnedAsks<Rule>,
    ) -> Poll<Decisions>
    where
        Rule: Algorithm,
        S: Store<Rule, Answer = A, Error: NeverFails>,
        A: Future<Output = Result<Decisions, S::Error>>,
    {
        match self.project() {
            AskingProj::Merged { answer, role } => {
                let mut decisions = ready!(answer.poll(cx)).unwrap_or_else(NeverFails::never);
                decisions.complete(asks.iter().len());
                set_role(*role, asks.to_list().iter(), &mut decisions);
                Poll::Ready(decisions)
            }
            AskingProj::Separate { separate } => separate.poll(cx, store, &asks.to_list()),
        }
    }
}

/// Asks of several roles, and the decisions so far.
///
/// The store is asked at once about each dry run by itself, and about all looks together. Once all
/// looks admit the request, the others are acquired together; if a look refuses, nothing is spent,
/// and they are looked at. The decisions are complete once all answers are there.
pub(super) struct Separate<A> {
    roles: Roles,
    decisions: SmallVec<[Option<Decision>; 4]>,
    /// Answers that are not ready, each with the indices of its asks.
    pending: Vec<(Indices, Pin<Box<A>>)>,
    has_acquired: bool,
    /// `true` if a look refuses, so that nothing is acquired.
    is_refused: bool,
}

/// The role of each ask.
type Roles = SmallVec<[Role; 4]>;

type Indices = SmallVec<[usize; 4]>;

impl<A> Separate<A> {
    fn new(roles: Roles) -> Self {
        Self {
            decisions: smallvec![None; roles.len()],
            roles,
            pending: Vec::new(),
            has_acquired: false,
            is_refused: false,
        }
    }

    fn indices(&self, role: Role) -> Indices {
        let with_index = self.roles.iter().enumerate();
        with_index
            .filter(|(_, other)| **other == role)
            .map(|(index, _)| index)
            .collect()
    }

    fn begin<Rule, S>(&mut self, store: &S, asks: &[Ask<'_, Rule>])
    where
        Rule: Algorithm,
        S: Store<Rule, Answer = A, Error: NeverFails>,
        A: Future<Output = Result<Decisions, S::Error>>,
    {
        for index in self.indices(Role::DryRun) {
            let check = store.acquire(&[asks[index]]);
            self.receive(smallvec![index], check, asks);
        }
        let looks = self.indices(Role::Look);
        if !looks.is_empty() {
            let selected = select(asks, &looks);
            let check = store.look(&that_decide(selected.iter()));
            self.receive(looks, check, asks);
        }
    }

    /// Returns the decisions if the store has answered all asks.
    fn asked<Rule, S>(mut self, store: &S, asks: &[Ask<'_, Rule>]) -> Asked<A>
    where
        Rule: Algorithm,
        S: Store<Rule, Answer = A, Error: NeverFails>,
        A: Future<Output = Result<Decisions, S::Error>>,
    {
        match self.advance(store, asks) {
            Some(decisions) => Asked::Decided(decisions),
            None => Asked::Pending(Asking::Separate {
                separate: Box::new(self),
            }),
        }
    }

    /// Keeps an answer, or waits for it.
    fn receive<Rule: Algorithm, E: NeverFails>(
        &mut self,
        indices: Indices,
        check: Check<A>,
        asks: &[Ask<'_, Rule>],
    ) where
        A: Future<Output = Result<Decisions, E>>,
    {
        match check {
            Check::Ready(Ok(decisions)) => self.keep(&indices, decisions, asks),
            Check::Ready(Err(error)) => error.never(),
            Check::Pending(answer) => self.pending.push((indices, Box::pin(answer))),
        }
    }

    fn keep<Rule: Algorithm>(
        &mut self,
        indices: &[usize],
        mut decisions: Decisions,
        asks: &[Ask<'_, Rule>],
    ) {
        decisions.complete(indices.len());
        for (&index, decision) in indices.iter().zip(decisions.as_slice()) {
            self.decisions[index] = Some(match self.roles[index] {
                Role::Acquire if self.is_refused => asks[index].not_charged_by(decision),
                Role::Acquire => *decision,
                Role::Look => asks[index].decided_by(decision),
                Role::DryRun => decision.as_dry_run(),
            });
        }
    }

    /// Asks the next question; returns the decisions once there are all of them.
    fn advance<Rule, S>(&mut self, store: &S, asks: &[Ask<'_, Rule>]) -> Option<Decisions>
    where
        Rule: Algorithm,
        S: Store<Rule, Answer = A, Error: NeverFails>,
        A: Future<Output = Result<Decisions, S::Error>>,
    {
        if !self.has_acquired {
            let looks = self.indices(Role::Look);
            let looks: Option<SmallVec<[_; 4]>> =
                looks.iter().map(|&index| self.decisions[index]).collect();
            self.is_refused = !looks?.iter().all(Decision::is_admitted);
            self.has_acquired = true;
            let acquired = self.indices(Role::Acquire);
            if !acquired.is_empty() {
                let selected = select(asks, &acquired);
                let check = if self.is_refused {
                    store.look(&selected)
                } else {
                    store.acquire(&selected)
                };
                self.receive(acquired, check, asks);
            }
        }
        self.decisions.iter().copied().collect()
    }

    fn poll<Rule, S>(
        &mut self,
        cx: &mut Context<'_>,
        store: &S,
        asks: &[Ask<'_, Rule>],
    ) -> Poll<Decisions>
    where
        Rule: Algorithm,
        S: Store<Rule, Answer = A, Error: NeverFails>,
        A: Future<Output = Result<Decisions, S::Error>>,
    {
        loop {
            let mut index = 0;
            let pending = self.pending.len();
            while let Some((_, answer)) = self.pending.get_mut(index) {
                match answer.as_mut().poll(cx) {
                    Poll::Pending => index += 1,
                    Poll::Ready(decisions) => {
                        let decisions = decisions.unwrap_or_else(NeverFails::never);
                        let (indices, _) = self.pending.swap_remove(index);
                        self.keep(&indices, decisions, asks);
                    }
                }
            }
            let had_acquired = self.has_acquired;
            if let Some(decisions) = self.advance(store, asks) {
                return Poll::Ready(decisions);
            }
            // A new answer must be polled once before anything wakes this task.
            if had_acquired == self.has_acquired && pending == self.pending.len() {
                return Poll::Pending;
            }
        }
    }
}

/// Returns asks whose looks decide the request.
fn that_decide<'a, 'b: 'a, Rule: 'b>(
    asks: impl Iterator<Item = &'a Ask<'b, Rule>>,
) -> SmallVec<[Ask<'b, Rule>; 2]> {
    asks.map(|ask| ask.that_decides()).collect()
}

fn select<'a, Rule>(asks: &'a [Ask<'_, Rule>], indices: &[usize]) -> SmallVec<[Ask<'a, Rule>; 2]> {
    indices.iter().map(|&index| asks[index]).collect()
}

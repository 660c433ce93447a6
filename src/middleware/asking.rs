//! The questions of a request to its store.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use smallvec::{SmallVec, smallvec};

use super::{
    config::{Config, Role},
    limits::Limits,
};
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

impl<L, S, R> Config<L, S, R>
where
    L: Limits<Rule: Algorithm>,
    S: Store<L::Rule, Error: NeverFails>,
{
    /// Asks the store about limits of which some may be on a dry run, or look first.
    pub(super) fn ask_by_role(&self, asks: &[Ask<'_, L::Rule>]) -> Asked<S::Answer> {
        match asks {
            [ask] => self.ask_merged(asks, self.role(ask)),
            _ => self.ask_separately(asks, asks.iter().map(|ask| self.role(ask)).collect()),
        }
    }

    /// Asks the store one question.
    #[inline(always)]
    pub(super) fn ask_merged(&self, asks: &[Ask<'_, L::Rule>], role: Role) -> Asked<S::Answer> {
        let answer = match role {
            Role::Acquire | Role::DryRun => self.store.acquire(asks),
            Role::Look => self.store.look(&that_decide(asks)),
        };
        match answer {
            Check::Ready(Ok(mut decisions)) => {
                decisions.complete(asks.len());
                set_role(role, asks, &mut decisions);
                Asked::Decided(decisions)
            }
            Check::Ready(Err(error)) => error.never(),
            Check::Pending(answer) => Asked::Pending(Asking::Merged { answer, role }),
        }
    }

    /// Asks the store a question for each role.
    #[inline(never)]
    fn ask_separately(&self, asks: &[Ask<'_, L::Rule>], roles: Roles) -> Asked<S::Answer> {
        if let (&[_, _], &[Role::Acquire, Role::DryRun]) = (asks, roles.as_slice()) {
            return self.ask_with_candidate(asks, roles);
        }
        let mut separate = Separate::new(roles);
        for index in separate.indices(Role::DryRun) {
            let check = self.store.acquire(&[asks[index]]);
            separate.receive(smallvec![index], check, asks);
        }
        let looks = separate.indices(Role::Look);
        if !looks.is_empty() {
            let check = self.store.look(&that_decide(&select(asks, &looks)));
            separate.receive(looks, check, asks);
        }
        self.asked(separate, asks)
    }

    /// Asks the store about a live limit and the dry run behind it, the most common case.
    #[inline]
    fn ask_with_candidate(&self, asks: &[Ask<'_, L::Rule>], roles: Roles) -> Asked<S::Answer> {
        let dry = self.store.acquire(&asks[1..]);
        let live = self.store.acquire(&asks[..1]);
        if let (Check::Ready(Ok(live)), Check::Ready(Ok(dry))) = (&live, &dry)
            && let (Some(live), Some(dry)) = (live.only(), dry.only())
        {
            return Asked::Decided(Decisions::two(live, &dry.as_dry_run()));
        }
        let mut separate = Separate::new(roles);
        separate.has_acquired = true;
        separate.receive(smallvec![1], dry, asks);
        separate.receive(smallvec![0], live, asks);
        self.asked(separate, asks)
    }

    /// Returns the decisions if the store has answered all asks.
    fn asked(
        &self,
        mut separate: Separate<S::Answer>,
        asks: &[Ask<'_, L::Rule>],
    ) -> Asked<S::Answer> {
        match self.advance(&mut separate, asks) {
            Some(decisions) => Asked::Decided(decisions),
            None => Asked::Pending(Asking::Separate {
                separate: Box::new(separate),
            }),
        }
    }

    /// Asks the next question; returns the decisions once there are all of them.
    fn advance(
        &self,
        separate: &mut Separate<S::Answer>,
        asks: &[Ask<'_, L::Rule>],
    ) -> Option<Decisions> {
        if !separate.has_acquired {
            let looks = separate.indices(Role::Look);
            let looks = looks.iter().map(|&index| separate.decisions[index]);
            let looks: SmallVec<[_; 4]> = looks.collect::<Option<_>>()?;
            separate.is_refused = !looks.iter().all(Decision::is_admitted);
            separate.has_acquired = true;
            let acquired = separate.indices(Role::Acquire);
            if !acquired.is_empty() {
                let selected = select(asks, &acquired);
                let check = match separate.is_refused {
                    true => self.store.look(&selected),
                    false => self.store.acquire(&selected),
                };
                separate.receive(acquired, check, asks);
            }
        }
        separate.decisions.iter().copied().collect()
    }

    /// Waits for the decisions.
    pub(super) fn poll_asking(
        &self,
        asking: Pin<&mut Asking<S::Answer>>,
        cx: &mut Context<'_>,
        asks: &OwnedAsks<L::Rule>,
    ) -> Poll<Decisions> {
        match asking.project() {
            AskingProj::Merged { answer, role } => {
                let mut decisions = ready!(answer.poll(cx)).unwrap_or_else(NeverFails::never);
                decisions.complete(asks.iter().len());
                set_role(*role, &asks.to_list(), &mut decisions);
                Poll::Ready(decisions)
            }
            AskingProj::Separate { separate } => self.poll_separate(separate, cx, &asks.to_list()),
        }
    }

    fn poll_separate(
        &self,
        separate: &mut Separate<S::Answer>,
        cx: &mut Context<'_>,
        asks: &[Ask<'_, L::Rule>],
    ) -> Poll<Decisions> {
        loop {
            let mut index = 0;
            let pending = separate.pending.len();
            while let Some((_, answer)) = separate.pending.get_mut(index) {
                match answer.as_mut().poll(cx) {
                    Poll::Pending => index += 1,
                    Poll::Ready(decisions) => {
                        let decisions = decisions.unwrap_or_else(NeverFails::never);
                        let (indices, _) = separate.pending.swap_remove(index);
                        separate.keep(&indices, decisions, asks);
                    }
                }
            }
            let had_acquired = separate.has_acquired;
            if let Some(decisions) = self.advance(separate, asks) {
                return Poll::Ready(decisions);
            }
            // A new answer must be polled once before anything wakes this task.
            if had_acquired == separate.has_acquired && pending == separate.pending.len() {
                return Poll::Pending;
            }
        }
    }
}

/// Makes the decisions those of asks of one role.
// In place: a decision is slow to copy right after it was written.
#[inline(always)]
fn set_role<Rule: Algorithm>(role: Role, asks: &[Ask<'_, Rule>], decisions: &mut Decisions) {
    if role != Role::Acquire {
        for (ask, decision) in asks.iter().zip(decisions.as_mut_slice()) {
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
}

/// Returns asks whose looks decide the request.
fn that_decide<'a, Rule>(asks: &[Ask<'a, Rule>]) -> SmallVec<[Ask<'a, Rule>; 2]> {
    asks.iter().map(|ask| ask.that_decides()).collect()
}

fn select<'a, Rule>(asks: &'a [Ask<'_, Rule>], indices: &[usize]) -> SmallVec<[Ask<'a, Rule>; 2]> {
    indices.iter().map(|&index| asks[index]).collect()
}

//! The questions of a request to its store.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use smallvec::{SmallVec, smallvec};

use super::{limits::Sealed, role::Role};
use crate::{
    decision::Decision,
    store::{Ask, Check, Decisions, NeverFails, OwnedAsks, Store},
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
        Together { #[pin] answer: A, role: Role },
        /// A question for each role. Boxed, because it is rare.
        Apart { apart: Box<Apart<A>> },
    }
}

/// Asks the store about all limits of a request.
#[inline(always)]
pub(super) fn ask<L, S>(limits: &L, store: &S, asks: &[Ask<'_, L::AnyRule>]) -> Asked<S::Answer>
where
    L: Sealed,
    S: Store<L::AnyRule, Error: NeverFails>,
{
    if L::APART {
        ask_apart(limits, store, asks)
    } else {
        ask_together(store, asks, Role::Acquire)
    }
}

/// Asks the store one question.
#[inline(always)]
fn ask_together<Rule, S>(store: &S, asks: &[Ask<'_, Rule>], role: Role) -> Asked<S::Answer>
where
    S: Store<Rule, Error: NeverFails>,
{
    let answer = match role {
        Role::Acquire | Role::DryRun => store.acquire(asks),
        Role::Look => store.look(asks),
    };
    match answer {
        Check::Ready(Ok(decisions)) => Asked::Decided(match role {
            Role::Acquire => decisions,
            Role::Look | Role::DryRun => with_role(asks.iter(), role, decisions),
        }),
        Check::Ready(Err(error)) => error.never(),
        Check::Pending(answer) => Asked::Pending(Asking::Together { answer, role }),
    }
}

fn ask_apart<L, S>(limits: &L, store: &S, asks: &[Ask<'_, L::AnyRule>]) -> Asked<S::Answer>
where
    L: Sealed,
    S: Store<L::AnyRule, Error: NeverFails>,
{
    let role = |ask: &Ask<'_, L::AnyRule>| limits.role(ask.policy(), ask.key());
    let roles = asks.iter().map(|ask| role(ask).unwrap_or(Role::Acquire));
    if let [_] = asks {
        let role = roles.last().unwrap_or(Role::Acquire);
        return ask_together(store, asks, role);
    }
    let mut apart = Apart::new(roles.collect());
    apart.begin(store, asks);
    match apart.advance(store, asks) {
        Some(decisions) => Asked::Decided(decisions),
        None => Asked::Pending(Asking::Apart {
            apart: Box::new(apart),
        }),
    }
}

/// Returns the decisions as those of asks of one role.
fn with_role<'a, Rule: 'a>(
    asks: impl Iterator<Item = &'a Ask<'a, Rule>>,
    role: Role,
    decisions: Decisions,
) -> Decisions {
    let decided = asks.zip(decisions.as_slice());
    decided
        .map(|(ask, decision)| match role {
            Role::Acquire => *decision,
            Role::Look => decision.for_cost(ask.cost()),
            Role::DryRun => decision.as_dry_run(),
        })
        .collect()
}

impl<A> Asking<A> {
    /// Waits for the decisions.
    pub(super) fn poll<Rule, S>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        store: &S,
        asks: &OwnedAsks<Rule>,
    ) -> Poll<Decisions>
    where
        S: Store<Rule, Answer = A, Error: NeverFails>,
        A: Future<Output = Result<Decisions, S::Error>>,
    {
        match self.project() {
            AskingProj::Together { answer, role } => {
                let decisions = ready!(answer.poll(cx)).unwrap_or_else(NeverFails::never);
                Poll::Ready(match role {
                    Role::Acquire => decisions,
                    Role::Look | Role::DryRun => with_role(asks.to_list().iter(), *role, decisions),
                })
            }
            AskingProj::Apart { apart } => apart.poll(cx, store, &asks.to_list()),
        }
    }
}

/// Asks of several roles, and the decisions so far.
///
/// The asks of dry runs are put to the store at once, each by itself, and so are all looks together. Once all looks admit the request, the others are
/// acquired; if one refuses, nothing is spent, and they are looks.
pub(super) struct Apart<A> {
    roles: SmallVec<[Role; 4]>,
    decisions: SmallVec<[Option<Decision>; 4]>,
    /// Answers that are not ready, each with the indices of its asks.
    pending: Vec<(Indices, Pin<Box<A>>)>,
    has_acquired: bool,
}

type Indices = SmallVec<[usize; 4]>;

impl<A> Apart<A> {
    fn new(roles: SmallVec<[Role; 4]>) -> Self {
        Self {
            decisions: smallvec![None; roles.len()],
            roles,
            pending: Vec::new(),
            has_acquired: false,
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
        S: Store<Rule, Answer = A, Error: NeverFails>,
        A: Future<Output = Result<Decisions, S::Error>>,
    {
        for index in self.indices(Role::DryRun) {
            let check = store.acquire(&[asks[index]]);
            self.receive(smallvec![index], check, asks);
        }
        let looks = self.indices(Role::Look);
        if !looks.is_empty() {
            let check = store.look(&select(asks, &looks));
            self.receive(looks, check, asks);
        }
    }

    /// Keeps an answer, or waits for it.
    fn receive<Rule, E: NeverFails>(
        &mut self,
        indices: Indices,
        check: Check<A>,
        asks: &[Ask<'_, Rule>],
    ) where
        A: Future<Output = Result<Decisions, E>>,
    {
        match check {
            Check::Ready(Ok(decisions)) => self.keep(&indices, &decisions, asks),
            Check::Ready(Err(error)) => error.never(),
            Check::Pending(answer) => self.pending.push((indices, Box::pin(answer))),
        }
    }

    fn keep<Rule>(&mut self, indices: &[usize], decisions: &Decisions, asks: &[Ask<'_, Rule>]) {
        for (&index, decision) in indices.iter().zip(decisions.as_slice()) {
            self.decisions[index] = Some(match self.roles[index] {
                Role::Acquire => *decision,
                Role::Look => decision.for_cost(asks[index].cost()),
                Role::DryRun => decision.as_dry_run(),
            });
        }
    }

    /// Asks the next question; returns the decisions once there are all of them.
    fn advance<Rule, S>(&mut self, store: &S, asks: &[Ask<'_, Rule>]) -> Option<Decisions>
    where
        S: Store<Rule, Answer = A, Error: NeverFails>,
        A: Future<Output = Result<Decisions, S::Error>>,
    {
        if !self.has_acquired {
            let looks = self.indices(Role::Look);
            let looks: Option<SmallVec<[_; 4]>> =
                looks.iter().map(|&index| self.decisions[index]).collect();
            let all_admit = looks?.iter().all(Decision::is_admitted);
            self.has_acquired = true;
            let acquired = self.indices(Role::Acquire);
            if !acquired.is_empty() {
                let selected = select(asks, &acquired);
                let check = if all_admit {
                    store.acquire(&selected)
                } else {
                    store.look(&selected)
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
                        self.keep(&indices, &decisions, asks);
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

fn select<'a, Rule>(asks: &'a [Ask<'_, Rule>], indices: &[usize]) -> SmallVec<[Ask<'a, Rule>; 2]> {
    indices.iter().map(|&index| asks[index]).collect()
}

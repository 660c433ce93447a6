//! The turn of a call that waits until calls in flight end.
//!
//! A call waits if limits of calls in flight alone refuse it, and let it wait. It stands in one
//! line at a time, in the order of its arrival: that of the first limit that has no room, or in
//! which an older call waits. When it is called there, it asks all of its limits again, and changes
//! to the line of another one if that has no room any more. So it never keeps others from the room
//! of a limit that it cannot use, and the oldest call of all lines waits for no other.
//!
//! What the store decided while the call has to go on waiting is undone: charges of dry runs are
//! given back, and [blocks](crate::store::Blocks) count no refusal.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use smallvec::SmallVec;

use super::{
    asking::{Asked, Asking},
    config::{Config, Role},
    limits::Limits,
    pending::{Sleep, sleep},
};
use crate::{
    algorithm::Algorithm,
    decision::{Decision, Verdict},
    store::{Ask, Check, Decisions, NeverFails, OwnedAsks, Place, Store},
    time::Timestamp,
};

/// A call that may wait for its turn.
#[derive(Default)]
pub(super) struct Turn {
    /// `None` until it waits.
    waiting: Option<Waiting>,
    last: Option<LastAsk>,
}

/// The place of a waiting call.
struct Waiting {
    place: Place,
    ticket: u64,
    /// The longest wait, in all lines together.
    at_most: Duration,
    /// Until the wait is over.
    end: Timer,
    /// Until the call asks again as the first in its line.
    look: Option<Timer>,
}

type Timer = Pin<Box<Sleep>>;

/// The ask after which a call does not wait any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastAsk {
    /// Its answer stands.
    Decides,
    /// The call is refused by the limit with this index, also if others have ended meanwhile: older
    /// calls wait for their room.
    IsRefused(usize),
}

/// The result of an ask.
pub(super) enum Begun<A> {
    /// The answer to the call.
    Decided(Decisions),
    /// The store has not answered.
    Asking(Asking<A>),
    /// The call waits for its turn.
    Waiting,
}

impl Turn {
    /// Returns the turn of a call, if it has limits that let it wait.
    #[inline]
    pub(super) fn new<L, S, R>(config: &Config<L, S, R>, asks: &[Ask<'_, L::Rule>]) -> Option<Self>
    where
        L: Limits<Rule: Algorithm>,
    {
        config.lines.as_ref()?;
        let mut waits = asks.iter().map(|ask| ask.rule().waits_for_turn());
        waits.any(|wait| wait.is_some()).then(Self::default)
    }

    /// Returns `true` if the call waits in a line.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }
}

impl Waiting {
    /// Waits until the call asks again, if it does before it is called.
    fn poll_look(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.look {
            Some(look) => look.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// Lets the call ask again later, if it is the first in its line.
    fn look_again(&mut self) {
        // Nothing calls it when a maximal hold ends, which may be that of another rule, or when a
        // rule is changed.
        const LONGEST: Duration = Duration::from_secs(1);
        const SHORTEST: Duration = Duration::from_millis(20);
        let wait = (self.at_most / 16).clamp(SHORTEST, LONGEST);
        self.look = self.place.is_first().then(|| timer(wait)).flatten();
    }
}

/// Starts a timer; returns `None` if nothing can wait.
fn timer(wait: Duration) -> Option<Timer> {
    sleep(wait).map(Box::pin)
}

/// Returns the most units that are held at once under a rule.
fn capacity(rule: &impl Algorithm) -> u64 {
    let look = rule.look(None, Timestamp::default());
    look.limit().unwrap_or(0)
}

impl<L, S, R> Config<L, S, R>
where
    L: Limits<Rule: Algorithm>,
    S: Store<L::Rule, Error: NeverFails>,
{
    /// Asks for the first time, unless older calls wait.
    pub(super) fn begin_turn(
        &self,
        turn: &mut Turn,
        asks: &[Ask<'_, L::Rule>],
    ) -> Begun<S::Answer> {
        let lines = self.lines.as_ref();
        if lines.is_some_and(|lines| lines.waiting() > 0)
            && let Some(index) = self.ahead_of(turn, asks)
        {
            if self.is_refused_by_others(asks) {
                turn.last = Some(LastAsk::IsRefused(index));
            } else if self.wait_for(turn, asks, index) {
                return Begun::Waiting;
            }
        }
        self.ask_at_turn(turn, asks)
    }

    /// Asks the store until the answer stands, or the call must wait.
    fn ask_at_turn(&self, turn: &mut Turn, asks: &[Ask<'_, L::Rule>]) -> Begun<S::Answer> {
        loop {
            let marked: SmallVec<[Ask<'_, _>; 2]> = match turn.last {
                None => asks.iter().map(|ask| ask.that_may_wait()).collect(),
                Some(_) => asks.iter().copied().collect(),
            };
            let asked = match self.is_separate {
                true => self.ask_by_role(&marked),
                false => self.ask_merged(&marked, Role::Acquire),
            };
            match asked {
                Asked::Pending(answer) => return Begun::Asking(answer),
                Asked::Decided(decisions) => {
                    if let Some(begun) = self.answered_at_turn(turn, asks, decisions) {
                        return begun;
                    }
                }
            }
        }
    }

    /// Takes in an answer. Returns `None` if the call is to ask once more.
    fn answered_at_turn<A>(
        &self,
        turn: &mut Turn,
        asks: &[Ask<'_, L::Rule>],
        decisions: Decisions,
    ) -> Option<Begun<A>> {
        match turn.last {
            Some(LastAsk::IsRefused(index)) if decisions.is_admitted() => {
                self.settle_back(asks, &decisions, false, |_, decision| {
                    !decision.is_dry_run()
                });
                return Some(Begun::Decided(self.refused(asks, &decisions, index)));
            }
            Some(_) => return Some(Begun::Decided(decisions)),
            None if decisions.is_admitted() => return Some(Begun::Decided(decisions)),
            None => {}
        }
        if let Some(index) = self.refused_by_waits_alone(asks, &decisions)
            && self.wait_for(turn, asks, index)
        {
            self.settle_back(asks, &decisions, false, |_, _| true);
            return Some(Begun::Waiting);
        }
        if self.store.refuses_beyond_rules() {
            // Asks again, so that the refusal counts.
            self.settle_back(asks, &decisions, false, |_, _| true);
            turn.last.get_or_insert(LastAsk::Decides);
            return None;
        }
        Some(Begun::Decided(decisions))
    }

    /// Takes in a late answer, as [`ask_at_turn`](Self::ask_at_turn) does.
    pub(super) fn continue_turn(
        &self,
        turn: &mut Turn,
        asks: &[Ask<'_, L::Rule>],
        decisions: Decisions,
    ) -> Begun<S::Answer> {
        let begun = self.answered_at_turn(turn, asks, decisions);
        begun.unwrap_or_else(|| self.ask_at_turn(turn, asks))
    }

    /// Waits until the call is called or its wait is over, and asks again.
    pub(super) fn poll_turn(
        &self,
        turn: &mut Turn,
        cx: &mut Context<'_>,
        asks: &mut OwnedAsks<L::Rule>,
    ) -> Poll<Begun<S::Answer>> {
        loop {
            let Some(waiting) = &mut turn.waiting else {
                asks.update_rules(|policy| self.current_rule(policy));
                return Poll::Ready(self.ask_at_turn(turn, &asks.to_list()));
            };
            if !waiting.place.poll(cx) {
                let is_over = waiting.end.as_mut().poll(cx).is_ready();
                if !is_over {
                    ready!(waiting.poll_look(cx));
                    if !waiting.place.is_first() {
                        // An older call has come from another line since.
                        waiting.look = None;
                        continue;
                    }
                } else {
                    let list = asks.to_list();
                    let behind = self
                        .behind_of(turn, &list)
                        .or_else(|| self.ahead_of(turn, &list));
                    turn.last = Some(behind.map_or(LastAsk::Decides, LastAsk::IsRefused));
                }
            }
            asks.update_rules(|policy| self.current_rule(policy));
            let list = asks.to_list();
            if turn.last.is_none()
                && let Some(index) = self.ahead_of(turn, &list)
                && self.wait_for(turn, &list, index)
            {
                continue;
            }
            match self.ask_at_turn(turn, &list) {
                // The timer and the line are polled once before anything wakes this task.
                Begun::Waiting => {}
                begun => return Poll::Ready(begun),
            }
        }
    }

    /// Returns the first limit for which an older call waits in another line than this one does.
    fn ahead_of(&self, turn: &Turn, asks: &[Ask<'_, L::Rule>]) -> Option<usize> {
        let (lines, own) = (self.lines.as_ref()?, turn.waiting.as_ref());
        asks.iter().position(|ask| {
            let line = lines.line_of(ask.policy(), ask.key());
            let is_older = |first| own.is_none_or(|own| first < own.ticket);
            self.may_wait(ask)
                && own.is_none_or(|own| own.place.line() != line)
                && lines.first_in(line).is_some_and(is_older)
        })
    }

    /// Returns the limit in whose line this call waits behind others.
    fn behind_of(&self, turn: &Turn, asks: &[Ask<'_, L::Rule>]) -> Option<usize> {
        let lines = self.lines.as_ref()?;
        let waiting = turn.waiting.as_ref().filter(|own| !own.place.is_first())?;
        let line = |ask: &Ask<'_, _>| lines.line_of(ask.policy(), ask.key());
        asks.iter()
            .position(|ask| line(ask) == waiting.place.line())
    }

    /// Waits for the room of the limit with this index. Returns `false` if its line is full, or
    /// nothing can wait: then the next ask is the last one.
    fn wait_for(&self, turn: &mut Turn, asks: &[Ask<'_, L::Rule>], index: usize) -> bool {
        turn.last = Some(LastAsk::IsRefused(index));
        let Some(lines) = &self.lines else {
            return false;
        };
        let ask = &asks[index];
        let line = lines.line_of(ask.policy(), ask.key());
        let (units, most) = (ask.cost().get(), capacity(ask.rule()));
        match &mut turn.waiting {
            Some(waiting) if waiting.place.line() == line => waiting.look_again(),
            Some(waiting) => {
                let Some(place) = lines.join(line, waiting.ticket, units, most) else {
                    return false;
                };
                // Leaves the other line.
                (waiting.place, waiting.look) = (place, None);
            }
            None => {
                let waits = asks.iter().filter(|ask| self.may_wait(ask));
                let shortest = waits.filter_map(|ask| ask.rule().waits_for_turn()).min();
                let (at_most, ticket) = (shortest.unwrap_or_default(), lines.ticket());
                let joined = lines.join(line, ticket, units, most);
                let Some((place, end)) = joined.zip(timer(at_most)) else {
                    return false;
                };
                turn.waiting = Some(Waiting {
                    place,
                    ticket,
                    at_most,
                    end,
                    look: None,
                });
            }
        }
        turn.last = None;
        true
    }

    /// Returns `true` if a call waits for the room of a limit.
    fn may_wait(&self, ask: &Ask<'_, L::Rule>) -> bool {
        ask.rule().waits_for_turn().is_some()
            && self.role(ask) == Role::Acquire
            && ask.cost().get() <= capacity(ask.rule())
    }

    /// Returns the first limit that refuses a call, if calls wait for the room of all that do.
    fn refused_by_waits_alone(
        &self,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
    ) -> Option<usize> {
        let mut first = None;
        for (index, (ask, decision)) in asks.iter().zip(decisions.as_slice()).enumerate() {
            if decision.is_admitted() {
                continue;
            }
            let has_no_room = decision.verdict() == Verdict::Refuse
                && decision.is_in_flight()
                && !decision.is_of_block();
            if !has_no_room || !self.may_wait(ask) {
                return None;
            }
            first = first.or(Some(index));
        }
        first
    }

    /// Returns `true` if a look shows that limits refuse a call for whose room it does not wait.
    fn is_refused_by_others(&self, asks: &[Ask<'_, L::Rule>]) -> bool {
        // A late answer would have to be awaited. Without it, the call is refused at its turn.
        let Check::Ready(Ok(looks)) = self.store.look(asks) else {
            return false;
        };
        asks.iter().zip(looks.as_slice()).any(|(ask, look)| {
            let is_refused = !look.for_cost(ask.cost()).is_admitted();
            is_refused
                && self.role(ask) != Role::DryRun
                && (look.is_of_block() || !self.may_wait(ask))
        })
    }

    /// Returns decisions that were undone, of which the one with this index refuses, and those of
    /// the other limits are looks. Those of dry runs stand, as they do if another limit refuses.
    fn refused(&self, asks: &[Ask<'_, L::Rule>], decisions: &Decisions, index: usize) -> Decisions {
        // A late answer would have to be awaited. Without it, the numbers are those of the charge.
        let mut looks = match self.store.look(asks) {
            Check::Ready(Ok(looks)) => looks,
            Check::Ready(Err(_)) | Check::Pending(_) => decisions.clone(),
        };
        looks.complete(asks.len());
        let both = decisions.as_slice().iter().zip(looks.as_slice());
        let changed = |(n, (decision, look)): (usize, (&Decision, &Decision))| {
            if decision.is_dry_run() {
                return *decision;
            }
            if n != index {
                return look.without_charge();
            }
            let wait = decision.more_after();
            Decision::new(Verdict::Refuse, decision.at(), asks[n].cost().get())
                .with_rule_limit(decision.rule_limit())
                .with_retry_after(Some(wait))
                .with_reset_after(wait)
                .with_more_after(wait)
        };
        both.enumerate().map(changed).collect()
    }
}

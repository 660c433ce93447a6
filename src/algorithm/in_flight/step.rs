//! Steps and settlements: what calls hold.

use std::time::Duration;

use super::InFlight;
use crate::{
    algorithm::{
        Algorithm, Renewal, StateKind, Step,
        packed::{BuiltIn, Form, InWords, PackedKind, PackedState, StoreTime},
    },
    decision::{Charge, Cost, Decision, Numbers, Verdict},
    time::Timestamp,
};

impl InFlight {
    /// Returns `true` if calls hold units until the end of a span at the latest.
    #[inline]
    fn is_timed(&self) -> bool {
        self.lease.is_some() || self.max_hold.is_some()
    }

    /// Returns the end of the span that a charge at `at` lies in.
    #[inline]
    fn end_of(&self, at: Timestamp) -> Timestamp {
        let Some(hold) = self.lease.or(self.max_hold) else {
            return Timestamp::MAX;
        };
        let end = at.as_nanos().saturating_add(hold.get());
        let end = end.checked_next_multiple_of(span_of(hold.get()));
        Timestamp::from_nanos(end.unwrap_or(u64::MAX))
    }

    /// Returns the wait of a refusal at `now`.
    #[inline]
    fn wait(&self, now: Timestamp) -> Duration {
        const SECOND: u64 = 1_000_000_000;
        let nanos = self.retry_after.unwrap_or_else(|| {
            // Clients that are refused together retry at different times. 2⁶⁴ divided by the golden
            // ratio spreads the instants of their refusals.
            let spread = now.as_nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            SECOND / 2 + spread * SECOND / (1 << 32)
        });
        Duration::from_nanos(nanos)
    }

    /// Returns the units that are held with a call of this cost; `None` if it is refused.
    #[inline]
    pub(crate) fn admitted(&self, held: u64, cost: Cost) -> Option<u64> {
        let all = held.checked_add(cost.get())?;
        (all <= self.most.get()).then_some(all)
    }

    /// Returns the decision about a call of this cost.
    #[inline]
    pub(crate) fn decision(&self, held: u64, now: Timestamp, cost: Cost) -> Decision {
        let (verdict, held) = match self.admitted(held, cost) {
            Some(all) => (Verdict::Allow, all),
            None => (Verdict::Refuse, held),
        };
        self.answer(verdict, now, cost.get(), held)
    }

    /// Returns the units that are held once a charge is settled, under a rule without a maximal
    /// hold or a lease.
    #[inline]
    pub(crate) fn settled(held: u64, charge: &Charge, actual: u64) -> u64 {
        held.saturating_sub(charge.cost).saturating_add(actual)
    }

    /// Returns `true` if its states fit into a word each.
    #[inline]
    pub(crate) fn is_packed(&self) -> bool {
        !self.is_timed() && self.most.get() <= PackedState::MOST_HELD
    }

    #[inline]
    fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64, held: u64) -> Decision {
        let wait = self.wait(now);
        let until_less = if held > 0 { wait } else { Duration::ZERO };
        Decision::new(verdict, now, cost)
            .with_limit_in_flight(self.most)
            .with_retry_after((cost <= self.most.get()).then_some(wait))
            .with_numbers(Numbers {
                remaining: self.most.get().saturating_sub(held),
                reset_after: until_less,
                more_after: until_less,
            })
    }
}

/// Returns the length of the spans of a hold, in nanoseconds: a sixteenth, in whole microseconds if
/// it is that long.
pub(super) fn span_of(hold: u64) -> u64 {
    let span = (hold / 16).max(1);
    if span < 1000 {
        span
    } else {
        span - span % 1000
    }
}

/// Returns `true` unless a span is over. The last instant is no end.
fn is_to_come(end: Timestamp, now: Timestamp) -> bool {
    now < end || end == Timestamp::MAX
}

/// The units that calls hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InFlightState {
    /// Until they are given back.
    Untimed(u64),
    /// Until the end of a span at the latest. Ascending.
    #[expect(
        clippy::box_collection,
        reason = "a key without a maximal hold takes two words"
    )]
    Timed(Box<Vec<Span>>),
}

/// Units that are held until `end` at the latest, or for ever if that is the last instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub(super) end: Timestamp,
    pub(super) units: u64,
}

impl InFlightState {
    pub(super) fn spans(self) -> Vec<Span> {
        match self {
            Self::Untimed(units) => vec![Span {
                end: Timestamp::MAX,
                units,
            }],
            Self::Timed(spans) => *spans,
        }
    }

    /// Returns a state of spans that were read; `None` if nothing is held, or they do not ascend.
    pub(super) fn of_spans(spans: Vec<Span>) -> Option<Self> {
        let ascends = spans.windows(2).all(|two| two[0].end < two[1].end);
        let mut state = Some(Self::Timed(Box::new(spans)));
        Self::tidy(&mut state, Timestamp::default());
        state.filter(|_| ascends)
    }

    /// Removes what is over. If nothing is held then, there is no state.
    fn tidy(state: &mut Option<Self>, now: Timestamp) {
        let Some(Self::Timed(spans)) = state else {
            return;
        };
        spans.retain(|span| span.units > 0 && now < span.end);
        match spans.as_slice() {
            [] => *state = None,
            [Span { end, units }] if *end == Timestamp::MAX => *state = Some(Self::Untimed(*units)),
            _ => {}
        }
    }

    /// Returns the units that are held.
    #[inline]
    fn held(&self, now: Timestamp) -> u64 {
        match self {
            Self::Untimed(units) => *units,
            Self::Timed(spans) => {
                let held = spans.iter().filter(|span| now < span.end);
                held.fold(0, |sum, span| sum.saturating_add(span.units))
            }
        }
    }

    /// Changes the units of the span that ends at `end`.
    #[inline]
    fn change(
        state: &mut Option<Self>,
        end: Timestamp,
        now: Timestamp,
        change: impl FnOnce(u64) -> u64,
    ) {
        if let (None | Some(Self::Untimed(_)), Timestamp::MAX) = (&state, end) {
            let units = change(state.as_ref().map_or(0, |state| state.held(now)));
            *state = (units > 0).then_some(Self::Untimed(units));
            return;
        }
        Self::change_span(state, end, now, change);
    }

    #[inline(never)]
    fn change_span(
        state: &mut Option<Self>,
        end: Timestamp,
        now: Timestamp,
        change: impl FnOnce(u64) -> u64,
    ) {
        if !matches!(state, Some(Self::Timed(_))) {
            let spans = state.take().map_or_else(Vec::new, Self::spans);
            *state = Some(Self::Timed(Box::new(spans)));
        }
        let Some(Self::Timed(spans)) = state else {
            return;
        };
        let found = spans.binary_search_by_key(&end, |span| span.end);
        let index = found.unwrap_or_else(|index| {
            spans.insert(index, Span { end, units: 0 });
            index
        });
        spans[index].units = change(spans[index].units);
        Self::tidy(state, now);
    }
}

impl Algorithm for InFlight {
    type State = InFlightState;

    #[inline]
    fn step(&self, state: &mut Option<InFlightState>, now: Timestamp, cost: Cost) -> Step {
        let held = state.as_ref().map_or(0, |state| state.held(now));
        if self.admitted(held, cost).is_none() {
            return Step::Kept(self.decision(held, now, cost));
        }
        let add = |units: u64| units.saturating_add(cost.get());
        InFlightState::change(state, self.end_of(now), now, add);
        Step::Wrote(self.decision(held, now, cost))
    }

    fn look(&self, state: Option<&InFlightState>, now: Timestamp) -> Decision {
        let held = state.map_or(0, |state| state.held(now));
        let verdict = match held < self.most.get() {
            true => Verdict::Allow,
            false => Verdict::Refuse,
        };
        // Cost 0: a look charges nothing.
        self.answer(verdict, now, 0, held)
    }

    /// Gives back what the charge holds, unless its span is over, and holds the actual units from
    /// its departure on. So a charge that is settled to its own units at a later departure is
    /// renewed.
    #[inline]
    fn settle(
        &self,
        state: &mut Option<InFlightState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        if !self.is_timed() {
            let settled = |units: u64| Self::settled(units, charge, actual);
            return InFlightState::change(state, Timestamp::MAX, now, settled);
        }
        let (from, to) = (self.end_of(charge.at), self.end_of(charge.departs()));
        if is_to_come(from, now) {
            let less = |units: u64| units.saturating_sub(charge.cost);
            InFlightState::change(state, from, now, less);
        }
        let to = match charge.departs() > charge.at && !is_to_come(to, now) {
            // A clock that jumped must not lose what calls hold.
            true => self.end_of(now),
            false => to,
        };
        if actual > 0 && is_to_come(to, now) {
            let more = |units: u64| units.saturating_add(actual);
            InFlightState::change(state, to, now, more);
        }
    }

    /// A call that outlasts its maximal hold, or its lease, has given back its units already.
    #[inline]
    fn forgets(
        &self,
        _: Option<&InFlightState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        let is_changed = actual < charge.cost || charge.departs() > charge.at;
        // A charge at the first instant lies nowhere: a renewal of it was lost, and counted then.
        let is_somewhere = charge.cost > 0 && charge.at > Timestamp::default();
        self.is_timed() && is_changed && is_somewhere && !is_to_come(self.end_of(charge.at), now)
    }

    fn renewal(&self) -> Option<Renewal> {
        let lease = Duration::from_nanos(self.lease?.get());
        let max_hold = self.max_hold.map(|hold| Duration::from_nanos(hold.get()));
        Some(Renewal { lease, max_hold })
    }

    #[inline]
    fn forgettable_at(&self, state: &InFlightState) -> Timestamp {
        match state {
            InFlightState::Untimed(_) => Timestamp::MAX,
            InFlightState::Timed(spans) => {
                spans.last().map_or(Timestamp::default(), |span| span.end)
            }
        }
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        Self::STATES
    }

    /// Only a call that ends gives units back.
    fn grant_slack(&self) -> Option<u64> {
        None
    }

    fn waits_for_turn(&self) -> Option<Duration> {
        self.wait_at_most
            .map(|wait| Duration::from_nanos(wait.get()))
    }

    #[inline]
    fn built_in(&self) -> BuiltIn<'_, InFlightState> {
        BuiltIn::new(Form::InFlight(self), self)
    }
}

impl InWords<InFlightState> for InFlight {
    fn write_word(&self, state: &InFlightState, now: StoreTime) -> Option<PackedState> {
        match state {
            InFlightState::Untimed(units) if self.is_packed() => now.packed().then_holding(*units),
            _ => None,
        }
    }

    /// Reads no debt: nobody inherits what calls hold.
    fn read_word(
        &self,
        packed: PackedState,
        packed_kind: PackedKind,
        _: StoreTime,
    ) -> Option<InFlightState> {
        let holds = packed_kind.is_in_flight() && packed.held() > 0;
        holds.then(|| InFlightState::Untimed(packed.held()))
    }
}

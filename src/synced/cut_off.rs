//! What a node admits while it cannot reach the store.

use std::{num::NonZeroU64, time::Duration};

use super::traffic::Traffic;
use crate::{
    algorithm::Syncable,
    decision::{Charge, Cost, Decision},
    error::Error,
    quota::Quota,
    time::Timestamp,
};

/// The part of a key's limit by which a node decides while it cannot reach the store.
///
/// It begins with an equal part of what remains. If the node admitted more or less than an equal part lately, it goes on doing so, less and less: what a
/// part of the rate that drifts to the equal one has more or less in all is added or taken once. So no part needs to change with time.
#[derive(Clone, Debug)]
pub(super) struct CutOff<Rule: Syncable> {
    part: Rule,
    state: Option<Rule::State>,
    /// Units above the equal part.
    above: u64,
    /// That of the whole rule, which clients see.
    limit: Option<(NonZeroU64, Quota)>,
}

impl<Rule: Syncable> CutOff<Rule> {
    /// The part of one of so many nodes that know a key in this state.
    ///
    /// # Errors
    ///
    /// When the limit is smaller than the number of nodes.
    pub(super) fn new(
        (rule, view): (&Rule, Option<&Rule::State>),
        at: Timestamp,
        traffic: &Traffic,
        (nodes, drift): (u64, Duration),
    ) -> Result<Self, Error> {
        let part = rule.part_of(nodes)?;
        let look = rule.look(view, at);
        let (above, below) = traffic.beside_equal_part(&look, nodes, drift);
        let used = rule.used_of_part(&part, view, at, nodes);
        let spent = used.saturating_add(below);
        let mut state = None;
        part.settle(&mut state, &Charge::new(at, 0), at, spent);
        Ok(Self {
            part,
            state,
            above,
            limit: look.shown(),
        })
    }

    /// Decides a call. Returns `None` for an admission by what the node has above its equal part.
    pub(super) fn acquire(&mut self, at: Timestamp, cost: Cost) -> Option<Decision> {
        let decision = self.part.step(&mut self.state, at, cost).decision();
        if decision.is_admitted() || self.above < cost.get() {
            return Some(decision.shown_as(self.limit));
        }
        self.above -= cost.get();
        None
    }

    /// Returns the decision of a call of one unit.
    pub(super) fn look(&self, at: Timestamp) -> Decision {
        self.part.look(self.state.as_ref(), at).shown_as(self.limit)
    }
}

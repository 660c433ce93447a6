//! The share of a rule that a node admits while it cannot reach the store.
//!
//! An offline node goes on by an equal share of what it last knew to remain, and of the rate. Not
//! by its share of the traffic: on a key that is used up, the states that the store returns do not
//! show what others admit, so each node would take most of it for its own; ten nodes admitted more
//! than two limits that way. Shares sum up to the limit if all nodes know the same; of what a node
//! had not heard it admits its share once more.
//!
//! To admit no more than U and the refill would keep the bound to the unit, and refuse most
//! requests of clients that are far below their limit, when the outage begins. Of several rules a
//! share begins by the one of which it has least, because one charge goes to all of them. Calls
//! that a silent store may still decide are not waited for in an outage: the caller would get an
//! error for each of them but the last.

use crate::{
    algorithm::Syncable,
    decision::{Charge, Cost, Decision, RuleLimit},
    time::Timestamp,
};

/// The share of a key's limit by which a node decides while it cannot reach the store: an equal
/// part of what remains, and of the rate.
///
/// Not the share of the traffic that the node had: what others admit of a key that is used up shows
/// only in part, and shares that nodes measure at different times may add up to more than all.
#[derive(Clone, Debug)]
pub(super) struct OfflineShare<Rule: Syncable> {
    /// `None` if the last rule has no share.
    part: Option<Rule>,
    state: Option<Rule::State>,
    nodes: u64,
    /// That of the whole rule, which clients see.
    limit: Option<RuleLimit>,
}

impl<Rule: Syncable> OfflineShare<Rule> {
    /// The share of one of so many nodes that know a key in this state; `None` if the limit is
    /// smaller than their number.
    pub(super) fn new(
        known: (&Rule, Option<&Rule::State>),
        at: Timestamp,
        nodes: u64,
    ) -> Option<Self> {
        let mut share = Self {
            part: None,
            state: None,
            nodes,
            limit: None,
        };
        share.come_under(known, at);
        share.part.is_some().then_some(share)
    }

    /// Goes on under another rule. What was spent of the share stays spent: dealt anew each time
    /// that rules take turns, shares would add up to what remains. Of a rule under which less
    /// remains, it is no more than an equal part of that.
    pub(super) fn come_under(
        &mut self,
        (rule, state_of_key): (&Rule, Option<&Rule::State>),
        at: Timestamp,
    ) {
        self.part = rule.node_share(1, self.nodes.max(1)).ok();
        self.limit = rule.look(None, at).rule_limit();
        if let Some(part) = &self.part {
            let used = rule.used_of_share(state_of_key, at, self.nodes);
            let known = part.used_of_share(self.state.as_ref(), at, 1);
            let more = used.saturating_sub(known);
            part.settle(&mut self.state, &Charge::new(at, 0), at, more);
        }
    }

    /// Decides a call; `None` without a share.
    pub(super) fn acquire(&mut self, at: Timestamp, cost: Cost) -> Option<Decision> {
        let step = self.part.as_ref()?.step(&mut self.state, at, cost);
        let decision = step.decision().with_rule_limit(self.limit);
        Some(match decision.is_admitted() {
            // The store does not know the time axis of a share.
            true => decision.without_position(),
            // It ends with the outage, so nobody remembers it.
            false => decision.of_fallback(),
        })
    }

    /// Returns the decision of a call of one unit; `None` without a share.
    pub(super) fn look(&self, at: Timestamp) -> Option<Decision> {
        let look = self.part.as_ref()?.look(self.state.as_ref(), at);
        Some(look.with_rule_limit(self.limit))
    }

    /// Returns how many units of the key this node may add to what all others admit, beside what is
    /// refilled.
    pub(super) fn most(&self) -> u64 {
        let whole = |part: &Rule| part.look(None, Timestamp::default()).limit();
        self.part.as_ref().and_then(whole).unwrap_or(0)
    }
}

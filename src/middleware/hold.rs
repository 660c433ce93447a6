//! The permit of a request: what its limits of calls in flight have charged.

use std::sync::Arc;

use super::{config::Config, limits::Limits};
use crate::{
    algorithm::Algorithm,
    decision::{Decision, Decisions},
    permit::{Permit, Release, Timing},
    store::Ask,
};

#[expect(private_bounds, reason = "the methods are private, too")]
impl<L, S, R> Config<L, S, R>
where
    L: Limits<Rule: Algorithm>,
    Self: Release + 'static,
{
    /// Returns what a request holds, `None` if that is nothing: what it was charged by limits of
    /// calls in flight, also if another limit refuses it, as a limit on a dry run charges by
    /// itself.
    #[inline(always)]
    pub(super) fn hold(
        self: &Arc<Self>,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
    ) -> Option<Permit> {
        if !decisions.as_slice().iter().any(Decision::is_held) {
            return None;
        }
        self.permit(asks, decisions)
    }

    // Apart, to keep it out of the path of calls that hold nothing.
    #[inline(never)]
    fn permit(
        self: &Arc<Self>,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
    ) -> Option<Permit> {
        let held = || {
            let decided = asks.iter().zip(decisions.as_slice());
            decided.filter_map(|(ask, decision)| Some((ask, decision.held_charge()?)))
        };
        let mut permit = None;
        for (ask, charge) in held() {
            let timing = Timing::of(ask.rule(), &charge, self.observer.is_some());
            let one = Permit::new(self.clone(), self.charged_limit(ask), charge, timing);
            permit = Permit::of_both(permit, Some(one));
        }
        // Now that it is given back whatever happens.
        if let Some(observer) = &self.observer {
            for (ask, charge) in held() {
                observer.held(ask.policy(), ask.key(), charge.cost);
            }
        }
        permit
    }
}

//! The permit of a request: what its limits of calls in flight have charged.

use std::sync::Arc;

use super::{config::Config, limits::Limits, settle::charged_limit};
use crate::{
    algorithm::Algorithm,
    decision::{Decision, Decisions},
    permit::{Permit, Release, Timing},
    store::Ask,
};

/// Returns what a request holds, `None` if that is nothing: what it was charged by limits of calls
/// in flight, also if another limit refuses it, as a limit on a dry run charges by itself.
#[inline(always)]
pub(super) fn hold<L, S, R>(
    config: &Arc<Config<L, S, R>>,
    asks: &[Ask<'_, L::Rule>],
    decisions: &Decisions,
) -> Option<Permit>
where
    L: Limits<Rule: Algorithm>,
    Config<L, S, R>: Release + 'static,
{
    let holds = decisions.as_slice().iter().any(Decision::is_held);
    holds.then(|| permit(config, asks, decisions))
}

// Apart, to keep it out of the path of calls that hold nothing.
#[inline(never)]
fn permit<L, S, R>(
    config: &Arc<Config<L, S, R>>,
    asks: &[Ask<'_, L::Rule>],
    decisions: &Decisions,
) -> Permit
where
    L: Limits<Rule: Algorithm>,
    Config<L, S, R>: Release + 'static,
{
    let asked = asks.iter().zip(decisions.as_slice());
    let held = asked.filter(|(_, decision)| decision.is_held());
    let mut permit = None;
    for (ask, decision) in held.clone() {
        if let Some(charge) = decision.charge() {
            let layer = Arc::<Config<L, S, R>>::clone(config);
            let timing = Timing::of(ask.rule(), &charge, config.observer.is_some());
            let one = Permit::new(layer, charged_limit(config, ask), charge, timing);
            permit = Permit::of_both(permit, Some(one));
        }
    }
    let permit = permit.unwrap_or_else(Permit::nothing);
    // Now that it is given back whatever happens.
    if config.observer.is_some() {
        for (ask, _) in held {
            config.observe_held(ask.policy(), ask.key(), ask.cost().get());
        }
    }
    permit
}

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
    if !decisions.as_slice().iter().any(Decision::is_held) {
        return None;
    }
    permit(config, asks, decisions)
}

// Apart, to keep it out of the path of calls that hold nothing.
#[inline(never)]
fn permit<L, S, R>(
    config: &Arc<Config<L, S, R>>,
    asks: &[Ask<'_, L::Rule>],
    decisions: &Decisions,
) -> Option<Permit>
where
    L: Limits<Rule: Algorithm>,
    Config<L, S, R>: Release + 'static,
{
    let held = || {
        let decisions = decisions.as_slice().iter().enumerate();
        decisions.filter_map(|(index, decision)| Some((asks.get(index)?, decision.held_charge()?)))
    };
    let mut permit = None;
    for (ask, charge) in held() {
        let layer = Arc::<Config<L, S, R>>::clone(config);
        let timing = Timing::of(ask.rule(), &charge, config.observer.is_some());
        let one = Permit::new(layer, charged_limit(config, ask), charge, timing);
        permit = Permit::of_both(permit, Some(one));
    }
    // Now that it is given back whatever happens.
    if let Some(observer) = &config.observer {
        for (ask, charge) in held() {
            observer.held(ask.policy(), ask.key(), charge.cost);
        }
    }
    permit
}

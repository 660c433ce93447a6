//! The permit of a request: what its limits of calls in flight have charged.

use std::sync::Arc;

use super::{config::Config, limits::Limits, settle::charged_limit};
use crate::{
    algorithm::Algorithm,
    decision::{Decision, Decisions},
    permit::{Permit, Release},
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
    let held = || {
        let asked = asks.iter().zip(decisions.as_slice());
        asked.filter(|(_, decision)| decision.is_held())
    };
    let charge = |(ask, decision): (&Ask<'_, L::Rule>, &Decision)| {
        let charge = decision.charge()?;
        Some((charged_limit(config, ask), charge, ask.rule().renewal()))
    };
    let charges = held().filter_map(charge);
    let permit = Permit::new(Arc::<Config<L, S, R>>::clone(config), charges);
    // Now that it is given back whatever happens.
    for (ask, _) in held() {
        config.observe_held(ask.policy(), ask.key(), ask.cost().get());
    }
    permit
}

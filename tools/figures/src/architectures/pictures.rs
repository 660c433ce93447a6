//! The pictures of the fleet. Those of background synchronisation are of their own, because so many
//! lines are hard to tell apart.

use super::{kind::Kind, score::Score};
use crate::chart::{Axis, Line, Panel, Picture, Series};

/// The architectures of a picture.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// All but background synchronisation.
    Others,
    /// Background synchronisation, beside those that it is chosen from.
    Synced,
}

impl Shown {
    fn kinds(self) -> impl Iterator<Item = Kind> {
        let is_shown = move |kind: &Kind| match self {
            Self::Others => !kind.is_synced(),
            Self::Synced => {
                let beside = [Kind::Central, Kind::Leases, Kind::Aggregates, Kind::NoSync];
                kind.is_synced() || beside.contains(kind)
            }
        };
        Kind::ALL.into_iter().filter(is_shown)
    }
}

/// Draws numbers over nodes.
pub(super) fn by_nodes(title: &str, shown: Shown, scores: &[Score]) -> Picture {
    let most = scores
        .iter()
        .map(|score| score.nodes as f64)
        .fold(1.0, f64::max);
    let axis = Axis::log("nodes", 1.0, most.max(10.0));
    picture((title, shown), scores, &axis, &|score| score.nodes as f64)
}

/// Draws numbers over the load.
pub(super) fn by_load(title: &str, shown: Shown, scores: &[Score]) -> Picture {
    let load = |score: &Score| score.load as f64 / 1e6;
    let most = scores.iter().map(load).fold(1.0, f64::max);
    let least = scores.iter().map(load).fold(1.0, f64::min);
    let axis = Axis::log(
        "load of a greedy key, as a multiple of its limit",
        least,
        most.max(10.0),
    );
    picture((title, shown), scores, &axis, &load)
}

/// Architectures of one colour differ by their lines.
fn style(kind: Kind) -> (usize, Line) {
    match kind {
        Kind::Central => (0, Line::Solid),
        Kind::Leases => (3, Line::Solid),
        Kind::Synced50ms => (8, Line::Solid),
        Kind::Synced200ms => (8, Line::Dashed),
        Kind::Synced1s => (8, Line::Dotted),
        Kind::Kafka20ms => (9, Line::Solid),
        Kind::Kafka500ms => (9, Line::Dashed),
        Kind::Lock => (2, Line::Solid),
        Kind::GetThenSet => (2, Line::Dashed),
        Kind::StickyModulo => (5, Line::Solid),
        Kind::StickyRendezvous => (5, Line::Dashed),
        Kind::Balancers => (7, Line::Solid),
        Kind::Broadcast => (4, Line::Solid),
        Kind::Aggregates => (6, Line::Solid),
        Kind::NoSync => (1, Line::Solid),
    }
}

fn picture(
    (title, shown): (&str, Shown),
    scores: &[Score],
    axis: &Axis,
    at: &dyn Fn(&Score) -> f64,
) -> Picture {
    let mut picture = Picture::new(title);
    let panel = |title: &str, y: Axis, of: &dyn Fn(&Score) -> f64| {
        let mut panel = Panel::new(title, axis.clone(), y);
        for kind in shown.kinds() {
            let of_kind = scores.iter().filter(|score| score.kind == kind);
            let points = of_kind.map(|score| (at(score), of(score)));
            let (colour, line) = style(kind);
            panel.series(Series::new(kind.name(), colour, line, points.collect()));
        }
        panel
    };
    let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    picture.panel(panel(
        "Over-admission: calls above what the limit allows, for each call that one exact limiter admits",
        Axis::log("calls", 0.001, 1000.0),
        &|score| ratio(score.over_admitted, score.exact),
    ));
    if shown == Shown::Synced {
        let mut overshoot = panel(
            "Overshoot: the most units by which the admissions of a key exceed its limit at any time",
            Axis::log("units", 0.1, 10_000.0),
            &|score| score.overshoot as f64,
        );
        let bounded = scores.iter().filter(|score| score.kind == Kind::Synced1s);
        let bounds = bounded.filter_map(|score| Some((at(score), score.overshoot_bound? as f64)));
        let bounds = bounds.collect();
        overshoot.series(Series::new("bound of synced", 8, Line::Dots, bounds));
        picture.panel(overshoot);
    }
    picture.panel(panel(
        "Under-admission: units of the limit that no call got",
        Axis::linear("part of the limit", 0.0, 1.0),
        &|score| ratio(score.withheld, score.exact),
    ));
    picture.panel(panel(
        "Wrong refusals: calls that one exact limiter admits, and that were refused or not answered in time",
        Axis::linear("part of the limit", 0.0, 1.0),
        &|score| ratio(score.wrongly_refused, score.exact),
    ));
    picture.panel(panel(
        "Calls to the store for each decision",
        Axis::linear("calls", 0.0, 2.5),
        &|score| ratio(score.store_calls, score.offered),
    ));
    picture.panel(panel(
        "Messages for each decision",
        Axis::log("messages", 0.001, 1000.0),
        &|score| ratio(score.messages, score.offered),
    ));
    let milliseconds = |nanos: u64| nanos as f64 / 1e6;
    picture.panel(panel(
        "Latency: half of the calls wait at most",
        Axis::log("milliseconds", 0.001, 100.0),
        &|score| milliseconds(score.p50),
    ));
    picture.panel(panel(
        "Latency: 99 of 100 calls wait at most",
        Axis::log("milliseconds", 0.001, 100.0),
        &|score| milliseconds(score.p99),
    ));
    picture
}

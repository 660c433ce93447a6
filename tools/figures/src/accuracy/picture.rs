//! The curves of the counts, and the errors by the number of slices.

use tollgate::Quota;

use super::{estimates::Estimates, estimator::UNITS, traffic::Traffic};
use crate::chart::{Axis, Line, Panel, Picture, Series};

/// The windows that the curves show, of which the first has begun at the beginning of the second
/// part.
const SHOWN: u64 = 8;
const SKIPPED: u64 = 10;

/// The estimators on the curves: index, name in the legend, colour.
const CURVES: [(usize, &str, usize); 4] = [
    (1, "fixed window", 1),
    (2, "weighted 1 + 1", 4),
    (4, "weighted 4 + 1", 3),
    (0, "perfect", 0),
];

pub(super) fn draw(limit: Quota, drawn: &[(Traffic, Estimates)]) -> Picture {
    let title = format!(
        "The count of calls in the last window under {limit}, right after each call; nothing is refused"
    );
    let mut picture = Picture::new(&title);
    for (traffic, estimates) in drawn {
        picture.panel(curves(limit, traffic, estimates));
    }
    picture.panel(errors(drawn));
    picture
}

fn curves(limit: Quota, traffic: &Traffic, estimates: &Estimates) -> Panel {
    let window = limit.period().as_millis() as u64;
    // Short traffic is shown from its beginning.
    let last = estimates.calls.last().copied().unwrap_or(0);
    let begin = if last > (SKIPPED + SHOWN) * window {
        SKIPPED * window
    } else {
        estimates.calls.first().copied().unwrap_or(0) / window * window
    };
    let end = begin + SHOWN * window;
    let shown = |number: &usize| (begin..end).contains(&estimates.calls[*number]);
    let shown: Vec<_> = (0..estimates.calls.len()).filter(shown).collect();
    let calls =
        |estimator: usize, number: usize| estimates.counts[estimator][number] as f64 / UNITS as f64;
    let all = CURVES
        .iter()
        .flat_map(|curve| shown.iter().map(|number| calls(curve.0, *number)));
    let most = all.fold(limit.amount() as f64, f64::max);
    let windows = |millis: u64| millis as f64 / window as f64;
    let mut panel = Panel::new(
        traffic.title(),
        Axis::linear(
            &format!(
                "windows of the calendar, of {} s each",
                limit.period().as_secs_f64()
            ),
            windows(begin),
            windows(end),
        ),
        Axis::linear("calls in the window", 0.0, most * 1.05),
    );
    for (estimator, name, colour) in CURVES {
        let point = |number: &usize| (windows(estimates.calls[*number]), calls(estimator, *number));
        let points = shown.iter().map(point).collect();
        panel.series(Series::new(name, colour, Line::Solid, points));
    }
    let line = vec![
        (windows(begin), limit.amount() as f64),
        (windows(end), limit.amount() as f64),
    ];
    panel.series(Series::new("limit", 7, Line::Dashed, line));
    panel
}

/// Draws the mean errors of the weighted windows.
fn errors(drawn: &[(Traffic, Estimates)]) -> Panel {
    const SLICES: [f64; 5] = [1.0, 2.0, 4.0, 12.0, 60.0];
    let mut lines = Vec::new();
    for (traffic, estimates) in drawn {
        let errors = (2..).zip(SLICES);
        let errors = errors.map(|(index, slices)| (slices, 100.0 * estimates.summary(index).error));
        lines.push((traffic.name, errors.collect::<Vec<_>>()));
    }
    let all = lines.iter().flat_map(|(_, points)| points);
    let most = all.map(|(_, error)| *error).fold(0.001, f64::max);
    let mut panel = Panel::new(
        "Mean absolute error of the weighted windows",
        Axis::log("slices in the window", 1.0, 100.0),
        Axis::linear("% of the perfect count", 0.0, most * 1.05),
    );
    for ((name, points), colour) in lines.into_iter().zip([2, 4, 3]) {
        panel.series(Series::new("", colour, Line::Dots, points.clone()));
        panel.series(Series::new(name, colour, Line::Solid, points));
    }
    panel
}

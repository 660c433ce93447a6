//! The items per tenth of a second, a panel for each rule.

use super::{Pacing, scenario::Scenario, worker::Run};
use crate::chart::{Axis, Line, Panel, Picture, Series};

pub(super) fn draw(of: &Pacing, scenario: &Scenario, runs: &[(&str, Run)]) -> Picture {
    let title = format!("{} items at {}, {}", of.items, of.rate, scenario.title());
    let mut picture = Picture::new(&title);
    let all = || runs.iter().map(|(_, run)| run);
    let most = all()
        .flat_map(|run| &run.tenths)
        .max()
        .copied()
        .unwrap_or(1);
    let end = all().map(|run| run.tenths.len()).max().unwrap_or(1);
    for (number, (name, run)) in runs.iter().enumerate() {
        let is_last = number + 1 == runs.len();
        let x = if is_last {
            "seconds since the launch"
        } else {
            ""
        };
        let mut panel = Panel::new(
            &format!(
                "{}: {} in any second at most, done after {:.2} s",
                name.replace('_', " "),
                run.most,
                run.finish.as_secs_f64()
            ),
            Axis::linear(x, 0.0, end as f64 / 10.0),
            Axis::linear("items in 0.1 s", 0.0, most as f64 * 1.05),
        )
        .height(if is_last { 186 } else { 160 });
        let items = |tenth: usize| run.tenths.get(tenth).copied().unwrap_or(0) as f64;
        let points = (0..=end).map(|tenth| (tenth as f64 / 10.0, items(tenth)));
        panel.series(Series::new("", number + 1, Line::Steps, points.collect()));
        picture.panel(panel);
    }
    picture
}

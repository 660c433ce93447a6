//! Texts that are no rule, or no rule for drawn traffic.

use playground::{Axis, simulate};
use tollgate::AnyRule;

const AXIS: Axis = Axis {
    width_ms: 1000,
    columns: 4,
};

fn error(text: &str) -> String {
    simulate(text, &[0], AXIS).unwrap_err()
}

#[test]
fn the_message_is_that_of_the_crate() {
    for text in [
        "",
        "token-bucket 100/1m brust=150",
        "token-bucket 10/s &",
        "token-bucket 10/s & in-flight 8",
    ] {
        let expected = text.parse::<AnyRule>().unwrap_err();
        assert_eq!(error(text), expected.to_string());
    }
}

#[test]
fn calls_in_flight_have_no_end_to_draw() {
    let expected = "`in-flight 8` counts calls in flight: expected a rule of a rate, because drawn requests have no end; \
                    draw another rule, as in `token-bucket 10/s burst=20`";
    assert_eq!(error("in-flight 8"), expected);
}

/// A store would choose the offset by the key; without one, all windows would begin at time 0.
#[test]
fn spread_windows_begin_where_those_of_the_client_do() {
    let report = simulate("fixed-window 5/1h offset=spread", &[0], AXIS).unwrap();
    let edge = report.windows[0].edge.unwrap();
    assert!(!edge.is_zero());
    assert_eq!(simulate(&report.rule, &[0], AXIS).unwrap(), report);
}

#[test]
fn requests_after_the_axis_are_in_no_column() {
    let report = simulate("fixed-window 1/1s", &[u32::MAX, 3999, 4000], AXIS).unwrap();
    assert_eq!(report.totals.at_once, 3);
    let arrived = report.columns.iter().map(|column| column.arrived.at_once);
    assert_eq!(arrived.collect::<Vec<_>>(), [0, 0, 0, 1]);
}

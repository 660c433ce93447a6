//! A report as JSON, which the page reads.

use std::time::Duration;

use serde_json::{Value, json};

use crate::report::{Report, Totals, Window};

/// Returns the report, or an object with the error alone. Waits are in milliseconds, and `null` for
/// those without an end.
pub(crate) fn write(result: &Result<Report, String>) -> String {
    let value = match result {
        Ok(report) => of_report(report),
        Err(error) => json!({ "error": error }),
    };
    value.to_string()
}

fn of_report(report: &Report) -> Value {
    let column = |count: fn(&crate::Column) -> u64| -> Vec<u64> {
        report.columns.iter().map(count).collect()
    };
    let windows: Vec<_> = report.windows.iter().map(of_window).collect();
    let Totals {
        at_once,
        delayed,
        refused,
    } = report.totals;
    json!({
        "rule": report.rule,
        "capacity": report.capacity,
        "mayDelay": report.may_delay,
        "atOnce": at_once,
        "delayed": delayed,
        "refused": refused,
        "longestDelay": ms(report.longest_delay),
        "longestRetryAfter": report.longest_retry_after.and_then(ms),
        "windows": windows,
        "columns": {
            "atOnce": column(|column| column.arrived.at_once),
            "delayed": column(|column| column.arrived.delayed),
            "refused": column(|column| column.arrived.refused),
            "passed": column(|column| column.passed),
            "waiting": column(|column| column.waiting),
            "remaining": column(|column| column.remaining),
        },
    })
}

fn of_window(window: &Window) -> Value {
    json!({
        "rule": window.rule,
        "amount": window.quota.amount(),
        "periodMs": ms(window.quota.period()),
        "most": window.most,
        "within": window.within,
        "edge": window.edge.and_then(ms),
    })
}

/// Returns milliseconds, to the nanosecond as far as a double can.
fn ms(wait: Duration) -> Option<f64> {
    (wait < Duration::MAX).then_some(wait.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{ms, write};
    use crate::{Axis, simulate};

    const AXIS: Axis = Axis {
        width_ms: 500,
        columns: 3,
    };

    fn read(text: &str, arrivals: &[u32]) -> serde_json::Value {
        serde_json::from_str(&write(&simulate(text, arrivals, AXIS))).unwrap()
    }

    #[test]
    fn a_report_has_all_numbers() {
        let json = read("fixed-window 2/1s offset=250ms", &[0, 0, 0, 1000]);
        let expected = json!({
            "rule": "fixed-window 2/s offset=250ms",
            "capacity": 2,
            "mayDelay": false,
            "atOnce": 3,
            "delayed": 0,
            "refused": 1,
            "longestDelay": 0.0,
            "longestRetryAfter": 250.0,
            "windows": [{
                "rule": "fixed-window 2/s offset=250ms",
                "amount": 2,
                "periodMs": 1000.0,
                "most": 2,
                "within": [2, 2, 1],
                "edge": 250.0,
            }],
            "columns": {
                "atOnce": [2, 0, 1],
                "delayed": [0, 0, 0],
                "refused": [1, 0, 0],
                "passed": [2, 0, 1],
                "waiting": [0, 0, 0],
                "remaining": [2, 2, 2],
            },
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn an_error_is_alone() {
        let json = read("\"", &[]);
        assert_eq!(json.as_object().unwrap().len(), 1);
        let error = json["error"].as_str().unwrap();
        assert!(error.contains("unknown algorithm `\"`"), "{error}");
    }

    #[test]
    fn a_wait_without_end_is_null() {
        assert_eq!(ms(Duration::MAX), None);
        assert_eq!(ms(Duration::from_micros(1500)), Some(1.5));
    }
}

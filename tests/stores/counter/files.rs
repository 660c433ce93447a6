//! Files of limits on counters: rules that they cannot run, and what a reload keeps.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use tollgate::{AnyRule, config::RouteLimits, store::StoreExt, time::ManualClock};
use tower::{Layer, ServiceExt, service_fn};

use super::{Node, cache::Cache, node, rules::OTHERS};

/// A file with one limit.
fn file(rule: &str) -> String {
    format!(
        "limits.api = {{ rule = \"{rule}\", key = \"header x-client\" }}\ndefault.limits = [\"api\"]"
    )
}

#[tokio::test]
async fn a_file_with_another_rule_is_refused() {
    let clock = ManualClock::default();
    let store: Node<AnyRule> = node(&Cache::new(&clock), &clock);
    let builder = RouteLimits::<String, _, _, String>::builder().store(store.fail_closed());
    let limits = builder.build(&file("fixed-window 5/1h")).unwrap();
    for text in OTHERS {
        let error = limits.reload(&file(text)).unwrap_err().to_string();
        assert!(error.contains("counters cannot run"), "{error}");
    }
    assert_eq!((limits.reloads().taken, limits.reloads().failed), (0, 9));
}

/// Returns how many calls of a client pass before and after a reload, and the report of the reload.
async fn reload(old: &str, new: &str) -> ([u64; 2], String) {
    let clock = ManualClock::default();
    let store: Node<AnyRule> = node(&Cache::new(&clock), &clock);
    let builder = RouteLimits::<String, _, _, String>::builder().store(store.fail_closed());
    let limits = builder.build(&file(old)).unwrap();
    let admitted = async || {
        let mut admitted = 0;
        for _ in 0..10 {
            let service = limits.layer(service_fn(async |_: Request<String>| {
                Ok::<_, Infallible>(Response::new(String::new()))
            }));
            let request = Request::builder().header("x-client", "alice");
            let request = request.body(String::new()).unwrap();
            let response = service.oneshot(request).await.unwrap();
            admitted += u64::from(response.status() == StatusCode::OK);
        }
        admitted
    };
    let before = admitted().await;
    let report = limits.reload(&file(new)).unwrap().to_string();
    ([before, admitted().await], report)
}

/// The report of a reload says for each change of windows what a client gets that has spent all.
#[tokio::test]
async fn a_report_of_a_file_says_which_windows_are_counted_anew() {
    let fixed: &[(&str, u64)] = &[
        ("fixed-window 5/1h", 5),
        ("fixed-window 8/1h", 8),
        ("fixed-window 8/2h", 8),
        ("fixed-window 8/1h offset=7m", 8),
        ("fixed-window 8/1h offset=spread", 8),
        ("fixed-window 5/1h offset=spread", 5),
    ];
    let sliding: &[(&str, u64)] = &[
        ("sliding-window 5/1h", 5),
        ("sliding-window 8/1h", 8),
        ("sliding-window 8/2h", 8),
        ("sliding-window 8/1h slices=2", 8),
    ];
    for rules in [fixed, sliding] {
        for (old, spent) in rules {
            for (new, limit) in rules.iter().filter(|(new, _)| new != old) {
                let (admitted, report) = reload(old, new).await;
                let begins_anew = "on a store of counters all its clients begin anew";
                let more = match report.contains(begins_anew) {
                    true => *limit,
                    false => limit.saturating_sub(*spent),
                };
                assert_eq!(admitted, [*spent, more], "{report}");
            }
        }
    }
}

//! Rules other than buckets.

use figures::Scenario;

use crate::shared::{at_least, named, run};

fn under(rule: &str) -> Scenario {
    Scenario {
        rule: rule.parse().expect("a rule"),
        ..named("hot-8")
    }
}

#[test]
fn each_rule_is_kept() {
    // At least so many thousandths of what an exact limiter would admit.
    for (rule, part) in [
        ("fixed-window 1000/s", 950),
        ("sliding-window 1000/s", 900),
        ("sliding-window 1000/s slices=10", 650),
        ("sliding-log 1000/s", 800),
        ("token-bucket 1000/s & fixed-window 3000/3s", 900),
        ("token-bucket 1000/s & sliding-log 5000/5s", 800),
    ] {
        for seed in 1..=3 {
            let report = run(&Scenario {
                seed,
                ..under(rule)
            });
            println!("{rule}: {} of {}", report.admitted, report.exact);
            at_least(report.admitted, report.exact, part);
        }
    }
}

//! Two rules on one access log, compared with a recount of two separate replays.

use std::collections::HashSet;

use proptest::prelude::*;
use replay::{
    comparison::{ComparedRule, Comparison},
    engine::Call,
};
use tollgate::{AnyRule, Cost, Timestamp};

use crate::program::{End, TempFile, replay, under};

const RULES: [&str; 7] = [
    "token-bucket 1/10s burst=3",
    "token-bucket 2/10s",
    "leaky-bucket 1/5s queue=2",
    "fixed-window 3/30s",
    "fixed-window 1/30s offset=spread",
    "sliding-window 4/40s slices=4",
    "token-bucket 1/5s & fixed-window 4/1m",
];

fn compare(rules: [&str; 2], args: &[&str], input: impl AsRef<[u8]>) -> End {
    let rules = ["--rule", rules[0], "--compare", rules[1]];
    replay(&[&["--format=combined"], &rules[..], args].concat(), input)
}

/// Returns a line of a log.
fn line(second: u64, host: &str) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!("{host} - - [10/Oct/2000:13:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 1\n")
}

/// Returns the verdict on each request, of a run of the program under one rule.
fn verdicts(rule: &str, requests: &[(u64, u64)]) -> Vec<String> {
    let lines = requests
        .iter()
        .map(|(at, key)| format!("{},k{key},1\n", at * 1_000_000_000));
    let end = under(rule, lines.collect::<String>());
    let verdict = |line: &&str| line.split(',').nth(2).expect("a verdict").to_owned();
    end.clean().iter().map(verdict).collect()
}

/// Counts in the slow obvious way, from the verdicts of this rule and of the other one.
fn recount(requests: &[(u64, u64)], own: &[String], other: &[String]) -> ComparedRule {
    let of = |verdict: &str| own.iter().filter(|own| *own == verdict).count() as u64;
    let both = || requests.iter().zip(own).zip(other);
    let refused = both().filter(|((_, own), _)| *own == "deny");
    let keys: HashSet<_> = refused.clone().map(|(((_, key), _), _)| key).collect();
    ComparedRule {
        admitted: of("allow"),
        delayed: of("delay"),
        refused: of("deny"),
        refused_alone: refused.filter(|(_, other)| *other != "deny").count() as u64,
        refused_keys: keys.len() as u64,
    }
}

fn comparison(rules: [&str; 2], most: Option<usize>, requests: &[(u64, u64)]) -> Comparison {
    let rules = rules.map(|rule| rule.parse::<AnyRule>().expect("a rule"));
    let mut comparison = Comparison::new(rules, most);
    for (at, key) in requests {
        let key = format!("k{key}");
        let call = Call {
            at: Timestamp::from_nanos(at * 1_000_000_000),
            key: key.as_bytes(),
            class: None,
        };
        comparison.spend(call, Cost::ONE);
    }
    comparison
}

proptest! {
    // Each case starts two programs.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn the_counts_are_those_of_a_recount(
        rules in [0..RULES.len(), 0..RULES.len()],
        requests in prop::collection::vec((0..200_u64, 0..12_u64), 0..200),
    ) {
        let rules = rules.map(|index| RULES[index]);
        let [first, second] = rules.map(|rule| verdicts(rule, &requests));
        let expected = [
            recount(&requests, &first, &second),
            recount(&requests, &second, &first),
        ];
        let compared = comparison(rules, None, &requests);
        prop_assert_eq!(compared.rules(), expected);
        prop_assert!(compared.has_all_keys());
        // A sufficient maximum changes nothing.
        prop_assert_eq!(comparison(rules, Some(12), &requests).rules(), expected);
    }
}

#[test]
fn the_report_ends_with_the_comparison() {
    // The window admits two of each minute of the clock, the bucket one a minute after the last.
    let mut input = String::new();
    for (second, host) in [
        (0, "10.0.0.1"),
        (10, "10.0.0.1"),
        (20, "10.0.0.1"),
        (30, "10.0.0.2"),
        (50, "10.0.0.3"),
        (55, "10.0.0.3"),
        (56, "10.0.0.3"),
        (60, "10.0.0.1"),
        (70, "10.0.0.3"),
        (75, "10.0.0.3"),
    ] {
        input += &line(second, host);
    }
    let rule = "token-bucket 1/1m";
    let alone = replay(&["--format=combined", "--rule", rule], &input);
    let end = compare([rule, "fixed-window 2/1m"], &[], &input);
    assert_eq!((end.code, &*end.errors), (Some(0), ""));
    let rest = end.text().strip_prefix(alone.text());
    assert_eq!(
        rest.expect("the report without the comparison comes first"),
        "
Compared with fixed-window 2/1m, each rule as if alone

                                 --rule          --compare
  admitted                            4  40.0 %          8  80.0 %
  delayed                             0   0.0 %          0   0.0 %
  refused                             6  60.0 %          2  20.0 %
  refused, but not by the other       4  40.0 %          0   0.0 %
  keys refused at least once          2                  2
"
    );
}

#[test]
fn requests_that_only_the_other_rule_refuses_are_counted() {
    let input = [0, 1, 2, 60].map(|second| line(second, "::1")).concat();
    let rules = ["token-bucket 1/s", "leaky-bucket 1/1m queue=1"];
    let row = |end: &End, name: &str| -> Vec<String> {
        let part = end
            .text()
            .split("Compared with")
            .nth(1)
            .expect("a comparison");
        let line = part.lines().find(|line| line.trim().starts_with(name));
        let numbers = line.expect("a row").split_whitespace();
        let numbers = numbers.filter(|word| word.parse::<u64>().is_ok());
        numbers.map(str::to_owned).collect()
    };
    for (swapped, rules) in [(false, rules), (true, [rules[1], rules[0]])] {
        let end = compare(rules, &[], &input);
        for (name, mut expected) in [
            ("admitted", ["4", "1"]),
            ("delayed", ["0", "2"]),
            ("refused ", ["0", "1"]),
            ("refused, but", ["0", "1"]),
            ("keys refused", ["0", "1"]),
        ] {
            if swapped {
                expected.reverse();
            }
            assert_eq!(row(&end, name), expected, "{name}: {}", end.text());
        }
    }
}

#[test]
fn a_rule_compared_with_itself_differs_nowhere() {
    let requests: Vec<_> = (0..500).map(|n| (n / 3, n * n % 17)).collect();
    for rule in RULES {
        let [first, second] = comparison([rule, rule], None, &requests).rules();
        assert_eq!(first, second, "{rule}");
        assert!(first.refused > 0, "{rule}");
        assert_eq!(first.refused_alone, 0, "{rule}");
    }
}

/// The first rule's counts and the plot are those of a run without `--compare`.
#[test]
fn the_comparison_changes_no_plot() {
    let input: String = (0..200)
        .map(|n| line(n / 2, &format!("h{}", n % 7)))
        .collect();
    let files = ["one.svg", "two.svg"].map(TempFile::named);
    let rule = "token-bucket 1/10s burst=3";
    let alone = [
        "--format=combined",
        "--rule",
        rule,
        "--plot",
        files[0].path(),
    ];
    assert_eq!(replay(&alone, &input).code, Some(0));
    let other = compare(
        [rule, "fixed-window 1/1m"],
        &["--plot", files[1].path()],
        &input,
    );
    assert_eq!(other.code, Some(0));
    let [one, two] = files
        .each_ref()
        .map(|file| std::fs::read(&file.0).expect("a plot"));
    assert_eq!(one, two);
}

#[test]
fn a_limit_of_keys_is_reported() {
    let hosts = ["a", "a", "b", "b", "c", "c"];
    let input = hosts.map(|host| line(0, host)).concat();
    let end = compare(
        ["token-bucket 1/1m", "token-bucket 2/1m"],
        &["--keys=2"],
        input,
    );
    let (_, part) = end
        .text()
        .split_once("Compared with")
        .expect("a comparison");
    let rows: Vec<_> = part.lines().skip(3).map(str::trim).collect();
    assert_eq!(
        rows[3..],
        [
            "refused, but not by the other           2  33.3 %           0   0.0 %",
            "keys refused at least once     at least 2          at least 0",
            "turned away                             2                   2",
        ],
        "{part}"
    );
}

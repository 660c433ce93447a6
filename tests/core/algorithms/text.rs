//! The text of rules: an error names a column of the text, and a printed rule parses back.

use proptest::prelude::*;
use tollgate::{AnyRule, Error};

use crate::algorithms::spelling::{derived, written};

/// Every documented form.
const FORMS: [&str; 18] = [
    "token-bucket 100/1m burst=150 initial=300 keep=1h",
    "token-bucket 100/1m keep=1h",
    "token-bucket 1000/1s keep-free=200",
    "token-bucket 100/1m burst=150 keep-free=149 initial=300 keep=1h",
    "token-bucket 100/1m burst=150 initial=0",
    "leaky-bucket 10/s queue=50 max-wait=2s",
    "fixed-window 100/1m offset=10s",
    "fixed-window 100/1m offset=spread",
    "fixed-window 100/1m from=first-call",
    "sliding-window 100/1m slices=4",
    "sliding-log 100/1m",
    "warm-up 200/s over=10s cold=3",
    "warm-up-spaced 2/s over=4s cold=3 max-wait=5s",
    "warm-up-spaced 2/s over=4s cold=2.125 max-wait=4s",
    "cascade 10/s burst=10 > 5/s burst=20",
    "three-color 100/s burst=100 peak=200/s peak-burst=200 aware",
    "three-color 100/s peak=100/s aware given=yellow",
    "token-bucket 10/s & fixed-window 1000/1h",
];

/// Pieces that are valid in a rule, or are inserted into one.
const PIECES: [&str; 34] = [
    "",
    " ",
    "  ",
    "\t",
    "\n",
    "=",
    "==",
    "/",
    "&",
    ">",
    ".",
    "-",
    "0",
    "1",
    "9",
    "18446744073709551616",
    "1099511627776",
    "9223372036854775808",
    "s",
    "ns",
    "d",
    "burst=",
    "keep",
    "aware",
    "aware=1",
    "given=red",
    "offset=spread",
    "from=first-call",
    "token-bucket 1/s",
    "cold=1",
    "é",
    "\u{3000}",
    "\u{0}",
    "+1",
];

/// Checks that a printed rule parses to the same rule, and prints the same text again.
fn assert_prints_itself(rule: &AnyRule) {
    let printed = rule.to_string();
    let parsed = printed.parse::<AnyRule>();
    assert_eq!(parsed.as_ref(), Ok(rule), "{printed:?}");
    assert_eq!(parsed.unwrap().to_string(), printed);
}

fn check(text: &str) {
    match text.parse::<AnyRule>() {
        Ok(rule) => assert_prints_itself(&rule),
        Err(error) => {
            let column = error
                .column()
                .unwrap_or_else(|| panic!("{text:?}: no column: {error}"));
            assert!((1..=text.len() + 1).contains(&column), "{text:?}: {error}");
            assert!(text.is_char_boundary(column - 1), "{text:?}: {error}");
            let message = error.to_string();
            let does = message.contains(';') || message.contains("as in");
            assert!(message.contains("expected") && does, "{text:?}: {error}");
        }
    }
}

proptest! {
    #[test]
    fn nearly_valid_text_parses_or_is_an_error_at_a_column(
        form in prop::sample::select(&FORMS[..]), other in prop::sample::select(&FORMS[..]), joined in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..4_usize, prop::sample::select(&PIECES[..])), 0..4),
    ) {
        let mut text: Vec<char> = if joined { format!("{form}&{other}") } else { form.to_owned() }.chars().collect();
        for (place, taken, piece) in changes {
            let begin = place.index(text.len() + 1);
            let end = (begin + taken).min(text.len());
            text.splice(begin..end, piece.chars());
        }
        check(&text.into_iter().collect::<String>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_spelling_parses_to_the_rule(written in written(), number: u64) {
        prop_assert_eq!(written.text.parse(), Ok(written.rule.clone()), "{:?}", written.text);
        assert_prints_itself(&written.rule);
        for rule in derived(&written.rule, number) {
            assert_prints_itself(&rule);
        }
    }

    #[test]
    fn the_text_of_several_rules_parses_to_them(
        several in prop::collection::vec(written(), 2..=4), joint in prop::sample::select(&["&", " & ", "\t&\n"][..]),
    ) {
        let texts: Vec<_> = several.iter().map(|one| one.text.as_str()).collect();
        let rules: Vec<_> = several.iter().map(|one| one.rule.clone()).collect();
        let AnyRule::All(all) = texts.join(joint).parse::<AnyRule>().unwrap() else {
            panic!("{texts:?} is one rule");
        };
        prop_assert_eq!(all.rules(), rules);
        assert_prints_itself(&AnyRule::All(all));
    }
}

#[test]
fn every_form_parses_to_the_same_rule_in_any_order() {
    for form in FORMS {
        let rule: AnyRule = form.parse().unwrap();
        check(form);
        // Any white space separates words, and settings are in any order.
        let words: Vec<_> = form.split(' ').collect();
        assert_eq!(words.join(" \t\r\n ").parse(), Ok(rule), "{form}");
    }
}

#[test]
fn a_newer_state_is_an_error_that_says_so() {
    let error = Error::newer_state().to_string();
    assert!(error.contains("update this program"), "{error}");
    assert!(!error.contains("  "), "{error}");
}

//! Texts that are no rule or no traffic.

use tollgate::AnyRule;

use crate::page::Page;

/// Returns the error beside a field; `None` if there is none.
fn error(page: &mut Page, field: &str) -> Option<String> {
    let id = format!("{field}-error");
    let is_shown = page.property(&id, "offsetHeight > 0");
    let is_invalid = page.property(field, "getAttribute('aria-invalid')");
    assert_eq!(is_invalid, is_shown.to_string(), "{field}");
    let text = page.property(&id, "textContent");
    is_shown
        .as_bool()
        .unwrap()
        .then(|| text.as_str().unwrap().to_owned())
}

#[test]
fn the_crates_message_is_shown_until_the_rule_is_right() {
    let mut page = Page::open("");
    assert_eq!(error(&mut page, "rule"), None);
    for text in [
        "token-bucket 100/1m brust=150",
        "<b>bold</b>",
        "token-bucket",
    ] {
        page.fill("rule", text);
        let expected = text.parse::<AnyRule>().unwrap_err().to_string();
        assert_eq!(error(&mut page, "rule"), Some(expected));
        let summary = page.property("summary", "textContent");
        assert_eq!(summary, "Nothing is decided: the rule has an error.");
        // The bars are drawn all the same, but in no colour of a verdict.
        page.fill("traffic", "3 0x4 20");
        let [at_once, delayed, refused, undecided] = ["at-once", "delayed", "refused", "undecided"]
            .map(|class| page.bars(&format!("#drawing .{class}")));
        assert_eq!([at_once, delayed, refused], [[0; 200]; 3]);
        assert_eq!(undecided[..7], [3, 0, 0, 0, 0, 20, 0]);
    }
    page.fill("rule", "token-bucket 100/1m burst=150");
    assert_eq!(error(&mut page, "rule"), None);
    assert_eq!(page.bars("#drawing .undecided"), [0; 200]);
    page.assert_shows_the_simulation();
    page.assert_is_quiet();
}

#[test]
fn a_rule_of_calls_in_flight_says_that_it_cannot_be_drawn() {
    let mut page = Page::open("rule=in-flight+8");
    let text = error(&mut page, "rule").unwrap();
    assert!(
        text.starts_with("`in-flight 8` counts calls in flight: expected a rule of a rate"),
        "{text}"
    );
    page.assert_is_quiet();
}

#[test]
fn text_that_is_no_traffic_leaves_the_last_traffic() {
    let mut page = Page::open("traffic=2x9");
    let before = page.shown();
    for (text, expected) in [
        ("2x9 many", "`many` is no group of columns: expected"),
        ("2x9 -1", "`-1` is no group of columns: expected"),
        ("21", "21 requests in a column: expected at most 20;"),
        ("1x150 2x51", "201 columns: expected at most 200;"),
    ] {
        page.fill("traffic", text);
        let error = error(&mut page, "traffic").unwrap();
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(page.shown(), before);
    }
    page.fill("traffic", "2x9");
    assert_eq!(error(&mut page, "traffic"), None);
    page.assert_is_quiet();
}

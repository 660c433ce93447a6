//! What the page shows for rules and traffic in its address, in its fields, and behind its buttons.

use crate::page::Page;

/// Rules and traffic as the address has them.
const ADDRESSES: [&str; 9] = [
    "",
    // A millisecond earlier or later, requests would be in other windows.
    "rule=fixed-window+1/15ms&traffic=7x100+3x100",
    "rule=token-bucket+10/s+burst%3D20&traffic=5x20+0x10+20x4",
    "rule=fixed-window+50/5s&traffic=0x97+20x6",
    "rule=sliding-log+100/1m&seconds=120&traffic=0x90+20x20+0x60+1x30",
    "rule=sliding-window+50/5s+slices%3D5&traffic=20x200",
    "rule=leaky-bucket+7/s+queue%3D20+max-wait%3D2s&traffic=3x30+0x50+20x4",
    "rule=token-bucket+20/s+%26+fixed-window+1000/1h&seconds=600&most=100&traffic=100x30+0x100+7",
    "rule=warm-up+20/s+over%3D10s+cold%3D3&traffic=2x200",
];

#[test]
fn the_page_shows_what_its_address_has() {
    let mut page = Page::open("");
    for address in ADDRESSES {
        page.go(address);
        page.assert_shows_the_simulation();
        for (name, value) in address.split('&').filter_map(|part| part.split_once('=')) {
            let value = value.replace('+', " ").replace("%3D", "=");
            assert_eq!(page.field(name), value.replace("%26", "&"));
        }
    }
    page.assert_is_quiet();
}

#[test]
fn typing_changes_the_numbers_and_the_address() {
    let mut page = Page::open(ADDRESSES[2]);
    let before = page.shown();
    page.fill("rule", "leaky-bucket 10/s queue=5");
    assert_ne!(page.shown(), before);
    page.assert_shows_the_simulation();
    page.fill("traffic", "20x3 0x40 1x7");
    page.assert_shows_the_simulation();
    let after = page.shown();
    assert_ne!(after, before);

    // The address can be opened elsewhere. It follows a moment later.
    page.chromium
        .wait_for("location.hash.includes('traffic=20x3+0x40+1x7')");
    let address = page.chromium.evaluate("location.hash.slice(1)");
    page.go("");
    assert_ne!(page.shown(), after);
    page.go(address.as_str().unwrap());
    assert_eq!(page.shown(), after);
    page.assert_is_quiet();
}

#[test]
fn each_example_of_a_rule_decides_each_example_of_traffic() {
    let mut page = Page::open("");
    let mut buttons = |id: &str| {
        let count = format!("document.querySelectorAll('#{id} button').length");
        page.chromium.evaluate(&count).as_u64().unwrap()
    };
    let (rules, presets) = (buttons("rules"), buttons("presets"));
    assert_eq!((rules, presets), (6, 6));
    let mut of_rules = Vec::new();
    for rule in 1..=rules {
        page.click(&format!("#rules button:nth-of-type({rule})"));
        let mut shown = Vec::new();
        for preset in 1..=presets {
            page.click(&format!("#presets button:nth-of-type({preset})"));
            page.assert_shows_the_simulation();
            shown.push(page.shown());
            assert!(are_different(&shown), "{shown:?}");
        }
        of_rules.push(shown);
    }
    assert!(are_different(&of_rules), "two rules decide alike");
    page.assert_is_quiet();
}

#[test]
fn pictures_show_windows_and_waiting_only_where_there_are_any() {
    let mut page = Page::open("");
    for (rule, edges, waits) in [
        ("token-bucket+10/s", vec![], false),
        ("fixed-window+50/5s", vec![50.0, 100.0, 150.0], false),
        (
            "fixed-window+9/8s+offset%3D1250ms",
            vec![12.5, 92.5, 172.5],
            false,
        ),
        ("fixed-window+9/8s+from%3Dfirst-call", vec![], false),
        ("leaky-bucket+5/s+%26+fixed-window+9/12s", vec![120.0], true),
        // Too many to be told apart.
        ("fixed-window+9/300ms", vec![], false),
    ] {
        page.go(&format!("rule={rule}"));
        let path = page
            .chromium
            .evaluate("document.querySelector('#drawing .edge').getAttribute('d')");
        let lines = path.as_str().unwrap().split('M').skip(1);
        let drawn: Vec<f64> = lines
            .map(|line| line.split(' ').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(drawn, edges, "{rule}");
        let key = page.property("edge-key", "checkVisibility()");
        assert_eq!(key, !edges.is_empty(), "{rule}");
        for picture in ["passed", "waiting"] {
            let is_shown = page.property(picture, "checkVisibility()");
            assert_eq!(is_shown, waits, "{rule}, {picture}");
        }
        page.assert_shows_the_simulation();
    }
    page.assert_is_quiet();
}

fn are_different<T: PartialEq>(items: &[T]) -> bool {
    let is_new = |index: usize| !items[..index].contains(&items[index]);
    (0..items.len()).all(is_new)
}

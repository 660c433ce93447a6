//! Round trips of files, their meaning, and warnings.

use proptest::prelude::*;
use tollgate::config::{Document, LimitsFile};

fn file(text: &str) -> LimitsFile {
    match text.parse() {
        Ok(file) => file,
        Err(error) => panic!("{text}\n{error}"),
    }
}

/// The texts of parts of a file, each in several forms that mean the same.
const RULES: &[[&str; 2]] = &[
    ["token-bucket 60/1m", "token-bucket 60/60s"],
    ["sliding-log 5/15m", "sliding-log  5/900s"],
    ["fixed-window 3/1h", "fixed-window 3/60m"],
    [
        "cascade 10/1s > 5/1s burst=20",
        "cascade 10/s > 5/s burst=20",
    ],
    ["in-flight 8", "in-flight  8"],
    [
        "token-bucket 5/1s & fixed-window 9/1d",
        "token-bucket 5/s & fixed-window 9/24h",
    ],
];
const KEYS: &[[&str; 2]] = &[
    ["peer-ip", "peer-ip/64"],
    ["forwarded-for 10.0.0.0/8", "forwarded-for 10.1.2.3/8"],
    [
        "header x-api-key or peer-ip",
        " header  X-API-Key or peer-ip ",
    ],
    [
        "host + path or shared others",
        "host  +  path  or shared others",
    ],
    ["global", "global"],
];
const CHARGES: &[[&str; 2]] = &[
    ["", ""],
    [", charge = \"status 401\"", ", charge = \"status 401 401\""],
    [
        ", charge-if = \"not status 2xx\"",
        ", charge-if = \"not  status 204 2xx\"",
    ],
];
const EXEMPT: &[[&str; 2]] = &[
    ["", ", exempt = []"],
    [
        ", exempt = [\"/health\", \"10.0.0.0/8\"]",
        ", exempt = ['10.0.0.0/8', '/health', '/health', '10.255.0.0/8']",
    ],
];
const SHARES: &[[&str; 2]] = &[
    ["", ", dry-run = false"],
    [", dry-run = true", ", enforce-for = 0"],
    [", enforce-for = 30", ", enforce-for = 30"],
    ["", ", enforce-for = 100"],
];
const TARGETS: &[&str] = &[
    "/",
    "POST /login",
    "/users/{id}",
    "GET /{*rest}",
    "/a.B/C",
    "PUT /é",
];

type OneOf = (usize, usize, usize, usize, usize, u64, bool);

/// Returns a file in one of its two forms.
fn text(limits: &[OneOf], routes: &[(usize, Vec<usize>)], form: usize) -> String {
    let name = |index: usize| match index % 3 {
        0 => format!("limit-{index}"),
        1 => format!("\"limit {index}\""),
        _ => format!("\"l\\\\i\\\"{index}\""),
    };
    let mut text = String::from("# a comment\n[limits]\n");
    for (index, limit) in limits.iter().enumerate() {
        let (rule, key, charge, exempt, share, cost, was) = limit;
        let pick = |list: &[[&'static str; 2]], at: usize| list[at % list.len()][form];
        // Calls in flight give back what they hold, whatever their responses are.
        let charge = match pick(RULES, *rule).starts_with("in-flight") {
            true => 0,
            false => *charge,
        };
        text += &format!(
            "{} = {{ rule = \"{}\", key = \"{}\"{}{}{}",
            name(index),
            pick(RULES, *rule),
            pick(KEYS, *key),
            pick(CHARGES, charge),
            pick(EXEMPT, *exempt),
            pick(SHARES, *share),
        );
        if *cost > 1 || form == 1 {
            text += &format!(", cost = {cost}");
        }
        if *was {
            text += &format!(", was = \"old {index}\"");
        }
        text += " }\n";
    }
    let list = |indices: &[usize]| {
        let mut names: Vec<_> = indices.iter().map(|index| index % limits.len()).collect();
        names.sort_unstable();
        names.dedup();
        let names: Vec<_> = names.into_iter().map(name).collect();
        let quoted = names.iter().map(|name| match name.starts_with('"') {
            true => name.clone(),
            false => format!("'{name}'"),
        });
        format!("[{}]", quoted.collect::<Vec<_>>().join(","))
    };
    for (target, indices) in routes {
        text += &format!(
            "[[routes]]\nmatch = '{}'\nlimits = {}\n",
            TARGETS[*target],
            list(indices)
        );
    }
    let all: Vec<_> = (0..limits.len()).collect();
    text += &format!("[default]\nlimits = {}\n", list(&all));
    text
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_are_read_back_to_equal_ones(
        limits in prop::collection::vec(
            (0..9usize, 0..9usize, 0..9usize, 0..9usize, 0..9usize, 1..5u64, any::<bool>()), 1..5),
        targets in prop::sample::subsequence((0..TARGETS.len()).collect::<Vec<_>>(), 0..TARGETS.len()),
        lists in prop::collection::vec(prop::collection::vec(0..9usize, 0..3), TARGETS.len()),
    ) {
        let routes: Vec<_> = targets.into_iter().zip(lists).collect();
        let [one, other] = [0, 1].map(|form| file(&text(&limits, &routes, form)));
        prop_assert_eq!(&one, &other);
        prop_assert!(one.changes_to(&other).is_empty(), "{}", one.changes_to(&other));
        let canonical = one.to_string();
        let again = file(&canonical);
        prop_assert_eq!(&again, &one);
        prop_assert_eq!(again.to_string(), canonical);
    }

    #[test]
    fn no_text_panics(text in "[a-z\\[\\]{}=\"/.* \n0-9-]{0,120}") {
        let _ = text.parse::<LimitsFile>();
        let _ = format!("[limits]\na = {{ rule = \"{text}\", key = \"{text}\" }}").parse::<LimitsFile>();
        let _ = format!("[[routes]]\nmatch = '''{text}'''\nlimits = []").parse::<LimitsFile>();
    }
}

/// The order of limits does not count, and that of routes neither.
#[test]
fn a_file_means_what_its_parts_mean() {
    let one = file(
        "limits.a = { rule = \"token-bucket 5/1m\" }\nlimits.b = { rule = \"token-bucket 6/1m\" }\n\
         routes = [{ match = \"/a\", limits = [\"a\"] }, { match = \"/b\", limits = [\"b\"] }]\ndefault.limits = []",
    );
    let other = file(
        "default.limits = []\nroutes = [{ match = \"/b\", limits = [\"b\"] }, { match = \"/a\", limits = [\"a\"] }]\n\
         limits.b = { rule = \"token-bucket 6/1m\" }\nlimits.a = { rule = \"token-bucket 5/1m\" }",
    );
    assert_eq!(one, other);
    assert_eq!(one.limits().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(other.limits().collect::<Vec<_>>(), ["b", "a"]);
}

#[test]
fn formats_of_serde_mean_the_same() {
    let toml = file(
        "limits.a = { rule = \"token-bucket 5/1m\", cost = 2, dry-run = true }\n\
         routes = [{ match = \"/a\", limits = [\"a\"] }]\ndefault.limits = []",
    );
    let json = r#"{
        "limits": { "a": { "rule": "token-bucket 5/1m", "cost": 2, "dry-run": true } },
        "routes": [{ "match": "/a", "limits": ["a"] }],
        "default": { "limits": [] }
    }"#;
    let document: Document = serde_json::from_str(json).unwrap();
    assert_eq!(LimitsFile::new(&document).unwrap(), toml);
}

/// Returns the warnings of a file with these limits, routes and default.
fn warnings(limits: &str, routes: &str, default: &str) -> Vec<String> {
    let text = format!("[limits]\n{limits}\n{routes}\n[default]\nlimits = {default}\n");
    file(&text)
        .warnings()
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// Asserts that there is one warning, with these parts.
#[track_caller]
fn one_warning(warnings: Vec<String>, parts: &[&str]) {
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:#?}");
    };
    for part in parts.iter().chain(&["expected", "; "]) {
        assert!(warning.contains(part), "{warning}\nlacks: {part}");
    }
}

const API: &str = "api = { rule = \"token-bucket 5/1m\", key = \"header x-api-key\" }";
const ADDRESS: &str = "address = { rule = \"token-bucket 5/1m\", key = \"peer-ip\" }";

#[test]
fn a_limit_that_nobody_has() {
    one_warning(
        warnings(ADDRESS, "", "[]"),
        &["2:1: limits.address", "no route has this limit"],
    );
    assert_eq!(warnings(ADDRESS, "", "[\"address\"]"), [""; 0]);
}

#[test]
fn a_key_that_clients_invent() {
    let parts = [
        "limits.api",
        "clients choose the key `header x-api-key`",
        "`[default]`",
    ];
    one_warning(warnings(API, "", "[\"api\"]"), &parts);
    let both = format!("{API}\n{ADDRESS}");
    assert_eq!(warnings(&both, "", "[\"api\", \"address\"]"), [""; 0]);
    // A dry run limits nobody.
    let dry = both.replace("\"peer-ip\"", "\"peer-ip\", dry-run = true");
    one_warning(warnings(&dry, "", "[\"api\", \"address\"]"), &parts);
}

#[test]
fn a_rule_that_never_admits() {
    let limits = "a = { rule = \"token-bucket 5/1m\", cost = 6 }";
    one_warning(
        warnings(limits, "", "[\"a\"]"),
        &["never admits a cost of 6"],
    );
    assert_eq!(warnings(&limits.replace('6', "5"), "", "[\"a\"]"), [""; 0]);
}

#[test]
fn a_rule_that_forgets_its_clients() {
    for (rule, effect) in [
        ("1/1h burst=1 initial=100 keep=0s", "admits every call"),
        ("1/1m initial=0 keep=0s", "refuses new clients"),
        ("100/1s burst=5 initial=0 keep=500ms", "refuses new clients"),
        (
            "9/1h & token-bucket 1/1h burst=1 initial=100 keep=0s",
            "admits every call",
        ),
    ] {
        let limits = |rule: &str| format!("a = {{ rule = \"token-bucket {rule}\" }}");
        one_warning(warnings(&limits(rule), "", "[\"a\"]"), &[effect]);
        let (kept, _) = rule.split_once(" keep").unwrap();
        assert_eq!(warnings(&limits(kept), "", "[\"a\"]"), [""; 0]);
    }
    for rule in [
        "token-bucket 5/1m initial=0 & token-bucket 9/1h",
        "leaky-bucket 5/1m",
        "fixed-window 5/1m",
        "sliding-window 5/1m slices=4",
        "sliding-log 5/1m",
        "cascade 5/1m > 9/1h",
        "three-color 5/1m peak=9/1m",
        "warm-up 10/s over=1m",
        "warm-up-spaced 10/s over=1m",
        "in-flight 5",
    ] {
        let limits = format!("a = {{ rule = \"{rule}\" }}");
        assert_eq!(warnings(&limits, "", "[\"a\"]"), [""; 0]);
    }
}

#[test]
fn networks_of_proxies() {
    let limits = "a = { rule = \"token-bucket 5/1m\", exempt = [\"10.0.0.0/8\"] }\n\
                  b = { rule = \"token-bucket 5/1m\", key = \"forwarded-for 10.0.0.0/8\" }";
    let parts = [
        "limits.a",
        "the peer's address",
        "`global or forwarded-for 10.0.0.0/8`",
    ];
    one_warning(warnings(limits, "", "[\"a\", \"b\"]"), &parts);
}

#[test]
fn a_route_that_a_variant_walks_around() {
    let rest = "[[routes]]\nmatch = \"/v1/{*rest}\"\nlimits = [\"address\"]";
    let parts = [
        "routes[0]",
        "`/v1` is of `[default]`, without the limit `address`",
    ];
    one_warning(warnings(ADDRESS, rest, "[]"), &parts);
    assert_eq!(warnings(ADDRESS, rest, "[\"address\"]"), [""; 0]);
    // Routes of their own are meant.
    let meant = format!(
        "{rest}\n[[routes]]\nmatch = \"/v1\"\nlimits = []\n[[routes]]\nmatch = \"/v1/\"\nlimits = []"
    );
    assert_eq!(warnings(ADDRESS, &meant, "[]"), [""; 0]);

    // A slash at the end is of the route that matches everything.
    let login = "[[routes]]\nmatch = \"POST /login\"\nlimits = [\"address\"]\n\
                 [[routes]]\nmatch = \"/{*rest}\"\nlimits = []";
    let parts = [
        "routes[0]",
        "`/login/` is of `/{*rest}`",
        "some servers treat it as `/login`",
    ];
    one_warning(warnings(ADDRESS, login, "[]"), &parts);
    // Without it, the plain form is tried.
    let login = "[[routes]]\nmatch = \"POST /login\"\nlimits = [\"address\"]";
    assert_eq!(warnings(ADDRESS, login, "[]"), [""; 0]);
}

//! Wrong files, each with all of its mistakes.

use std::collections::BTreeSet;

use tollgate::{
    AnyRule,
    config::{Document, LimitsFile},
};

/// Returns the mistakes of a file, with the given text behind a right limit and default.
fn mistakes(text: &str) -> Vec<String> {
    let problems = text.parse::<LimitsFile>().expect_err(text);
    problems.iter().map(ToString::to_string).collect()
}

/// A limit with these settings, in line 2, and a default.
fn limit(settings: &str) -> String {
    format!("[limits]\napi = {{ {settings} }}\n[default]\nlimits = []\n")
}

/// A route with these settings, from line 4 on.
fn route(settings: &str) -> String {
    format!(
        "[limits]\napi = {{ rule = \"token-bucket 5/1m\" }}\n[[routes]]\n{settings}\n[default]\nlimits = []\n"
    )
}

/// Asserts that a file has one mistake, at this place and path, whose text has these parts.
#[track_caller]
fn one(text: &str, at: &str, parts: &[&str]) {
    let mistakes = mistakes(text);
    let [mistake] = mistakes.as_slice() else {
        panic!("{text}\n{mistakes:#?}");
    };
    assert!(mistake.starts_with(&format!("{at}: ")), "{mistake}");
    for part in parts {
        assert!(mistake.contains(part), "{mistake}\nlacks: {part}");
    }
    assert!(mistake.contains("expected"), "{mistake}");
    assert!(
        mistake.contains("; ") || mistake.contains("as in `"),
        "{mistake}"
    );
}

#[test]
fn limits_that_are_wrong() {
    // The place is that of a part of the settings.
    let in_limit = |settings: &str, place: &str, path: &str, parts: &[&str]| {
        let text = limit(settings);
        let column = text.lines().nth(1).unwrap().find(place).unwrap() + 1;
        one(&text, &format!("2:{column}: limits.api{path}"), parts);
    };
    let with = |settings: &str, place: &str, path: &str, parts: &[&str]| {
        in_limit(
            &format!("rule = \"token-bucket 5/1m\", {settings}"),
            place,
            path,
            parts,
        );
    };
    in_limit(
        "rule = \"token-bukket 5/1m\"",
        "token-bukket",
        ".rule",
        &[
            "unknown algorithm `token-bukket`",
            "did you mean `token-bucket`?",
        ],
    );
    in_limit(
        "rule = \"token-bucket 5/1x\"",
        "x\"",
        ".rule",
        &["unknown unit `x`"],
    );
    in_limit("rule = \"\"", "\" }", ".rule", &["no rule"]);
    in_limit(
        "rule = 5",
        "5",
        ".rule",
        &["a number", "`token-bucket 100/1m`"],
    );
    in_limit("key = \"peer-ip\"", "api", "", &["no rule"]);
    with(
        "kee = \"a\"",
        "kee",
        ".kee",
        &["`kee` is not known here", "did you mean `key`?"],
    );
    with(
        "key = \"peer-up\"",
        "peer-up",
        ".key",
        &["unknown key `peer-up`", "did you mean `peer-ip`?"],
    );
    with(
        "key = \"peer\"",
        "peer",
        ".key",
        &["did you mean `peer-ip`?"],
    );
    with(
        "key = \"header a or heder b\"",
        "heder b",
        ".key",
        &["unknown key `heder`", "did you mean `header`?"],
    );
    with("cost = 0", "0 }", ".cost", &["from 1 to"]);
    with("cost = \"1\"", "\"1\"", ".cost", &["a text"]);
    with("cost = 1.5", "1.5", ".cost", &["a fraction"]);
    with("charge = \"401\"", "\"401", ".charge", &["`status 401`"]);
    with(
        "charge = \"status 999\"",
        "\"status",
        ".charge",
        &["`status 401`"],
    );
    with(
        "charge = \"status 401\", charge-if = \"status 200\"",
        "api",
        "",
        &["`charge` and `charge-if` exclude each other"],
    );
    with(
        "dry-run = true, enforce-for = 10",
        "api",
        "",
        &["`dry-run` and `enforce-for` exclude each other"],
    );
    with("dry-run = 1", "1 }", ".dry-run", &["a number"]);
    with("enforce-for = 101", "101", ".enforce-for", &["0 to 100"]);
    with(
        "exempt = [\"10.0.0.0/33\"]",
        "\"10.0",
        ".exempt[0]",
        &["is not a network"],
    );
    with(
        "exempt = \"/health\"",
        "\"/health",
        ".exempt",
        &["a list of texts"],
    );
    with("compared-with = \"api\"", "api", "", &["`dry-run = true`"]);
    with("was = \"\"", "\"\"", ".was", &["1 to 128"]);
}

#[test]
fn conditions_of_calls_in_flight() {
    let mut tested = BTreeSet::new();
    for rule in [
        "token-bucket 5/1m",
        "leaky-bucket 5/1m",
        "fixed-window 5/1m",
        "sliding-window 5/1m",
        "sliding-log 5/1m",
        "warm-up 10/s over=1m",
        "warm-up-spaced 10/s over=1m",
        "cascade 5/1m > 9/1h",
        "three-color 5/1m peak=9/1m",
        "in-flight 5",
        "in-flight 5 max-hold=1m",
    ] {
        let (name, _) = rule.split_once(' ').unwrap();
        tested.insert(name);
        for word in ["charge", "charge-if"] {
            let text = limit(&format!("rule = \"{rule}\", {word} = \"status 401\""));
            match name {
                "in-flight" => one(
                    &text,
                    "2:1: limits.api",
                    &[&format!("`{word}` is of"), "calls in flight"],
                ),
                _ => drop(text.parse::<LimitsFile>().expect(&text)),
            }
        }
    }
    // The message of an unknown algorithm has the names of all.
    let unknown = "none".parse::<AnyRule>().unwrap_err().to_string();
    let (_, names) = unknown.split_once("expected ").unwrap();
    let (names, _) = names.split_once(", as in").unwrap();
    assert_eq!(tested, names.split('`').skip(1).step_by(2).collect());
}

#[test]
fn names_that_are_wrong() {
    let rule = "{ rule = \"token-bucket 5/1m\" }";
    one(
        &format!("[limits]\n\"naïve\" = {rule}\n[default]\nlimits = []"),
        "2:1: limits.naïve",
        &["printable ASCII"],
    );
    one(
        &format!(
            "[limits]\nold = {rule}\nnew = {{ rule = \"token-bucket 5/1m\", was = \"old\" }}\n[default]\nlimits = []"
        ),
        "3:1: limits.new",
        &["the states of `old` belong to the limit `old`, too"],
    );
    one(
        &format!("[limits]\na = {rule}\na = {rule}\n[default]\nlimits = []"),
        "3:1",
        &["duplicate key"],
    );
}

#[test]
fn routes_that_are_wrong() {
    let with = |target: &str, at: &str, parts: &[&str]| {
        one(
            &route(&format!("match = \"{target}\"\nlimits = []")),
            at,
            parts,
        );
    };
    with(
        "login",
        "4:9: routes[0].match",
        &["does not begin with `/`"],
    );
    with("POST /a b", "4:9: routes[0].match", &["is no route"]);
    with("", "4:9: routes[0].match", &["is no route"]);
    with(
        "post /a",
        "4:9: routes[0].match",
        &["`post` is no method", "did you mean `POST`?"],
    );
    with(
        "PSOT /a",
        "4:9: routes[0].match",
        &["`PSOT` is no method", "did you mean `POST`?"],
    );
    with(
        "/a?b=1",
        "4:9: routes[0].match",
        &["has a query", "write `/a`"],
    );
    with("/a//b", "4:9: routes[0].match", &["write `/a/b`"]);
    with("/%61", "4:9: routes[0].match", &["write `/a`"]);
    with("/{*rest}/a", "4:9: routes[0].match", &["cannot be matched"]);
    with("/{}", "4:9: routes[0].match", &["cannot be matched"]);
    one(
        &route("match = \"/a\""),
        "3:1: routes[0]",
        &["has no `limits`"],
    );
    one(
        &route("limits = []"),
        "3:1: routes[0]",
        &["matches nothing"],
    );
    one(
        &route("match = \"/a\"\nlimits = [\"apu\"]"),
        "5:11: routes[0].limits[0]",
        &["there is no limit `apu`", "did you mean `api`?"],
    );
    one(
        &route("match = \"/a\"\nlimits = [\"api\", \"api\"]"),
        "5:18: routes[0].limits[1]",
        &["stands twice"],
    );
    one(
        &route("match = \"GET /{a}\"\nlimits = []\n[[routes]]\nmatch = \"GET /{b}\"\nlimits = []"),
        "7:9: routes[1].match",
        &["no request reaches `GET /{b}`, because `GET /{a}` matches the same ones"],
    );
    one(
        &route("match = \"POST /{a}\"\nlimits = []\n[[routes]]\nmatch = \"/{*rest}\"\nlimits = []"),
        "7:9: routes[1].match",
        &["`/{*rest}` cannot stand beside `POST /{a}`"],
    );
}

#[test]
fn files_that_are_wrong() {
    one("", "default", &["a table `[default]`"]);
    one(
        "[default]\n",
        "1:2: default",
        &["`[default]` has no `limits`"],
    );
    one(
        "default = 1",
        "1:11: default",
        &["a number", "a table", "as in"],
    );
    one(
        "limits = 1\ndefault.limits = []",
        "1:10: limits",
        &["a table of limits"],
    );
    one(
        "routes = 1\ndefault.limits = []",
        "1:10: routes",
        &["`[[routes]]`"],
    );
    one(
        "roots = []\ndefault.limits = []",
        "1:1: roots",
        &["did you mean `routes`?"],
    );
    one(
        "default.limits = [\"api\"]",
        "1:19: default.limits[0]",
        &["add it below `[limits]`"],
    );
    assert!(mistakes("limits = ")[0].starts_with("1:10: this is not TOML"));
    // Those of the text alone: what TOML cannot read is not checked.
    assert_eq!(mistakes("a = \nb = 1\nc = [\n").len(), 2);
    let large = " ".repeat((4 << 20) + 1);
    assert!(mistakes(&large)[0].contains("4194304 at most"));
}

#[test]
fn dry_runs_beside_none() {
    let file = |list: &str, live: &str| {
        format!(
            "[limits]\napi = {{ rule = \"token-bucket 5/1m\" }}\nnext = {{ rule = \"token-bucket 5/1m\", dry-run = true, \
             compared-with = \"{live}\" }}\n[default]\nlimits = {list}\n"
        )
    };
    let wrong = file("[\"next\"]", "api");
    one(
        &wrong,
        "3:1: limits.next.compared-with",
        &["is not among the limits of `[default]`"],
    );
    let wrong = file("[\"next\", \"api\"]", "apu");
    one(&wrong, "3:1: limits.next.compared-with", &["is no limit"]);
    let right = file("[\"next\", \"api\"]", "api");
    right.parse::<LimitsFile>().unwrap();
}

/// All of them, in the order of the file; a limit with a mistake still has its name.
#[test]
fn mistakes_are_told_all_at_once() {
    let text = r#"
[limits]
login = { rule = "sliding-lock 5/15m", key = "peer-ip" }
api   = { rule = "token-bucket 5/1m", kay = "global", cost = -1 }

[[routes]]
match  = "/login/{}"
limits = ["login", "apx"]

[defaults]
limits = ["login"]
"#;
    let problems = text.parse::<LimitsFile>().unwrap_err();
    let places: Vec<_> = problems
        .iter()
        .map(|problem| (problem.line(), problem.path().to_owned()))
        .collect();
    let expected = [
        (None, "default"),
        (Some(3), "limits.login.rule"),
        (Some(4), "limits.api.kay"),
        (Some(4), "limits.api.cost"),
        (Some(7), "routes[0].match"),
        (Some(8), "routes[0].limits[1]"),
        (Some(10), "defaults"),
    ];
    assert_eq!(places, expected.map(|(line, path)| (line, path.to_owned())));
}

/// A format without places has paths.
#[test]
fn mistakes_in_json_have_paths() {
    let text =
        r#"{ "limits": { "api": { "rule": "token-bucket 5/1x" } }, "default": { "limits": [1] } }"#;
    let document: Document = serde_json::from_str(text).unwrap();
    let problems = LimitsFile::new(&document).unwrap_err();
    let paths: Vec<_> = problems
        .iter()
        .map(|problem| (problem.line(), problem.path()))
        .collect();
    assert_eq!(
        paths,
        [(None, "limits.api.rule"), (None, "default.limits[0]")]
    );
    let twice = r#"{ "default": { "limits": [] }, "default": { "limits": [] } }"#;
    let error = serde_json::from_str::<Document>(twice).unwrap_err();
    assert!(
        error.to_string().contains("`default` stands twice"),
        "{error}"
    );
}

//! Access logs under files of limits.

use crate::program::{TempFile, replay};

const FILE: &str = r#"
[limits]
login   = { rule = "sliding-log 2/15m", key = "peer-ip", charge = "status 401" }
address = { rule = "fixed-window 3/1h", key = "peer-ip" }
next    = { rule = "fixed-window 1/1h", key = "peer-ip", dry-run = true }
slow    = { rule = "leaky-bucket 1/1m queue=2" }

[[routes]]
match  = "POST /login"
limits = ["login"]

[[routes]]
match  = "/v1/{*rest}"
limits = ["address", "next"]

[[routes]]
match  = "/slow"
limits = ["slow"]

[default]
limits = []
"#;

/// Returns a log with a line for each request: minute and second, host, request and status.
fn log(requests: &[(&str, &str, &str, u16)]) -> String {
    let line = |(time, host, request, status): &(&str, &str, &str, u16)| {
        format!("{host} - - [10/Oct/2000:13:{time} -0700] \"{request} HTTP/1.1\" {status} 5\n")
    };
    requests.iter().map(line).collect()
}

fn requests() -> String {
    let (ann, bob) = ("192.0.2.1", "192.0.2.2");
    log(&[
        ("00:00", ann, "POST /login", 200),
        ("00:01", ann, "POST /login", 401),
        ("00:02", ann, "POST /login", 200),
        ("00:03", ann, "POST /login", 401),
        ("00:04", ann, "POST /login", 401),
        ("00:05", bob, "POST /login", 200),
        ("00:06", ann, "GET /v1/a?b=1", 200),
        ("00:07", ann, "GET /v1/b", 200),
        ("00:08", ann, "GET /v1/c", 200),
        ("00:09", ann, "GET /v1/d", 200),
        ("00:10", bob, "GET /v1/a", 200),
        ("00:11", ann, "GET /other", 404),
        ("00:12", ann, "GET /slow", 200),
        ("00:13", ann, "GET /slow", 200),
        ("00:14", ann, "GET /slow", 200),
        ("00:15", ann, "GET /slow", 200),
        ("16:00", ann, "POST /login", 401),
    ])
}

/// `login` refuses the third 401 of fifteen minutes, `address` the fourth call of ann, and `slow`
/// what finds its queue full.
#[test]
fn a_file_is_replayed_as_the_layer_would_decide() {
    let file = TempFile::holding("limits.toml", FILE);
    let end = replay(&["--config", file.path()], requests());
    assert_eq!((end.code, &*end.errors), (Some(0), ""));
    let name = file.path();
    assert_eq!(
        end.text(),
        format!(
            "{name}\n\n  lines     17\n  admitted  14  82.4 %\n  refused    3  17.6 %\n\n  \
             limit    refused  on its dry run  keys\n  login          1               0     1\n  \
             address        1               0     1\n  next           0               3     1\n  \
             slow           1               0     1\n\nWho would have been refused: 4\n\n  \
             refused  limit    key\n        3  next     192.0.2.1\n        1  address  192.0.2.1\n        \
             1  login    192.0.2.1\n        1  slow     global\n"
        )
    );
}

#[test]
fn two_files_are_compared() {
    let (one, other) = (
        TempFile::holding("one.toml", FILE),
        TempFile::holding(
            "other.toml",
            &FILE.replace("fixed-window 3/1h", "fixed-window 2/1h"),
        ),
    );
    let args = ["--config", one.path(), "--compare", other.path(), "--top=1"];
    let end = replay(&args, requests());
    assert_eq!((end.code, &*end.errors), (Some(0), ""));
    let text = end.text();
    let alone: Vec<_> = text
        .lines()
        .filter(|line| line.contains("not by the other"))
        .map(|line| line.split_whitespace().rev().nth(2).unwrap())
        .collect();
    assert_eq!(alone, ["0", "1"], "{text}");
    assert_eq!(
        text.matches("Who would have been refused: 1 of 4").count(),
        2,
        "{text}"
    );
}

#[test]
fn a_file_with_mistakes_is_not_replayed() {
    let file = TempFile::holding(
        "wrong.toml",
        &FILE.replace("sliding-log 2/15m", "sliding-lock 2/15m"),
    );
    let end = replay(&["--config", file.path()], requests());
    assert_eq!((end.code, end.text()), (Some(1), ""));
    let place = format!("replay: {}:3:21: limits.login.rule: ", file.path());
    assert!(end.errors.starts_with(&place), "{}", end.errors);
    let gone = replay(&["--config", "/nowhere/limits.toml"], "");
    assert!(
        gone.errors.contains("expected a file of limits"),
        "{}",
        gone.errors
    );
}

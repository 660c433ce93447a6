//! The command `simulate`, in a child process.

use std::process::{Command, Output};

fn figures(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_figures"));
    command
        .arg("simulate")
        .args(args)
        .output()
        .expect("the program starts")
}

#[track_caller]
fn printed(args: &[&str]) -> String {
    let output = figures(args);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn equal_seeds_print_equal_bytes() {
    for format in ["--csv", "--csv-nodes"] {
        let args = ["--all", "--time", "6s", format];
        assert_eq!(printed(&args), printed(&args));
    }
    let args = |seed| ["--scenario", "lossy", "--seed", seed];
    assert_eq!(printed(&args("2")), printed(&args("2")));
    let numbers = |seed| {
        printed(&args(seed))
            .split_once('\n')
            .map(|(_, rest)| rest.to_owned())
    };
    assert_ne!(numbers("2"), numbers("3"));
}

#[test]
fn flags_change_a_scenario() {
    let text = printed(&[
        "--scenario=hot-8",
        "--nodes",
        "2",
        "--rule",
        "sliding-log 100/s",
        "--hold",
        "50ms",
        "--demand",
        "2.5",
        "--keys",
        "zipf:10:1.1",
        "--arrivals",
        "on-off:1s:2s",
        "--clients",
        "3",
        "--balance",
        "hot:0.75",
        "--delay",
        "2ms",
        "--jitter",
        "1ms",
        "--loss",
        "0.01",
        "--duplicate",
        "0.01",
        "--deadline",
        "20ms",
        "--outage",
        "1s..2s",
        "--lose-data",
        "--partition",
        "0@2s..3s",
        "--freeze",
        "1@3s..4s",
        "--kill",
        "1@5s",
        "--offset",
        "1s",
        "--drift",
        "0.0005",
        "--time",
        "8s",
        "--warm-up",
        "0s",
        "--seed",
        "9",
    ]);
    assert!(
        text.contains("hot-8, seed 9") && text.contains("node 1") && !text.contains("node 2"),
        "{text}"
    );
}

#[test]
fn scenarios_are_listed() {
    let list = printed(&["--list"]);
    assert_eq!(list.lines().count(), figures::NAMES.len());
    for (name, _) in figures::NAMES {
        assert!(
            list.contains(name) && figures::scenario(name).is_ok(),
            "{name}"
        );
    }
}

#[test]
fn wrong_arguments_are_reported() {
    for (args, part) in [
        (vec!["--scenario", "none"], "expected one of hot-1"),
        (vec!["--demand", "x"], "as in 1.2"),
        (vec!["--wrong", "1"], "unexpected argument '--wrong'"),
        (vec!["--seed"], "a value is required"),
        (vec!["--nodes", "0"], "expected at least 1"),
        (vec!["--outage", "1s"], "as in 2s..5s"),
        (vec!["--rule", "leaky-bucket 10/s"], "has no meter"),
        (vec!["--hold", "2s"], "are refilled"),
        (vec!["--loss", "1.5"], "from 0 to 1"),
    ] {
        let output = figures(&args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(errors.contains(part), "{args:?}: {errors}");
    }
}

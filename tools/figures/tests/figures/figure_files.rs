//! The files of figures: equal bytes, those that are checked in, and bad input.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use crate::drawn::{checked_in, draw, files, run};

#[test]
fn equal_seeds_draw_equal_bytes() {
    for figure in ["accuracy --windows 20", "pacing", "warm-up"] {
        let first = draw(&format!("{figure} --seed 5")).files();
        let second = draw(&format!("{figure} --seed 5")).files();
        assert!(first == second, "{figure}");
        assert!(first.iter().any(|(name, _)| name.ends_with(".svg")));
        assert!(first.iter().any(|(name, _)| name.ends_with(".csv")));
    }
    let random = |seed| draw(&format!("accuracy --windows 20 --seed {seed}")).files();
    assert!(random(5) != random(6));
}

#[test]
fn tables_that_are_checked_in_are_drawn_again() {
    let figures = ["accuracy", "pacing", "warm-up"];
    assert_drawn_again(&figures, |table| !is_long(table));
}

/// In each run, `architectures` and `contention` play the small fleets and races of these tables.
#[test]
#[ignore = "these figures take more than a minute of two processors: `./test.sh slow`"]
fn slow_tables_that_are_checked_in_are_drawn_again() {
    assert_drawn_again(&["contention", "fleet"], is_long);
}

fn is_long(table: &str) -> bool {
    table.starts_with("contention") || table.starts_with("fleet")
}

/// Asserts that figures draw those of the tables that are checked in.
fn assert_drawn_again(figures: &[&str], which: fn(&str) -> bool) {
    let drawn: Vec<_> = figures.iter().flat_map(|name| draw(name).files()).collect();
    let mut compared = 0;
    for (name, bytes) in files(&checked_in()) {
        if name.ends_with(".csv") && which(&name) {
            let again = drawn.iter().find(|(drawn, _)| *drawn == name);
            let (_, again) = again.unwrap_or_else(|| panic!("{name}: no figure draws it"));
            assert!(
                *again == bytes,
                "{name} differs: run `figures all`, compare, and copy what is right to figures/"
            );
            compared += 1;
        }
    }
    assert!(compared > 0, "tables are checked in");
}

#[test]
fn files_can_be_read_by_others_and_are_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let deep = folder.path().join("a/b");
    for _ in 0..2 {
        assert!(run("warm-up", &deep).status.success());
    }
    let names: Vec<_> = files(&deep).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["warmup.csv", "warmup.svg", "warmup_pause.csv"]);
    let mode = fs::metadata(deep.join("warmup.csv"))
        .expect("a file")
        .permissions();
    assert_eq!(mode.mode() & 0o444, 0o444);
}

#[test]
fn extreme_parameters_are_drawn() {
    for words in [
        "accuracy --limit 1/1s --windows 1",
        "accuracy --limit 7/61s --windows 3",
        "accuracy --limit 1000/1s --windows 1",
        "accuracy --limit 3/1d --windows 300",
        "pacing --items 1 --rate 1/1s",
        "pacing --items 5 --rate 3/7s",
        "pacing --items 1000 --rate 100000/s",
        "warm-up --rate 3/s --seconds 1 --pauses 1",
        "warm-up --rate 1000/1m --over 1500ms --cold 2",
        "warm-up --rate 5000/s --cold 1000 --pauses 2",
    ] {
        let files = draw(words).files();
        let of_kind = |kind| {
            files
                .iter()
                .filter(|(name, _)| name.ends_with(kind))
                .count()
        };
        assert!(of_kind(".csv") > 0 && of_kind(".svg") > 0, "{words}");
    }
}

/// Asserts that a command fails with one line that contains a part, and leaves no file and no
/// folder behind.
#[track_caller]
fn fails(words: &str, part: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(words, &folder.path().join("new"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{words}: {errors}");
    assert!(errors.contains(part), "{words}: {errors}");
    assert!(output.stdout.is_empty());
    assert!(
        files(folder.path()).is_empty(),
        "{words}: nothing is written"
    );
}

#[test]
fn wrong_parameters_are_one_line() {
    fails("nothing", "unrecognized subcommand 'nothing'");
    fails(
        "accuracy --limit 100",
        "invalid value '100' for '--limit <QUOTA>'",
    );
    fails("accuracy --limit 0/60s", "--limit <QUOTA>");
    fails("accuracy --limit 1000000/60s", "at most 100000 calls");
    fails("pacing --items 1 --rate 1/1h", "choose fewer items");
    fails("accuracy --limit 100/1ms", "a period below 1s");
    fails(
        "accuracy --limit 100000/60s --windows 1000",
        "choose fewer windows",
    );
    fails("accuracy --limit 1/365d", "choose fewer windows");
    fails("accuracy --windows 0", "--windows <N>");
    fails("accuracy --wrong 1", "unexpected argument '--wrong'");
    fails("accuracy --seed x", "--seed <N>");
    fails("pacing --work 0s", "at least 1us");
    fails("pacing --poll 1ns", "at least 1us");
    fails("pacing --poll 1us --items 1000000", "choose fewer items");
    fails("pacing --poll 1h", "choose fewer items");
    fails("pacing --rate x", "--rate <QUOTA>");
    fails("warm-up --cold 1", "expected more than 1");
    fails("warm-up --over 10", "expected a time");
    fails("warm-up --rate 1000000/s", "choose a lower rate");
    fails("warm-up --over 20000d", "choose a lower rate");
}

#[test]
fn a_missing_command_is_one_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_figures")).output();
    let output = output.expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("a command is missing") && errors.lines().count() == 1);
}

#[test]
fn wrong_files_of_calls_are_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("calls.json");
    let words = format!("accuracy --arrivals {}", file.display());
    fails(&words, "cannot be read");
    for (text, part) in [
        ("[0, 1, abc]", "line 1 column 8"),
        ("[0, \"1\"]", "expected a JSON list of whole milliseconds"),
        ("[0, -1]", "expected a JSON list of whole milliseconds"),
        ("[0, 1.5]", "expected a JSON list of whole milliseconds"),
        ("{}", "expected a JSON list of whole milliseconds"),
        ("[0, 1", "expected a JSON list of whole milliseconds"),
        ("", "expected a JSON list of whole milliseconds"),
        ("[]", "has no calls"),
        ("[1, 18446744073709551615]", "count from the first call"),
    ] {
        fs::write(&file, text).expect("a file");
        fails(&words, part);
    }
    fs::write(&file, [0x5b, 0xff, 0x5d]).expect("a file");
    fails(&words, "expected a JSON list of whole milliseconds");
}

#[test]
fn folders_that_cannot_be_written_are_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "kept").expect("a file");
    for out in [file.clone(), file.join("below"), "/proc/figures".into()] {
        let output = run("warm-up", &out);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains("choose another one with --out"), "{errors}");
    }
    assert_eq!(fs::read(&file).expect("a file"), b"kept");
}

#[test]
fn a_file_that_cannot_be_replaced_is_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    // A folder with a file cannot be replaced by a file.
    fs::create_dir_all(folder.path().join("warmup.csv/inside")).expect("a folder");
    let output = run("warm-up", folder.path());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("take warmup.csv"), "{errors}");
    let names: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
    assert_eq!(names.len(), 1, "no temporary file is left");
}

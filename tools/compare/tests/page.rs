//! The page says what a run says.

use std::{path::Path, process::Command};

/// Runs each library: takes a minute of an idle machine.
#[test]
fn the_table_of_the_page_is_that_of_a_run() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/comparison.md");
    let run = Command::new(env!("CARGO_BIN_EXE_compare"))
        .arg("--check")
        .arg(page)
        .output()
        .expect("the program");
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{errors}");
}

/// A check that could not fail would check nothing.
#[test]
fn a_page_without_a_table_is_refused() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let run = Command::new(env!("CARGO_BIN_EXE_compare"))
        .arg("--check")
        .arg(page)
        .output()
        .expect("the program");
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success());
    assert!(errors.contains("expected it around the table"), "{errors}");
}

//! Adding an algorithm takes one folder and one line: this test adds one to a copy of the crate and
//! checks it.
//!
//! The folder is `tests/fixtures/session`, and `tests/fixtures/session.rs` is the program that
//! checks it: it parses the new rule from text, encodes its states, and runs the conformance suite
//! under it in memory and in Redis.
#![cfg(all(feature = "redis", feature = "test-util"))]

use std::{env, fs, path::Path};

use support::servers::Redis;

/// The line that is added to the end of the list.
const LINE: &str = r#"
            session { Session, SessionState } name "session", tag 0x69, kind 13, grants false, text "`session 100/30m`";"#;
/// The last line of the list.
const LAST: &str = "            three_color {";

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let name = entry.unwrap().file_name();
        copy(&from.join(&name), &to.join(&name));
    }
}

fn edit(file: &Path, change: impl FnOnce(&mut String)) {
    let mut text = fs::read_to_string(file).unwrap();
    change(&mut text);
    fs::write(file, text).unwrap();
}

#[test]
fn an_algorithm_is_one_folder_and_one_line() {
    let original = Path::new(env!("CARGO_MANIFEST_DIR"));
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let added = temporary.join("one-more-algorithm");
    if added.exists() {
        fs::remove_dir_all(&added).unwrap();
    }
    fs::create_dir_all(&added).unwrap();
    for name in [
        "Cargo.toml",
        "Cargo.lock",
        "src",
        "tests/support",
        "DESIGN.md",
        "BENCHMARKS.md",
    ] {
        copy(&original.join(name), &added.join(name));
    }
    // Benchmarks, examples and the other members are not copied.
    edit(&added.join("Cargo.toml"), |manifest| {
        let targets = manifest.find("\n[[bench]]").unwrap();
        manifest.truncate(targets);
        manifest.push_str("\n[[test]]\nname = \"session\"\nharness = false\n");
        let members = manifest.find("\nmembers = [").unwrap();
        let end = members + manifest[members..].find(']').unwrap();
        manifest.replace_range(members..=end, "\nmembers = [\"tests/support\"]");
        // For cargo, packages of one name and version at one place of their workspaces are the
        // same, and so are their files in a target folder.
        let others = manifest.replace("\nversion = \"0.", "\nversion = \"10.");
        assert_ne!(*manifest, others);
        *manifest = others;
    });

    let fixtures = original.join("tests/fixtures");
    copy(
        &fixtures.join("session"),
        &added.join("src/algorithm/session"),
    );
    edit(&added.join("src/algorithm/registry.rs"), |registry| {
        let last = registry.find(LAST).unwrap();
        let end = last + registry[last..].find('\n').unwrap();
        registry.insert_str(end, LINE);
    });

    copy(
        &fixtures.join("session.rs"),
        &added.join("tests/session.rs"),
    );
    let server = Redis::start();
    // A test, with all features: the dependencies are those of this program, and are built already
    // in the same target folder.
    let target = temporary.parent().unwrap();
    let output = support::cargo(added.to_str().unwrap())
        // Not locked: the lock file also has what the other members need.
        .args(["test", "--quiet", "--offline", "--all-features"])
        .args(["--test=session", "--", &server.url()])
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output_text}{errors}");
    // Not even a warning, such as for unused code.
    assert_eq!(errors, "");
    assert!(
        output_text.contains("in memory: 18 laws") && output_text.contains("in Redis: 18 laws"),
        "{output_text}"
    );
}

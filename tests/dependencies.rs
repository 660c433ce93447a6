//! The dependencies: their licences, and the numbers of crates that the table of features names.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use spdx::{Expression, LicenseItem, ParseMode};

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Returns the crates that users compile, in the format of `cargo tree`.
fn tree(features: &[&str], format: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["tree", "--package=tollgate", "--locked", "--prefix=none"])
        .args(["--no-dedupe", "--format", format])
        .args(features)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// One of the licences of each crate is among those of `deny.toml`.
#[test]
fn licences() {
    let list = file("deny.toml");
    let line = list.lines().find(|line| line.starts_with("allow = ["));
    let allowed: BTreeSet<_> = line.unwrap().split('"').skip(1).step_by(2).collect();
    let mut used = BTreeSet::new();
    // Without those of tests, which nobody has to have.
    let crates = tree(
        &["--all-features", "--edges=normal,build"],
        "{l} is the licence of {p}",
    );
    assert!(crates.len() > 100, "{crates:?}");
    for line in &crates {
        let (licence, _) = line.split_once(" is the licence of ").unwrap();
        let expression = Expression::parse_mode(licence, ParseMode::LAX);
        let expression = expression.unwrap_or_else(|error| panic!("{line}: {error}"));
        let is_allowed = expression.evaluate(|required| match &required.license {
            LicenseItem::Spdx { id, .. } if allowed.contains(id.name) => {
                used.insert(id.name);
                true
            }
            _ => false,
        });
        assert!(is_allowed, "{line}; expected one of {allowed:?}");
    }
    assert_eq!(used, allowed, "no crate needs the others");
}

#[test]
fn crates_of_each_feature() {
    let page = file("src/lib.rs");
    let count = |feature: &str| {
        let features = ["--edges=normal", "--no-default-features", "--features"];
        let crates = tree(&[&features[..], &[feature]].concat(), "{p}");
        crates.len() - 1
    };
    let alone = format!("on {} crates in all", count(""));
    assert!(
        page.replace("\n//!", "").contains(&alone),
        "expected: {alone}"
    );
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("//! | `")?.split(" | ").collect();
        let crates = cells.last()?.strip_suffix(" |")?.parse::<usize>().ok()?;
        Some((cells[0].trim_end_matches('`'), crates))
    });
    let rows: Vec<_> = rows.collect();
    let manifest = file("Cargo.toml");
    let features = manifest.split("\n[features]\n").nth(1).unwrap();
    let features = features.split("\n[").next().unwrap().lines();
    let features = features.filter(|line| line.contains(" = [") && !line.starts_with("default"));
    assert_eq!(rows.len(), features.count(), "a row for each feature");
    for (feature, crates) in &rows {
        assert_eq!(
            count(feature),
            *crates,
            "crates with the feature `{feature}`"
        );
    }
    // The README has several features in a row.
    let readme = file("README.md");
    assert!(readme.contains(&format!("and {} crates below it", count(""))));
    let mut listed = 0;
    for row in readme.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
        let names: Vec<_> = cells[0].split('`').skip(1).step_by(2).collect();
        let numbers = names.iter().filter_map(|name| {
            let (_, crates) = rows.iter().find(|(feature, _)| feature == name)?;
            Some(crates.to_string())
        });
        let numbers: Vec<_> = numbers.collect();
        if !numbers.is_empty() {
            assert_eq!(cells.last(), Some(&&*numbers.join(", ")), "{row}");
            listed += numbers.len();
        }
    }
    assert_eq!(listed, rows.len(), "features in the README");
}

//! A port is small.

use std::{fs, path::Path};

/// Most lines that a port removes, and most lines that it adds.
const MOST: usize = 15;

/// Returns the numbers of lines that are only in the first text, and only in the second: those
/// outside of a longest common subsequence of lines. Blank lines do not count.
fn changed(before: &str, after: &str) -> (usize, usize) {
    let lines = |text| {
        let lines = str::lines(text).filter(|line| !line.trim().is_empty());
        lines.collect::<Vec<_>>()
    };
    let [before, after] = [before, after].map(lines);
    // The lengths of the longest for each pair of beginnings, of which the last row is kept.
    let mut row = vec![0; after.len() + 1];
    for old in &before {
        let mut next = vec![0; after.len() + 1];
        for (at, new) in after.iter().enumerate() {
            next[at + 1] = match old == new {
                true => row[at] + 1,
                false => next[at].max(row[at + 1]),
            };
        }
        row = next;
    }
    let common = row[after.len()];
    (before.len() - common, after.len() - common)
}

#[test]
fn lines_are_counted() {
    assert_eq!(changed("a\nb\nc", "a\nb\nc"), (0, 0));
    assert_eq!(changed("a\n\nb\nc", "a\nb\n\n\nc\n"), (0, 0));
    // A line that changes, one that is removed, two that are added.
    assert_eq!(changed("a\nb\nc", "a\nB\nc"), (1, 1));
    assert_eq!(changed("a\nb\nc", "a\nc"), (1, 0));
    assert_eq!(changed("a\nc", "x\na\nc\ny"), (0, 2));
    // A line that moves is removed and added.
    assert_eq!(changed("a\nb\nc", "b\nc\na"), (1, 1));
}

#[test]
fn each_port_changes_at_most_fifteen_lines() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ported");
    let mut ports = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let program = entry.unwrap().path();
        let [before, after] = ["before.rs", "after.rs"]
            .map(|version| fs::read_to_string(program.join(version)).unwrap());
        assert!(before.contains("use tower_governor::") && !before.contains("tollgate"));
        assert!(after.contains("use tollgate::") && !after.contains("governor"));
        let (removed, added) = changed(&before, &after);
        let both = format!("{}: {removed} removed, {added} added", program.display());
        assert!(
            (1..=MOST).contains(&removed) && (1..=MOST).contains(&added),
            "{both}"
        );
        ports += 1;
    }
    assert_eq!(ports, 3);
}

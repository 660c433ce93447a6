//! The table, and its place on the page.

use std::fmt::Write;

use crate::{
    library::{self, Library},
    probe::{self, Surroundings},
    versions,
};

pub const BEGIN: &str = "<!-- `tools/compare` writes from here. -->\n";
pub const END: &str = "<!-- `tools/compare` writes to here. -->\n";

/// Runs all probes on all libraries.
pub fn run(surroundings: &Surroundings) -> String {
    let mut table = String::from("|");
    for library in library::ALL {
        write!(
            table,
            " | {} {}",
            title(library),
            versions::of(library.package())
        )
        .expect("a string");
    }
    table.push_str(" |\n|---");
    library::ALL.iter().for_each(|_| table.push_str("|---"));
    table.push_str("|\n");
    for probe in &probe::ALL {
        eprintln!("{}", probe.title);
        write!(table, "| {}", probe.title).expect("a string");
        for library in library::ALL {
            write!(table, " | {}", (probe.run)(library, surroundings)).expect("a string");
        }
        table.push_str(" |\n");
    }
    table
}

fn title(library: &dyn Library) -> String {
    format!("`{}`", library.package())
}

/// Returns the parts of a page: before the table with the first marker, the table, and the rest.
pub fn split(page: &str) -> Result<(&str, &str, &str), String> {
    let missing = |marker: &str| {
        format!(
            "the page has no line `{}`; expected it around the table",
            marker.trim_end()
        )
    };
    let begin = page.find(BEGIN).ok_or_else(|| missing(BEGIN))? + BEGIN.len();
    let end = page[begin..].find(END).ok_or_else(|| missing(END))? + begin;
    Ok((
        &page[..begin],
        page[begin..end].trim_matches('\n'),
        &page[end..],
    ))
}

/// Returns the page with another table.
pub fn replace(page: &str, table: &str) -> Result<String, String> {
    let (before, _, after) = split(page)?;
    Ok(format!("{before}\n{}\n\n{after}", table.trim_matches('\n')))
}

/// Fails with the rows in which the page differs from a run.
pub fn compare(page: &str, table: &str) -> Result<(), String> {
    let (_, on_page, _) = split(page)?;
    let (on_page, run): (Vec<_>, Vec<_>) = (on_page.lines().collect(), table.lines().collect());
    let mut differences = String::new();
    for row in 0..on_page.len().max(run.len()) {
        let (page, run) = (on_page.get(row), run.get(row));
        if page != run {
            let show = |row: Option<&&str>| row.map_or("no row".to_owned(), |row| row.to_string());
            write!(
                differences,
                "\nfound    {}\nexpected {}",
                show(page),
                show(run)
            )
            .expect("a string");
        }
    }
    match differences.as_str() {
        "" => Ok(()),
        _ => Err(format!(
            "the page differs from the run; `cargo run --ignore-rust-version -- --write FILE` \
             corrects it:{differences}"
        )),
    }
}

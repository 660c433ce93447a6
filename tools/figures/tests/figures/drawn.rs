//! Figures that the program draws, and their tables.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// A folder with the files of a figure, which is removed with this.
pub(crate) struct Drawn(TempDir);

/// Runs the program with the words of a command.
pub(crate) fn run(words: &str, out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_figures"));
    command.args(words.split_whitespace()).arg("--out").arg(out);
    command.output().expect("the program starts")
}

/// Draws a figure by the words of its command.
#[track_caller]
pub(crate) fn draw(words: &str) -> Drawn {
    let folder = TempDir::new().expect("a folder");
    let output = run(words, folder.path());
    assert!(output.status.success(), "{words}: {output:?}");
    Drawn(folder)
}

impl Drawn {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the names and bytes of all files, by name.
    pub(crate) fn files(&self) -> Vec<(String, Vec<u8>)> {
        files(self.path())
    }

    pub(crate) fn table(&self, name: &str) -> Table {
        read_table(self.path(), name)
    }
}

/// The folder of the figures that are checked in.
pub(crate) fn checked_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../figures")
}

/// Reads a CSV file of a folder.
#[track_caller]
pub(crate) fn read_table(folder: &Path, name: &str) -> Table {
    let mut reader = csv::Reader::from_path(folder.join(name)).expect("a table");
    let header = reader.headers().expect("a header").clone();
    Table {
        columns: header.iter().map(str::to_owned).collect(),
        rows: reader
            .into_records()
            .map(|row| row.expect("a row").iter().map(str::to_owned).collect())
            .collect(),
    }
}

/// Returns the names and bytes of all files of a folder, by name.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        (name.into_owned(), std::fs::read(&path).expect("bytes"))
    };
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(file)
        .collect();
    files.sort();
    files
}

/// The cells of a CSV file.
pub(crate) struct Table {
    pub(crate) columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row {
            columns: &self.columns,
            cells,
        })
    }
}

/// A row of a table.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    columns: &'a [String],
    cells: &'a [String],
}

impl Row<'_> {
    #[track_caller]
    pub(crate) fn text(&self, column: &str) -> &str {
        let index = self.columns.iter().position(|name| name == column);
        &self.cells[index.unwrap_or_else(|| panic!("a column {column}"))]
    }

    #[track_caller]
    pub(crate) fn number(&self, column: &str) -> f64 {
        let text = self.text(column);
        text.parse().unwrap_or_else(|_| panic!("{column}: {text}"))
    }
}

/// Asserts that two numbers differ by at most 1 % of the second one.
#[track_caller]
pub(crate) fn within_a_percent(drawn: f64, model: f64, of: &str) {
    let difference = (drawn - model).abs();
    assert!(
        difference <= 0.01 * model.abs(),
        "{of}: drawn {drawn}, by the slow model {model}"
    );
}

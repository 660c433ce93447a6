//! Crates that are compiled for a program that depends on a library and on nothing else.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use super::Surroundings;
use crate::{library::Library, versions};

/// The folder of this project.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Makes programs, and asks cargo what it would compile for them.
pub struct Crates(TempDir);

impl Crates {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder for programs"))
    }

    /// Counts crates, also those of build scripts and macros.
    fn count(&self, library: &dyn Library) -> usize {
        let (package, folder) = (library.package(), self.0.path().join(library.package()));
        fs::create_dir_all(folder.join("src")).expect("a folder");
        fs::write(folder.join("src/main.rs"), "fn main() {}\n").expect("a file");
        // The versions that are run, so that other releases change nothing here.
        fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).expect("Cargo.lock");
        let source = match package {
            "tollgate" => format!("path = {:?}", repository()),
            _ => format!("version = \"={}\"", versions::of(package)),
        };
        let separator = if library.minimal().is_empty() {
            ""
        } else {
            ", "
        };
        let manifest = format!(
            "[package]\nname = \"counted\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\n{package} = {{ {source}{separator}{} }}\n",
            library.minimal()
        );
        fs::write(folder.join("Cargo.toml"), manifest).expect("a file");
        let tree = Command::new("cargo")
            .args([
                "tree",
                "--offline",
                "--edges",
                "normal,build",
                "--prefix",
                "none",
                "--no-dedupe",
            ])
            .args(["--format", "{p}", "--manifest-path"])
            .arg(folder.join("Cargo.toml"))
            .output();
        let output = tree.expect("cargo");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{package}: {errors}");
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        let names: BTreeSet<_> = names
            .lines()
            .map(|line| line.split_once(" (").map_or(line, |(name, _)| name))
            .filter(|name| !name.is_empty() && !name.starts_with("counted "))
            .collect();
        names.len()
    }
}

/// The folder of the crate.
fn repository() -> PathBuf {
    let root = root().join("../..");
    root.canonicalize().expect("the repository")
}

pub fn crates(library: &dyn Library, surroundings: &Surroundings) -> String {
    surroundings.crates.count(library).to_string()
}

//! Messages of the compiler for parts that do not fit together, or whose feature is off.
//!
//! Each case says what it expects, below its first line: `//~ error…` how an error begins, in their
//! order (with `2 x` for two equal ones), and `//~ …` words that stand anywhere, such as those that
//! help.
//!
//! The cases are compiled with the dependencies of this program. A library for such tests would
//! check them all again, for each selection of features, which takes a minute.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

#[cfg(all(
    feature = "axum",
    feature = "introspect",
    feature = "metrics",
    feature = "redis",
    feature = "retry",
    feature = "test-util",
    feature = "tonic",
    feature = "tracing"
))]
mod snippets;

/// The compiler, with the crate and its dependencies as cargo has built them for this program.
struct Compiler {
    libraries: Vec<String>,
    written: PathBuf,
}

impl Compiler {
    /// Asks cargo, which has nothing to do, as this program was built with the same features.
    fn with(features: &[&str], used: &[&str]) -> Self {
        let output = support::cargo(env!("CARGO_MANIFEST_DIR"))
            .args(["test", "--locked", "--offline", "--no-run", "--test=laws"])
            .arg("--message-format=json")
            .args(features)
            .output()
            .expect("cargo runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let output = String::from_utf8(output.stdout).expect("cargo writes text");
        let mut libraries = Vec::new();
        for line in output.lines() {
            let message: serde_json::Value = serde_json::from_str(line).expect("lines of JSON");
            let (target, files) = (&message["target"], &message["filenames"]);
            let files = files.as_array().into_iter().flatten();
            let mut files = files.filter_map(|file| file.as_str());
            let file = files.find(|file| file.ends_with(".rlib"));
            let (Some(name), Some(file)) = (target["name"].as_str(), file) else {
                continue;
            };
            if used.contains(&name) {
                libraries.push("--extern".to_owned());
                libraries.push(format!("{name}={file}"));
            }
            if name == "tollgate" {
                let folder = Path::new(file).parent().expect("a file in a folder");
                libraries.push(format!("-Ldependency={}", folder.display()));
            }
        }
        Self {
            libraries,
            written: Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages"),
        }
    }

    /// Returns the messages of a case, which must not compile.
    fn errors_of(&self, case: &Path) -> String {
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc)
            .args([
                "--edition=2024",
                "--emit=metadata",
                "--diagnostic-width=140",
            ])
            .arg("--out-dir")
            .arg(&self.written)
            .args(&self.libraries)
            // Relative, so that messages name it equally on each machine.
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages"))
            .arg(case)
            .output()
            .expect("the compiler runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        assert_eq!(code, Some(1), "{} compiles: {errors}", case.display());
        errors
    }
}

/// Returns the beginnings of the errors that a case expects, and the words that it expects
/// anywhere.
fn expected(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut begins, mut stands) = (Vec::new(), Vec::new());
    for line in text.lines().filter_map(|line| line.strip_prefix("//~ ")) {
        let (times, begin) = match line.split_once(" x ") {
            Some((times, begin)) => (times.parse().expect("a number before ` x `"), begin),
            None => (1, line),
        };
        if begin.starts_with("error") {
            begins.resize(begins.len() + times, begin);
        } else {
            stands.push(line);
        }
    }
    (begins, stands)
}

/// Returns what is wrong with the messages of a case.
fn difference(compiler: &Compiler, case: &Path) -> Option<String> {
    let errors = compiler.errors_of(case);
    let text = fs::read_to_string(Path::new("tests/messages").join(case)).expect("a case");
    let (begins, stands) = expected(&text);
    assert!(!begins.is_empty() && !stands.is_empty(), "{case:?} expects");
    let found: Vec<_> = errors
        .lines()
        .filter(|line| line.starts_with("error") && !line.starts_with("error: aborting"))
        .collect();
    let same = found.len() == begins.len()
        && found
            .iter()
            .zip(&begins)
            .all(|(line, begin)| line.starts_with(begin));
    let silent: Vec<_> = stands
        .iter()
        .filter(|words| !errors.contains(**words))
        .collect();
    (!same || !silent.is_empty()).then(|| {
        format!(
            "{}: expected {begins:#?}, not said {silent:#?}, found\n{errors}",
            case.display()
        )
    })
}

/// Compiles the cases of a folder, on both processors of a small machine.
fn messages_are_as_expected(folder: &str, features: &[&str], count: usize) {
    let compiler = &Compiler::with(
        features,
        &["axum", "http", "tollgate", "tonic", "tower", "tower_http"],
    );
    let files = fs::read_dir(Path::new("tests/messages").join(folder)).expect("a folder");
    let files = files.map(|file| file.expect("a file").file_name());
    let cases: Vec<_> = files
        .map(|name| Path::new(folder).join(name))
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    assert_eq!(cases.len(), count, "cases of {folder}");
    let half = |cases: &[PathBuf]| -> Vec<_> {
        let all = cases.iter();
        all.filter_map(|case| difference(compiler, case)).collect()
    };
    let (first, second) = cases.split_at(count / 2);
    let differences = thread::scope(|scope| {
        let first = scope.spawn(|| half(first));
        let second = half(second);
        [first.join().expect("a thread of the cases"), second].concat()
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[cfg(all(
    feature = "axum",
    feature = "redis",
    feature = "serde",
    feature = "tonic",
    feature = "tracing"
))]
#[test]
fn messages_name_the_remedy() {
    messages_are_as_expected("cases", &["--all-features"], 40);
}

#[cfg(not(feature = "tokio"))]
#[test]
fn methods_that_wait_name_their_feature() {
    messages_are_as_expected("cases/no_tokio", &["--no-default-features"], 2);
}

#[cfg(all(feature = "redis", not(feature = "redis-tls")))]
#[test]
fn methods_for_certificates_name_their_feature() {
    messages_are_as_expected("cases/no_tls", &["--features=redis"], 1);
}

//! The examples of the pages, compiled where users put them: in a task that is spawned, which must
//! be `Send`.
//!
//! Each example of README and guide runs as a test of the documentation, but there in `main`, whose
//! future may be anything. The programs of the guide run as tests, which may be anything, too.

use std::{fmt::Write, fs, process::Command};

use super::Compiler;

/// Crates that the examples use.
const USED: [&str; 15] = [
    "axum",
    "bytes",
    "futures_util",
    "http",
    "http_body_util",
    "metrics_exporter_prometheus",
    "serde",
    "serde_json",
    "support",
    "tokio",
    "tollgate",
    "tonic",
    "tower",
    "tower_http",
    "tracing",
];

/// Returns the Rust examples of a page with the numbers of their first lines, and with the lines
/// that are hidden.
fn examples(page: &str) -> Vec<(usize, String)> {
    let (mut examples, mut open) = (Vec::new(), None::<(usize, String)>);
    for (number, line) in (1..).zip(page.lines()) {
        let Some(kind) = line.strip_prefix("```") else {
            if let Some((_, code)) = &mut open {
                let hidden = line.trim_start().strip_prefix("# ");
                let line = hidden.unwrap_or(if line == "#" { "" } else { line });
                writeln!(code, "{line}").expect("a string takes text");
            }
            continue;
        };
        open = match open.take() {
            // What has another name than these is no Rust.
            None if ["", "rust", "rust,no_run"].contains(&kind) => Some((number, String::new())),
            None => Some((0, String::new())),
            Some((0, _)) => None,
            Some(example) => {
                examples.push(example);
                None
            }
        };
    }
    assert!(open.is_none(), "an example without an end");
    examples
}

/// Returns an example as a function that hands it to what spawns tasks. What it holds lives until
/// the end, across an `await`.
fn spawned(name: &str, code: &str) -> String {
    let mut body = String::new();
    for line in code.lines() {
        let is_attribute = line.starts_with("#[tokio::main") || line.starts_with("#[cfg(");
        let line = match line.split_once("async fn main()") {
            Some((_, signature)) => &format!("async fn example(){signature}"),
            None if line.starts_with("#[cfg(not(") && line.ends_with("fn main() {}") => continue,
            None if is_attribute => continue,
            // The result of an example without a `main`.
            None if line.starts_with("Ok::<") => {
                &format!("tokio::task::yield_now().await;\n{line}")
            }
            None => line,
        };
        writeln!(body, "{line}").expect("a string takes text");
    }
    let future = match body.contains("async fn example()") {
        true => format!("{body}\nspawn(example());"),
        false if body.contains("fn main()") => body,
        false if body.contains("tokio::task::yield_now().await;\nOk::<") => {
            format!("spawn(async {{\n{body}\n}});")
        }
        false => format!("spawn(async {{\n{body};\ntokio::task::yield_now().await;\n}});"),
    };
    format!("fn {name}() {{\n{future}\n}}\n")
}

/// Returns a module of `examples/guide`, whose tests are spawned instead of run.
fn program(name: &str, text: &str) -> String {
    let (mut module, mut spawned) = (String::new(), false);
    for line in text.lines() {
        let code = line.trim();
        if code.starts_with("#[tokio::test") {
            spawned = true;
            continue;
        }
        if std::mem::take(&mut spawned) {
            let test = code.strip_prefix("async fn ");
            let test = test.and_then(|test| test.strip_suffix("() {"));
            let test = test.expect("an asynchronous test without arguments");
            writeln!(module, "const _: fn() = || crate::spawn({test}());")
                .expect("a string takes text");
        }
        if code != "#[cfg(test)]" {
            writeln!(module, "{line}").expect("a string takes text");
        }
    }
    format!("mod {name} {{\n{module}}}\n")
}

#[test]
fn examples_compile_in_a_spawned_task() {
    let mut all = "#![allow(warnings)]\nfn spawn(_: impl Future + Send + 'static) {}\n".to_owned();
    let mut count = 0;
    let pages = fs::read_dir("src/guide").expect("a folder");
    let pages = pages.map(|entry| entry.expect("an entry").path());
    for page in pages.chain(["README.md".into()]) {
        let text = fs::read_to_string(&page).expect("a page");
        let name = page.file_stem().and_then(|name| name.to_str());
        let name = name.expect("a name").to_lowercase();
        for (line, code) in examples(&text) {
            all += &spawned(&format!("{name}_{line}"), &code);
            count += 1;
        }
    }
    for entry in fs::read_dir("examples/guide").expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.expect("a name").to_owned();
        if name != "main" {
            let text = fs::read_to_string(&path).expect("a program");
            all += &program(&name, &text);
            count += 1;
        }
    }
    assert!(count >= 25, "{count} examples");
    all += "fn main() {}\n";

    let compiler = Compiler::with(&["--all-features"], &USED);
    let file = compiler.written.join("examples.rs");
    fs::create_dir_all(&compiler.written).expect("a folder");
    fs::write(&file, all).expect("a file");
    let output = Command::new("rustc")
        .args([
            "--edition=2024",
            "--emit=metadata",
            "--diagnostic-width=140",
        ])
        .arg("--out-dir")
        .arg(&compiler.written)
        .args(&compiler.libraries)
        .arg(&file)
        .output()
        .expect("the compiler runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the functions are named by page and line, the modules are programs:\n{errors}"
    );
}

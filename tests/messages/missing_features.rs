//! Compiler messages for methods behind a disabled feature: they name the feature.
//!
//! Run `cargo test --no-default-features [--features redis] --test messages` with the compiler of
//! `compile_fail.rs`, and with `TRYBUILD=overwrite` to write the files.

use std::{env, fs, path::Path, process::Command};

/// The compiler that the `.stderr` files were written with.
const WRITTEN_WITH: &str = "rustc 1.95.";

/// Compares the messages with the files, and the files with the text expected for each method.
fn each_method_names_its_feature(feature: &str, folder: &str, methods: &[&str]) {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    let version = output.expect("rustc runs").stdout;
    let version = String::from_utf8_lossy(&version);
    if version.starts_with(WRITTEN_WITH) && !version.contains("nightly") {
        trybuild::TestCases::new().compile_fail(format!("tests/compile_fail/{folder}/*.rs"));
    } else {
        println!(
            "skipped: the messages are those of {WRITTEN_WITH}x, and this is {}",
            version.trim()
        );
    }
    let cases = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/compile_fail")
        .join(folder);
    let files = fs::read_dir(cases).expect("the cases are there");
    let files = files.map(|file| file.expect("a file").path());
    let messages: String = files
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "stderr")
        })
        .map(|path| fs::read_to_string(path).expect("a text"))
        .collect();
    let message = format!("error[E0277]: this method needs the feature `{feature}` of tollgate");
    assert_eq!(
        messages.matches(&message).count(),
        methods.len(),
        "{messages}"
    );
    assert_eq!(
        messages.matches("error[").count(),
        methods.len(),
        "{messages}"
    );
    for method in methods {
        let bound = format!("::{method}`\n");
        assert!(messages.contains(&bound), "{method}: {messages}");
    }
}

#[cfg(not(feature = "tokio"))]
#[test]
fn methods_that_wait_name_their_feature() {
    let methods = [
        "timeout",
        "until_ready",
        "until_ready_for",
        "stream",
        "stream_by",
    ];
    each_method_names_its_feature("tokio", "no_tokio", &methods);
}

#[cfg(all(feature = "redis", not(feature = "redis-tls")))]
#[test]
fn methods_for_certificates_name_their_feature() {
    let methods = ["root_certificate", "client_certificate", "plain_sentinels"];
    each_method_names_its_feature("redis-tls", "no_tls", &methods);
}

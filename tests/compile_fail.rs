//! What the compiler says to those who put the parts together wrongly.
//!
//! After a change of a message, or with a new compiler: `TRYBUILD=overwrite cargo test --all-features --test
//! compile_fail`, and read the difference.
#![cfg(all(feature = "axum", feature = "serde", feature = "tokio", feature = "tonic", feature = "tracing"))]

use std::{env, process::Command};

/// The compiler that the `.stderr` files were written with. Others word their messages otherwise.
const WRITTEN_WITH: &str = "rustc 1.95.";

#[test]
fn messages_name_the_remedy() {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().expect("rustc runs");
    let version = String::from_utf8_lossy(&output.stdout);
    if !version.starts_with(WRITTEN_WITH) || version.contains("nightly") {
        println!("skipped: the messages are those of `{WRITTEN_WITH}x`, and this is `{}`", version.trim());
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

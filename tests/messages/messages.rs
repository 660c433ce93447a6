//! Messages of the compiler for parts that do not fit together, or whose feature is off.
#![allow(dead_code, reason = "some features leave nothing to compare")]

#[cfg(all(
    feature = "axum",
    feature = "redis",
    feature = "serde",
    feature = "tokio",
    feature = "tonic",
    feature = "tracing"
))]
mod compile_fail;
#[cfg(any(
    not(feature = "tokio"),
    all(feature = "redis", not(feature = "redis-tls"))
))]
mod missing_features;

/// The compiler that the `.stderr` files were written with. Others have different messages.
const WRITTEN_WITH: &str = "rustc 1.95.";

/// Compares the messages of the cases with their files, if this is the compiler that these were written with.
fn compare(cases: &str) {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = std::process::Command::new(rustc).arg("--version").output();
    let version = output.expect("rustc runs").stdout;
    let version = String::from_utf8_lossy(&version);
    if version.starts_with(WRITTEN_WITH) && !version.contains("nightly") {
        trybuild::TestCases::new().compile_fail(cases);
    } else {
        println!(
            "skipped: the messages are those of {WRITTEN_WITH}x, and this is {}",
            version.trim()
        );
    }
}

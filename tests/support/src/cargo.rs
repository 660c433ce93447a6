use std::{env, process::Command};

/// Returns a command that runs cargo in a folder, and builds again only what has changed.
///
/// Cargo sets variables for a test that build scripts look at: with them, they would run again.
pub fn cargo(folder: &str) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}

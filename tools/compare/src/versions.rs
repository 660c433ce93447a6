//! Versions of the libraries that are run.

/// What cargo chose.
const LOCK: &str = include_str!("../Cargo.lock");

/// Returns the version of a package.
pub fn of(package: &str) -> &'static str {
    let name = format!("name = \"{package}\"");
    let mut lines = LOCK.lines().skip_while(|line| *line != name);
    let version = lines
        .nth(1)
        .and_then(|line| line.strip_prefix("version = \""));
    let version = version.and_then(|line| line.strip_suffix('"'));
    version.unwrap_or_else(|| panic!("expected {package} in Cargo.lock"))
}

#!/usr/bin/env bash
# Tests the package as a registry would publish it: publishes it, but for the upload; builds its documentation and its own unit
# tests with all features; and follows the links of all pages. Arguments are flags for rustdoc.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}
[[ $CARGO_TARGET_DIR = /* ]] || CARGO_TARGET_DIR=$PWD/$CARGO_TARGET_DIR

# Quietly: they would warn of each test and benchmark that is left out on purpose. The first keeps no archive.
cargo publish --dry-run --quiet --locked --allow-dirty
cargo package --quiet --locked --allow-dirty --no-verify
archive=$(ls -t "$CARGO_TARGET_DIR"/package/tollgate-*.crate | head -n 1)
package=${archive%.crate}
rm -rf "$package"
tar -xzf "$archive" -C "${package%/*}"
cd "$package"
# Another version: cargo would take it for the crate at the root of its own workspace, whose files in the target folder would be
# replaced, and no longer built again after a change.
sed -i '0,/^version = "\(.*\)"/s//version = "\1+package"/' Cargo.toml

# Without pages that are gone.
rm -rf "$CARGO_TARGET_DIR/doc/tollgate"
RUSTDOCFLAGS="$*" cargo doc --all-features --no-deps
cargo test --all-features --lib --no-run

# Everything that the pages of the package, its documentation, and those of the repository link to.
python3 "$OLDPWD/tests/links.py" .
python3 "$OLDPWD/tests/links.py" "$CARGO_TARGET_DIR/doc/tollgate"
python3 "$OLDPWD/tests/links.py" "$OLDPWD"

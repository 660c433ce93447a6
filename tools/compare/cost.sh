#!/usr/bin/env bash
# Prints, as a Markdown table, what a hello-world server of axum costs to compile: alone, with tower_governor, and with tollgate.
# Each is built three times (`ROUNDS`) from nothing, in turns, and the least time counts. Takes some minutes of an idle machine. On
# a busy one, the seconds of processors say more than those of the clock.
set -euo pipefail
cd "$(dirname "$0")"
unset RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER RUSTFLAGS CARGO_BUILD_JOBS CARGO_INCREMENTAL
rounds=${ROUNDS:-3}
programs=(nothing tower_governor tollgate)
root=$(cd ../.. && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for program in "${programs[@]}"; do
  cp -r "cost/$program" "$folder/$program"
  sed -i "s|\"../../../..\"|\"$root\"|" "$folder/$program/Cargo.toml"
  # The versions of the comparison, so that a new release of a dependency changes none of the programs alone.
  cp Cargo.lock "$folder/$program/Cargo.lock"
  cargo fetch --quiet --manifest-path "$folder/$program/Cargo.toml"
done

# Builds from nothing, moves the program to `$folder/$1/server`, and prints the milliseconds by the clock and of processors.
build() {
  local target=$folder/target
  {
    TIMEFORMAT='%R %U %S'
    time CARGO_TARGET_DIR=$target CARGO_PROFILE_RELEASE_STRIP=true \
      cargo build --quiet --release --offline --locked --manifest-path "$folder/$1/Cargo.toml" >&2
  } 2>"$folder/time"
  mv "$target/release/server" "$folder/$1/server"
  rm -rf "$target"
  awk '{ printf "%d %d\n", 1000 * $1, 1000 * ($2 + $3) }' "$folder/time"
}

# The least values of each program.
declare -A clock processors
for ((round = 1; round <= rounds; round++)); do
  for program in "${programs[@]}"; do
    read -r by_clock by_processors < <(build "$program")
    echo "round $round, $program: $by_clock ms, processors $by_processors ms; load $(cut -d' ' -f1 /proc/loadavg)" >&2
    [ "${clock[$program]:-999999999}" -le "$by_clock" ] || clock[$program]=$by_clock
    [ "${processors[$program]:-999999999}" -le "$by_processors" ] || processors[$program]=$by_processors
  done
done

# Crates that are compiled for the program, but for itself: also build scripts and macros.
crates() {
  cargo tree --offline --locked --manifest-path "$folder/$1/Cargo.toml" --edges normal,build --prefix none --no-dedupe |
    cut -d' ' -f1,2 | sort -u | grep -vc -- '-server '
}

version() { sed -n "/^name = \"$1\"$/{n;s/^version = \"\(.*\)\"$/\1/p}" "$folder/$1/Cargo.lock"; }

base_crates=$(crates nothing)
base_bytes=$(stat -c %s "$folder/nothing/server")
echo "| axum hello world | crates | seconds of a clean release build | seconds of processors | stripped program |"
echo "|---|---|---|---|---|"
for program in "${programs[@]}"; do
  bytes=$(stat -c %s "$folder/$program/server")
  name="with $program"
  [ "$program" = nothing ] && name=alone || name+=" $(version "$program")"
  awk -v name="$name" -v crates="$(crates "$program")" -v base_crates="$base_crates" -v bytes="$bytes" -v base_bytes="$base_bytes" \
    -v time="${clock[$program]}" -v base_time="${clock[nothing]}" \
    -v work="${processors[$program]}" -v base_work="${processors[nothing]}" 'BEGIN {
      if (name == "alone") printf "| %s | %d | %.1f | %.1f | %.0f kB |\n", name, crates, time / 1000, work / 1000, bytes / 1000
      else printf "| %s | %d (+%d) | %.1f (%+.1f) | %.1f (%+.1f) | %.0f kB (%+.0f) |\n", name, crates, crates - base_crates,
        time / 1000, (time - base_time) / 1000, work / 1000, (work - base_work) / 1000, bytes / 1000, (bytes - base_bytes) / 1000
    }'
done
echo
echo "$(rustc --version | cut -d' ' -f1,2), $(nproc) processors, least of $rounds"

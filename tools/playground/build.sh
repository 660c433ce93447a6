#!/usr/bin/env bash
# Builds the playground: one HTML file, with the rules as WebAssembly, the style and the script inside. Prints its name.
set -euo pipefail
cd "$(dirname "$0")"

triple=wasm32-unknown-unknown
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$triple" ]; then
  echo "build.sh: no standard library for $triple; install it first: rustup target add $triple" >&2
  exit 1
fi
target=${CARGO_TARGET_DIR:-$PWD/../../target}
mkdir -p "$target/playground"
target=$(cd "$target" && pwd)
cargo build --locked --release --target "$triple" --target-dir "$target"
base64 <"$target/$triple/release/playground.wasm" | tr -d '\n' >"$target/playground/playground.wasm.base64"

# A line `@include FILE` becomes the file; within a line, only the module is included.
awk -v module="$target/playground/playground.wasm.base64" '
  function text(file,    line, all) {
    while ((got = (getline line < file)) > 0) all = all (all == "" ? "" : "\n") line
    if (got < 0) { print "build.sh: cannot read " file > "/dev/stderr"; exit 1 }
    close(file)
    return all
  }
  match($0, /@include playground\.wasm/) {
    print substr($0, 1, RSTART - 1) text(module) substr($0, RSTART + RLENGTH)
    next
  }
  $1 == "@include" { print text("page/" $2); next }
  { print }
' page/page.html >"$target/playground/index.html"
rm "$target/playground/playground.wasm.base64"
echo "$target/playground/index.html"

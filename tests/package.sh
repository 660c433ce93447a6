#!/usr/bin/env bash
# Tests the package as a registry would publish it: builds its documentation and its own unit tests with all features, and
# follows each link of its README. Arguments are flags for rustdoc.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}
[[ $CARGO_TARGET_DIR = /* ]] || CARGO_TARGET_DIR=$PWD/$CARGO_TARGET_DIR

# Quietly: it would warn of each test and benchmark that is left out on purpose.
cargo package --quiet --locked --allow-dirty --no-verify
archive=$(ls -t "$CARGO_TARGET_DIR"/package/tollgate-*.crate | head -n 1)
package=${archive%.crate}
rm -rf "$package"
tar -xzf "$archive" -C "${package%/*}"
cd "$package"
# Another version: cargo would take it for the crate at the root of its own workspace, whose files in the target folder would be
# replaced, and no longer built again after a change.
sed -i '0,/^version = "\(.*\)"/s//version = "\1+package"/' Cargo.toml

RUSTDOCFLAGS="$*" cargo doc --all-features --no-deps
cargo test --all-features --lib --no-run

# The anchors of a page's headings, which are not inside of code: lower case, no punctuation, dashes for spaces.
anchors() { sed '/^```/,/^```/d' "$1" | sed -n 's/^#\{1,6\} //p' | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g'; }

links=$(grep -oE '\]\([^) ]+' README.md | sed 's/^](//' | grep -vE '^https?:' || true)
[ -n "$links" ] || { echo "package.sh: expected links in README.md" >&2; exit 1; }
failed=0
while read -r link; do
  file=${link%%#*}
  if [ ! -e "${file:-README.md}" ]; then
    echo "README.md links to $file, which the package does not contain: name it without a link, as \`$file\`" >&2
    failed=1
  elif [[ $link = *#* ]] && ! anchors "${file:-README.md}" | grep -xF "${link#*#}" >/dev/null; then
    echo "README.md links to $link: expected one of the headings of ${file:-README.md}" >&2
    failed=1
  fi
done <<<"$links"
echo "package: $(wc -l <<<"$links") links of the README"
exit $failed

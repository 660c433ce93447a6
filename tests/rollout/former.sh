#!/usr/bin/env bash
# Extracts the former release from the history of this repository into `former/`, where Cargo.toml expects it.
set -euo pipefail
cd "$(dirname "$0")"

# The release that runs while this one is rolled out.
commit=fa86b020cf8ee3bd7014fe66d904c5dd1c4d8a31

if [ "$(cat former/COMMIT 2>/dev/null)" = "$commit" ]; then
  exit
fi
root=$(git rev-parse --show-toplevel)
if ! git cat-file -e "$commit^{commit}" 2>/dev/null &&
  ! git fetch --quiet --depth 1 origin "$commit"; then
  echo "former.sh: this clone lacks the commit $commit, the former release, and \`git fetch origin\` did not get it;" \
    "fetch it (\`git fetch --unshallow\`) and try again" >&2
  exit 1
fi
rm -rf former
mkdir former
# Files get the time of extraction (`-m`), because cargo rebuilds only what is newer than its last build. `src` includes
# the pages as documentation.
git -C "$root" archive "$commit" Cargo.toml src README.md DESIGN.md BENCHMARKS.md | tar -x -m -C former
# A lock file cannot tell two packages of one name and version in folders apart.
sed -i '0,/^version = .*/s//version = "0.0.0"/' former/Cargo.toml
# Last, so that an extraction that was interrupted is repeated.
echo "$commit" >former/COMMIT

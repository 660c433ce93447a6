#!/usr/bin/env bash
# Extracts the former release from the history of this repository into `former/`, where Cargo.toml expects it.
set -euo pipefail
cd "$(dirname "$0")"

# The release to roll out from: the last one that keeps a sliding log in one value of Redis. It has leases, background
# synchronisation, blocks and remembered refusals. Since then, what is stored has changed for logs in Redis, for counted nodes
# in memcached, for refunds and grants under leases, and for queues that clients leave; so each of these is read both ways.
commit=983d1ac420bf2cb358cd3ea7319a02ddcfa59d8d

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
# Files get the time of extraction (`-m`), because cargo rebuilds only files newer than its last build. `src` contains
# the documentation pages.
git -C "$root" archive "$commit" Cargo.toml src README.md DESIGN.md BENCHMARKS.md | tar -x -m -C former
# A lock file cannot distinguish two packages in folders with one name and version.
sed -i '0,/^version = .*/s//version = "0.0.0"/' former/Cargo.toml
# Written last, so that an interrupted extraction is repeated.
echo "$commit" >former/COMMIT

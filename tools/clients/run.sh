#!/usr/bin/env bash
# Which rate limit fields do clients read? Measures it, and prints the tables of src/clients.md.
#
#   tools/clients/run.sh           prints the tables
#   tools/clients/run.sh --write   writes them into src/clients.md
#
# Needs cargo, curl, wget and Python 3.10 or later with venv. Installs the pinned packages of requirements.txt and package.json
# from PyPI and npm into target/clients, and so is no part of ./test.sh. Servers and clients use the loopback only. Takes
# about a minute once everything is installed.
set -euo pipefail
cd "$(dirname "$0")/../.."

installed=$PWD/target/clients
[ -x "$installed/venv/bin/python" ] || python3 -m venv "$installed/venv"
"$installed/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r tools/clients/requirements.txt

# Node.js is one of the Python packages.
export PATH="$installed/venv/bin:$PATH"
cp tools/clients/package.json tools/clients/clients.mjs "$installed/"
npm install --prefix "$installed" --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error

cargo build --locked --features axum,tonic --example quickstart --example tonic
cargo build --locked --package clients

exec python tools/clients/measure.py "$@"

#!/bin/sh
# Runs the tests against real brokers: ./real.sh HOST:PORT[,HOST:PORT]
set -eu
cd "$(dirname "$0")"
if [ $# -ne 1 ]; then
  echo "real.sh: expected the address of a broker, as in ./real.sh 127.0.0.1:9092" >&2
  exit 2
fi
TOLLGATE_KAFKA=$1 cargo test --locked

#!/bin/sh
# Runs the tests against real brokers: TOLLGATE_KAFKA=HOST:PORT[,HOST:PORT] ./real.sh
#
# Needs brokers without TLS and passwords, which let anybody create topics, produce, and form groups with sessions of 6 s; a compiler of Rust, a C compiler, and make.
# Each test creates two topics of its own, limits-… and limits-….totals with 3 partitions and one copy, and leaves them there.
# One test is left out: it stops the broker of the mock cluster.
set -eu
cd "$(dirname "$0")"
if [ $# -eq 1 ]; then
  TOLLGATE_KAFKA=$1
fi
if [ $# -gt 1 ] || [ -z "${TOLLGATE_KAFKA:-}" ]; then
  echo "real.sh: expected the address of a broker, as in TOLLGATE_KAFKA=127.0.0.1:9092 ./real.sh" >&2
  exit 2
fi
export TOLLGATE_KAFKA
cargo test --locked -- --test-threads=8

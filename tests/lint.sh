#!/usr/bin/env bash
# Stands before the compiler for the packages of a workspace: Clippy lints while it compiles, and any warning fails. `cargo
# clippy` would compile all dependencies a second time, for their types only.
exec clippy-driver "$@" -D warnings

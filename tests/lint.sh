#!/usr/bin/env bash
# Stands before the compiler for the packages of a workspace: Clippy lints while it compiles. `cargo clippy` would compile all
# dependencies a second time, for their types only. The variable has what a warning means, as in `-D warnings`.
# shellcheck disable=SC2086
exec clippy-driver "$@" $TOLLGATE_LINT

#!/bin/sh
# Compiles Laxity's own crates with the flags in COVERAGE, and all others, and build scripts, without:
# cargo calls this with rustc and its arguments.
case "$CARGO_PKG_NAME $*" in
laxity*' --crate-name build_script_'*) exec "$@" ;;
laxity*) exec "$@" $COVERAGE ;;
*) exec "$@" ;;
esac

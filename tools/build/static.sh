#!/bin/sh
# Compiles Laxity's own crates so that their programs are linked without libraries, as guests have none:
# cargo calls this with rustc and its arguments. Other crates are the same for programs of both kinds.
case "$*" in
*' --crate-name laxity_'*) exec "$@" -C target-feature=+crt-static -C strip=symbols ;;
*) exec "$@" ;;
esac

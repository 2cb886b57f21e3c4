#!/usr/bin/env bash
# build.sh BUILD BIN: the site in BUILD/book, from the programs in BIN; decks are taken along if BUILD/slides has them.
set -eu
build=$(realpath "$1")
bin=$(realpath "$2")
cd "$(dirname "$0")"
# npm writes down what it installed: again only if that is older than what is asked for.
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --no-audit --no-fund --loglevel=error
./wasm.sh "$build/book-wasm"
node build.mjs "$build/book" "$bin" "$build/book-wasm" "$build/slides"

#!/usr/bin/env bash
# Builds bindings/python (strand_chain) and installs it into .venv, which scripts/setup.sh has made.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! CARGO_TARGET_DIR=$target VIRTUAL_ENV=$PWD/.venv .venv/bin/maturin develop --release --locked \
    --manifest-path bindings/python/Cargo.toml >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi

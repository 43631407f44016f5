#!/usr/bin/env bash
# make slowest: runs the tests of the workspace and prints the ten that took longest, with their seconds and their binary.
# ARGS is given to `cargo test` (ARGS='-p strand-engine'). Tests run side by side, so a time is what the test took on a busy machine.
set -euo pipefail
cd "$(dirname "$0")/.."
shown=10
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# libtest measures each test only with an option that the stable toolchain hides. The variable unhides it for the test binaries;
# given to cargo, the variable would build everything again.
runner=CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')_RUNNER
[ $# -gt 0 ] || set -- --workspace
env "$runner=env RUSTC_BOOTSTRAP=1" "${CARGO:-cargo}" test "$@" --lib --bins --tests --no-fail-fast -- -Zunstable-options --report-time \
    >"$log" 2>&1 && passed=yes || passed=no
# "     Running tests/server/main.rs (target/debug/deps/server-0123)", then "test expiry::a_key_ends ... ok <1.234s>".
awk -v shown=$shown '
    /^ *Running / { binary = $0; sub(/.*deps\//, "", binary); sub(/-[0-9a-f]+\).*/, "", binary) }
    /^test .* <[0-9.]+s>$/ { time = $NF; gsub(/[<s>]/, "", time); printf "%9.3f s  %s %s\n", time, binary, $2 }
' "$log" | sort -rn | head -n $shown
if [ $passed = no ]; then
    grep -E '^test .*FAILED|^error' "$log" >&2 || tail -20 "$log" >&2
    exit 1
fi

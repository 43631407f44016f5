#!/usr/bin/env bash
# make bisect: finds the commit after which a request of one row of `make versus` costs more instructions.
#   ROW='SET p30'  a speed row of `make versus`
#   GOOD=COMMIT    a commit at which the row was cheaper
#   BAD=COMMIT     a commit at which the row is dearer (HEAD unless given)
#   PROFILE=quick  the profile that each commit is built with (quick: no link-time optimisation; release takes minutes more)
#   REQUESTS=50000 requests that are counted: fewer are quicker and less exact
# The rows and the program that counts come from this checkout, so every commit is measured in one way. Commits are checked out
# and built in target/bisect. Your own checkout stays as it is. A commit that does not build is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

# Seconds that the build and the count of one commit may take. A commit that takes longer is skipped.
build_s=3600
count_s=600
# If BAD costs less than this percentage more than GOOD, the search ends, because counts differ a little between runs.
percent_min=2

# Prints the count of the commit that is checked out. Without a count it fails with 125, so that `git bisect` skips the commit.
count() {
    (cd "$tree" && timeout "$build_s" cargo build --quiet --profile "$profile" -p strand-server --bin strand) >&2 || return 125
    # The profile `dev` writes into the folder `debug`.
    timeout "$count_s" "$counter" --strand "$CARGO_TARGET_DIR/${profile/#dev/debug}/strand" --only "$row" --requests "$requests" || return 125
}

if [ "${1:-}" = step ]; then
    # `git bisect run` calls this script from the tree that it has checked out.
    read -r told < <(count) || exit 125
    echo "$(git -C "$tree" log -1 --format='%h %s'): $told"
    [ "${told%% *}" -le "$limit" ]
    exit
fi

export row=${ROW:?"make bisect ROW='SET p30' GOOD=COMMIT [BAD=COMMIT]"} profile=${PROFILE:-quick} requests=${REQUESTS:-50000}
good=$(git rev-parse --verify "${GOOD:?"make bisect ROW='SET p30' GOOD=COMMIT [BAD=COMMIT]"}^{commit}")
bad=$(git rev-parse --verify "${BAD:-HEAD}^{commit}")
command -v valgrind >/dev/null || { echo "bisect: needs valgrind (apt install valgrind)" >&2; exit 1; }
cargo build --release --quiet -p strand-bench --bin instructions
out=$(realpath -m target/bisect)
mkdir -p "$out"
# Use copies, because the checkout may change while commits are built.
cp "${CARGO_TARGET_DIR:-target}/release/instructions" "$out/instructions"
cp scripts/bisect.sh "$out/bisect.sh"
export counter=$out/instructions tree=$out/tree CARGO_TARGET_DIR=$out/target
git worktree prune
[ -e "$tree" ] || git worktree add --quiet --detach "$tree" "$bad"
cleanup() { git -C "$tree" bisect reset >/dev/null 2>&1 || true; git worktree remove --force "$tree"; }
trap cleanup EXIT

measure() {
    git -C "$tree" checkout --quiet --detach "$1"
    local told
    told=$(count) || { echo "bisect: $1 cannot be measured" >&2; exit 1; }
    echo "$(git -C "$tree" log -1 --format='%h %s'): $told" >&2
    echo "${told%% *}"
}
of_good=$(measure "$good")
of_bad=$(measure "$bad")
if [ $((of_bad * 100)) -lt $((of_good * (100 + percent_min))) ]; then
    echo "bisect: BAD costs less than $percent_min % more instructions than GOOD; so the server's own code is not the cause"
    exit 1
fi
# A commit is bad if its count is nearer to the count of BAD than to the count of GOOD.
export limit=$(((of_good + of_bad) / 2))
git -C "$tree" bisect start "$bad" "$good"
git -C "$tree" bisect run bash "$out/bisect.sh" step

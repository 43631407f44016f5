#!/usr/bin/env bash
# make release VERSION=x.y.z: does the part of docs/releasing.md that a machine can do. The script checks the version, the changelog, the
# tree and the tag. Then it makes in target/package: strand.deb (and tries it), strand.cdx.json (the SBOM), notes.md (the changelog's section)
# and SHA256SUMS. It changes no file of the tree, makes no tag and uploads nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?"make release VERSION=x.y.z"}
out=${CARGO_TARGET_DIR:-target}/package
failed=0
check() {
    if [ -z "$2" ]; then echo "ok    $1"; else echo "FAIL  $1: $2"; failed=1; fi
}

in_manifest=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
check "Cargo.toml has version $version" "$([ "$in_manifest" = "$version" ] || echo "it has $in_manifest; change [workspace.package]")"
check "Cargo.lock follows" "$(cargo metadata --format-version 1 --locked --no-deps >/dev/null 2>&1 || echo 'run cargo build')"
headings=$(grep -m2 '^## ' CHANGELOG.md)
check "CHANGELOG.md begins with Unreleased, then $version with a date" \
    "$(printf '%s' "$headings" | tr '\n' '|' | grep -qE "^## Unreleased\|## ${version//./\\.} \([0-9]{4}-[0-9]{2}-[0-9]{2}\)" || echo "it begins with $(printf '%s' "$headings" | tr '\n' ' ')")"
section() { awk -v heading="## $1" 'index($0, heading) == 1 { on = 1; next } /^## / { on = 0 } on' CHANGELOG.md; }
check "Unreleased is empty" "$(section Unreleased | grep -q . && echo 'move its lines into the section of the version')"
check "the section of $version says something" "$(section "$version " | grep -q . || echo 'it is empty')"
check "every change is committed" "$(git status --porcelain | head -3 | tr '\n' ' ')"
check "the branch is main" "$(branch=$(git branch --show-current); [ "$branch" = main ] || echo "it is ${branch:-none}")"
check "the tag v$version is free" "$(git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null && echo 'there is one')"
if [ $failed != 0 ]; then
    echo "release: made nothing. Correct what the lines with FAIL say, then run this again." >&2
    exit 1
fi

cargo build --release --quiet -p strand-server
scripts/package.sh target/release/strand
cargo xtask sbom >"$out/strand.cdx.json"
section "$version " >"$out/notes.md"
(cd "$out" && sha256sum strand.deb strand.cdx.json >SHA256SUMS && cat SHA256SUMS)
cat <<EOF

Made: $out/strand.deb, strand.cdx.json, notes.md, SHA256SUMS. By hand (docs/releasing.md):
  git tag v$version && git push origin main v$version
  upload the four files
EOF

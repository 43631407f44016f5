#!/usr/bin/env bash
# A part of make test-real: tests the importer with real servers and with large sources, beside other programs for the job.
# Installs what `make test` does not need: Debian's restic, faketime, and nfs-ganesha with libnfs and FUSE. Also installs versitygw
# (an S3 server over a folder), which the Go toolchain builds from its module once (two to four minutes). Without Go, the script
# uses rclone's S3 server, and says so.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
strand="$1"

missing=()
command -v restic >/dev/null || missing+=(restic)
command -v faketime >/dev/null || missing+=(faketime)
command -v ganesha.nfsd >/dev/null || missing+=(nfs-ganesha nfs-ganesha-vfs)
command -v pkg-config >/dev/null || missing+=(pkg-config)
[ -e /usr/include/nfsc/libnfs.h ] || missing+=(libnfs-dev)
[ -e /usr/include/fuse3/fuse.h ] || missing+=(libfuse3-dev fuse3)
install_missing
if [ -z "${VERSITYGW:-}" ]; then
    tools="$PWD/target/real"
    if [ ! -x "$tools/bin/versitygw" ] && command -v go >/dev/null; then
        echo "real: building versitygw"
        GOFLAGS=-modcacherw GOBIN="$tools/bin" GOPATH="$tools/go" GOCACHE="$tools/cache" \
            go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
    fi
    if [ -x "$tools/bin/versitygw" ]; then
        export VERSITYGW="$tools/bin/versitygw"
    else
        echo "real: SKIPPED versitygw: there is no Go toolchain; the S3 server is rclone's"
    fi
fi
# A SolrCloud of two nodes from Maven's registry: 90 MB, once.
if command -v mvn >/dev/null && command -v javac >/dev/null; then
    export SOLR="$PWD/target/real/solr"
    mkdir -p "$SOLR"
    if [ ! -e "$SOLR/cp.txt" ]; then
        echo "real: fetching Solr"
        mvn -q -B -f tests/real/solr/pom.xml dependency:build-classpath -Dmdep.outputFile="$SOLR/cp.new" -Dmdep.includeScope=runtime
        mv "$SOLR/cp.new" "$SOLR/cp.txt"
    fi
    javac -nowarn -cp "$(cat "$SOLR/cp.txt")" -d "$SOLR/out" tests/real/solr/SolrNode.java
else
    echo "real: SKIPPED Solr: there is no mvn or javac"
fi
KILLS=200 .venv/bin/python tests/sinks.py "$strand"
JOBS=200 .venv/bin/python tests/jobs.py "$strand"
exec .venv/bin/python tests/real.py "$strand"

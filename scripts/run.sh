#!/usr/bin/env bash
# make run: start a server, import examples/mail into it, say what to try; Ctrl-C stops it gracefully.
set -euo pipefail
cd "$(dirname "$0")/.."
port=${PORT:-6379}
strand=target/release/strand

started=$(mktemp)
# In a session of its own, Ctrl-C reaches the server once, by the trap, and not twice: a second signal would not wait.
# The data of one run are there in the next.
mkdir -p target/run
setsid "$strand" serve --port "$port" --dir target/run --loglevel notice >"$started" 2>&1 &
server=$!
trap 'kill -INT $server 2>/dev/null || true' INT TERM
trap 'rm -f "$started"' EXIT
# Only the server's own word counts: another server may hold the port.
until grep -q 'Ready to accept connections' "$started"; do
    if ! kill -0 $server 2>/dev/null; then
        cat "$started" >&2
        wait $server || exit $?
        exit 1
    fi
    sleep 0.05
done
if ! "$strand" import examples/mail --into mail --server "127.0.0.1:$port"; then
    kill -INT $server; wait $server; exit 1
fi
cli="redis-cli"
[ "$port" = 6379 ] || cli="redis-cli -p $port"
cat <<EOF

Strand listens on 127.0.0.1:$port and holds the example mails. Try, in another terminal:

  $cli FT.SEARCH mail 'invoice -draft' LIMIT 0 5 RETURN 2 subject from
  $cli RX.GREP VALUES 'ticket-[0-9]{4}' PREFIX mail: LIMIT 10
  $cli HGETALL mail:support/0107-ticket-1051.eml
  $cli SET greeting hello

Ctrl-C stops the server.
EOF
# A signal interrupts `wait`; the server's own exit status is what counts.
while kill -0 $server 2>/dev/null; do wait $server || true; done
wait $server

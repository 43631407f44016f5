#!/usr/bin/env bash
# make run: starts a server, imports examples/mail into the server, and says what to try. Ctrl-C stops the server gracefully.
set -euo pipefail
cd "$(dirname "$0")/.."
port=${PORT:-6379}
strand=target/release/strand

started=$(mktemp)
# The server has a session of its own, so Ctrl-C reaches the server only once, by the trap. A second SIGINT would end the server
# without waiting. The data of one run is there in the next run.
mkdir -p target/run
setsid "$strand" serve --port "$port" --dir target/run --loglevel notice >"$started" 2>&1 &
server=$!
trap 'kill -INT $server 2>/dev/null || true' INT TERM
trap 'rm -f "$started"' EXIT
# Wait for the server's own message, because another server may have the port.
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
# Another program may have the port of HTTP. The server then goes on without HTTP, and its log says why.
http=$(sed -n 's/^Ready to accept http connections on //p' "$started" | head -n 1)
if [ -n "$http" ]; then
    console="The console is at http://$http/ (open it in a browser)."
else
    console="There is no console. The server says: $(grep -o 'HTTP is not served.*' "$started" | head -n 1)"
fi
cli="redis-cli"
[ "$port" = 6379 ] || cli="redis-cli -p $port"
cat <<EOF

Strand listens on 127.0.0.1:$port and holds the example mails. Try, in another terminal:

  $cli FT.SEARCH mail 'invoice -draft' LIMIT 0 5 RETURN 2 subject from
  $cli RX.GREP VALUES 'ticket-[0-9]{4}' PREFIX mail: LIMIT 10
  $cli HGETALL mail:support/0107-ticket-1051.eml
  $cli SET greeting hello

$console
Ctrl-C stops the server.
EOF
# A signal interrupts `wait`, so wait again until the server has ended, and exit with the server's status.
while kill -0 $server 2>/dev/null; do wait $server || true; done
wait $server

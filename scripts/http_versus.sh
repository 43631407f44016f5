#!/usr/bin/env bash
# make http: compares Strand's HTTP with nginx in one run. wrk asks for 256 bytes, with pipelines and one request after the other.
# Each server has one worker, on core 0; wrk runs on core 1. Strand and nginx take turns. Prints medians.
# usage: http_versus.sh STRAND_BINARY [ROUNDS] [SECONDS]
set -euo pipefail
strand=$(realpath "$1") rounds=${2:-5} seconds=${3:-3}
for program in wrk nginx curl redis-cli taskset; do
    command -v "$program" >/dev/null || { echo "http_versus: $program is not installed (apt-get install wrk nginx-light)"; exit 1; }
done
folder=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap finish EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port=$(free_port) http=$(free_port) static=$(free_port)
value=$(head -c 192 /dev/urandom | base64 -w0)

taskset -c 0 "$strand" serve --port "$port" --http-port "$http" --bind 127.0.0.1 --workers 1 --loglevel warning --save "" >/dev/null &
pids+=($!)
cat >"$folder/nginx.conf" <<NGINX
worker_processes 1;
daemon off;
error_log $folder/error.log;
pid $folder/pid;
events { worker_connections 1024; }
http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path $folder; proxy_temp_path $folder; fastcgi_temp_path $folder; uwsgi_temp_path $folder; scgi_temp_path $folder;
    server { listen 127.0.0.1:$static; location / { return 200 "$value"; } }
}
NGINX
taskset -c 0 nginx -p "$folder" -c "$folder/nginx.conf" &
pids+=($!)
cat >"$folder/pipeline.lua" <<'LUA'
init = function(args)
    local requests = {}
    for i = 1, 16 do requests[i] = wrk.format("GET") end
    all = table.concat(requests)
end
request = function() return all end
LUA
for url in "http://127.0.0.1:$http/healthz" "http://127.0.0.1:$static/"; do
    for _ in $(seq 100); do curl -fs "$url" >/dev/null && break; sleep 0.05; done
done
curl -fs -X PUT -d "$value" "http://127.0.0.1:$http/v1/keys/k"
[ "$(curl -fs "http://127.0.0.1:$http/v1/keys/k")" = "$(curl -fs "http://127.0.0.1:$static/")" ]

measure() { # NAME WRK_ARGUMENTS...
    local name=$1; shift
    for _ in $(seq "$rounds"); do
        for side in strand nginx; do
            url="http://127.0.0.1:$static/"
            [ $side = nginx ] || url="http://127.0.0.1:$http/v1/keys/k"
            taskset -c 1 wrk -t1 -c32 "-d${seconds}s" "$@" "$url" |
                awk '/Requests\/sec/ { print $2 }' >>"$folder/$name.$side"
        done
    done
    median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
    awk -v n="$name" -v s="$(median "$folder/$name.strand")" -v x="$(median "$folder/$name.nginx")" \
        'BEGIN { printf "%-24s strand %9.0f/s   nginx %9.0f/s   ratio %.2f\n", n, s, x, s / x }'
}
measure "GET, pipeline 16" -s "$folder/pipeline.lua"
measure "GET, pipeline 1"

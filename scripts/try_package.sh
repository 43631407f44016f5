#!/usr/bin/env bash
# make package-try: tries the package of `make package` in two ways.
# - As an image: buildah builds packaging/Containerfile with the package, in a chroot, and the script runs the image. debootstrap makes the
#   base image, so no registry and no container engine is needed.
# - As a service: the script installs the package on a machine that systemd-nspawn boots with its own systemd.
# Needs root, a mirror of Debian, and Debian's debootstrap, buildah and systemd-container. KEEP=1 keeps the folder of the trial.
set -euo pipefail
cd "$(dirname "$0")/.."
deb=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/package/strand.deb}")
suite=bookworm
for tool in debootstrap buildah systemd-nspawn; do
    command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install debootstrap buildah systemd-container" >&2; exit 1; }
done
work=$(mktemp -d)
running=()
end() {
    for process in "${running[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
    # The machine's processes end a little later than the killed process, and write until then. So try to remove the folder for 30 s.
    test -n "${KEEP:-}" || comes_true rm -rf --one-file-system "$work"
}
trap end EXIT
say() { printf '== %s\n' "$*"; }
# Runs a command until it succeeds, for 30 s.
comes_true() { for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "never true: $*" >&2; return 1; }
# `set -e` does not end the script after a line that begins with `!`.
fails() { ! "$@"; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

say "base: debootstrap $suite"
debootstrap --variant=minbase "$suite" "$work/base" >"$work/debootstrap.log"
cp -a "$work/base" "$work/machine"

say "image: packaging/Containerfile"
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot TMPDIR=$work
policy=$work/policy.json
echo '{ "default": [{ "type": "insecureAcceptAnything" }] }' >"$policy"
storage=(--root "$work/graph" --runroot "$work/run")
base=$(buildah "${storage[@]}" from scratch)
tar -C "$work/base" --exclude './var/cache/apt/archives/*.deb' -cf "$work/base.tar" .
buildah "${storage[@]}" add --quiet "$base" "$work/base.tar" / >/dev/null
buildah "${storage[@]}" commit --signature-policy "$policy" --quiet "$base" "docker.io/library/debian:$suite-slim" >/dev/null
buildah "${storage[@]}" bud --signature-policy "$policy" --pull-never --format docker -f packaging/Containerfile -t strand "$(dirname "$deb")" >"$work/bud.log" 2>&1 ||
    { tail -20 "$work/bud.log"; exit 1; }
container=$(buildah "${storage[@]}" from --signature-policy "$policy" --pull-never localhost/strand)
of_image() { buildah "${storage[@]}" inspect --format "{{$1}}" "$container"; }
shown() { of_image "range .Docker.Config.$1}}{{.}}
{{end"; }
mapfile -t entrypoint < <(shown Entrypoint | sed '/^$/d')
mapfile -t cmd < <(shown Cmd | sed '/^$/d')
test "$(of_image .Docker.Config.User)" = strand
in_container() { buildah "${storage[@]}" run "$container" -- "$@"; }
port=$(free_port) http_port=$(free_port)
ours=(--port "$port" --http-port "$http_port")
# The health check's command, on the trial's port.
mapfile -t health < <(shown Healthcheck.Test | sed '/^$/d;1d')
healthy() { in_container "${health[@]:0:2}" -p "$port" "${health[@]:2}"; }
serve() { in_container "${entrypoint[@]}" "${cmd[@]}" "${ours[@]}" "$@" >>"$work/container.log" 2>&1 & running+=($!); }
server_pid() { pgrep -f "^/usr/bin/strand serve .*--port $port" | tail -1; }

say "container: ${entrypoint[*]} ${cmd[*]}"
serve --requirepass tried
comes_true healthy
strand=(in_container /usr/bin/strand cli -p "$port" -a tried)
test "$("${strand[@]}" set packaged yes)" = OK
test "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$http_port/livez")" = 200
uid=$(awk '/^Uid:/ { print $2 }' "/proc/$(server_pid)/status")
test "$uid" != 0 && echo "it runs as user $uid"
kill -TERM "$(server_pid)"
wait "${running[-1]}"
unset 'running[-1]'
fails healthy >/dev/null 2>&1
# The data of the first run is there at the next start.
serve --requirepass tried
comes_true healthy
test "$("${strand[@]}" get packaged)" = yes
kill -TERM "$(server_pid)"
wait "${running[-1]}"
unset 'running[-1]'
# Without a password, the server refuses clients from outside the container.
serve
comes_true healthy
own=$(hostname -I | awk '{ print $1 }')
if test -n "$own"; then (exec 3<>"/dev/tcp/$own/$port"; printf 'PING\r\n' >&3; head -c 7 <&3) | grep -q '^-DENIED'; fi
kill -TERM "$(server_pid)"
wait "${running[-1]}"
unset 'running[-1]'
say "container: served, kept its data, ended"

say "service: a machine of its own with systemd"
cp "$deb" "$work/machine/strand.deb"
cp /etc/resolv.conf "$work/machine/etc/resolv.conf"
chroot "$work/machine" sh -c 'export DEBIAN_FRONTEND=noninteractive; apt-get update -qq
    apt-get install -y -qq --no-install-recommends systemd systemd-sysv dbus adduser' >"$work/apt.log" 2>&1
# The watchdog has 3 s, so that the trial can wait for it to end the service.
mkdir -p "$work/machine/etc/systemd/system/strand.service.d"
printf '[Service]\nWatchdogSec=3\n' >"$work/machine/etc/systemd/system/strand.service.d/trial.conf"
cat >"$work/machine/trial.sh" <<'TRIAL'
set -eux
comes_true() { for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; return 1; }
# `set -e` does not end the script after a line that begins with `!`.
fails() { ! "$@"; }
# Installing the package makes the user, and starts and enables the service.
dpkg --install /strand.deb
systemctl is-active strand.service
systemctl is-enabled strand.service
systemctl show strand.service -p Type -p User -p StatusText -p NRestarts
test "$(strand cli set kept yes)" = OK
pid() { systemctl show strand.service -p MainPID --value; }
test "$(awk '/^Uid:/ { print $2 }' "/proc/$(pid)/status")" = "$(id -u strand)"
grep -E '^(Seccomp|NoNewPrivs|CapEff):' "/proc/$(pid)/status"
cat "/proc/$(pid)/oom_score_adj"
# Shows whether the service's filter of system calls lets io_uring pass. If not, the server uses epoll.
strand cli info server | grep -iE 'multiplexing|io_'
systemctl reload strand.service
first=$(pid)
systemctl restart strand.service
test "$(pid)" != "$first"
test "$(strand cli get kept)" = yes
test "$(strand cli config rewrite)" = OK
# When the server is killed, systemd starts it again. When the server hangs, the watchdog ends it, and systemd starts it again.
before=$(pid)
kill -KILL "$before"
comes_true sh -c "test \$(systemctl show strand.service -p MainPID --value) != $before && test \"\$(strand cli get kept)\" = yes"
before=$(pid)
kill -STOP "$before"
comes_true sh -c "test \$(systemctl show strand.service -p MainPID --value) != $before && test \"\$(strand cli get kept)\" = yes"
journalctl -u strand.service --no-pager | grep -i watchdog | head -3
systemd-analyze security --no-pager strand.service | tail -1
# An upgrade restarts the service, and does not start one that the operator has disabled.
before=$(pid)
dpkg --install /strand.deb
test "$(pid)" != "$before"
test "$(strand cli get kept)" = yes
systemctl disable --now strand.service
dpkg --install /strand.deb
fails systemctl is-active strand.service
fails systemctl is-enabled strand.service
systemctl enable --now strand.service
dpkg --install /strand.deb
systemctl is-active strand.service
dpkg --remove strand
fails systemctl is-active strand.service
test -d /var/lib/strand
# A new installation after the removal starts the service again.
dpkg --install /strand.deb
systemctl is-active strand.service
systemctl is-enabled strand.service
dpkg --remove strand
echo 'the trial is over'
TRIAL
cat >"$work/machine/etc/systemd/system/trial.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'bash /trial.sh >/trial.log 2>&1; echo ended >>/trial.log'
UNIT
mkdir -p "$work/machine/etc/systemd/system/default.target.wants"
ln -s ../trial.service "$work/machine/etc/systemd/system/default.target.wants/trial.service"
systemd-nspawn -D "$work/machine" --register=no --keep-unit --private-network --quiet --boot --console=pipe \
    </dev/null >"$work/boot.log" 2>&1 &
running+=($!)
for _ in $(seq 1800); do grep -qs '^ended$' "$work/machine/trial.log" && break; sleep 0.1; done
grep -v '^+' "$work/machine/trial.log" || true
grep -q '^the trial is over$' "$work/machine/trial.log" || { tail -n 8 "$work/machine/trial.log"; tail -n 5 "$work/boot.log"; exit 1; }
say "service: installed, served, restarted, killed, hung, removed"

#!/usr/bin/env bash
# tools/with-etcd.sh COMMAND...: runs a command with $ONELOCK_URL naming an etcd of its own, which ends with it; its process is
# $ONELOCK_SERVER_PID.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=$PATH:$HOME/.cargo/bin

"$root/tools/servers.sh" etcd
programs=${ONELOCK_SERVERS:-$root/.tools/bin}
# each write waits for the disk, unless there is none
folder=$(mktemp -d -p "$([ -d /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" onelock-etcd.XXXXXX)
pid=
stop() {
    if [ -n "$pid" ]; then kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; fi
    rm -rf "$folder"
}
trap stop EXIT

# A port can be taken between the choice and the start; then the server ends at once and another one is tried.
for _ in {1..20}; do
    port=$((10000 + RANDOM % 11000))
    clients=http://127.0.0.1:$port peers=http://127.0.0.1:$((port + 1))
    rm -rf "$folder/data"
    # In a process group of its own, so that Ctrl-C ends the command first and the server after it.
    set -m
    "$programs/etcd" --data-dir "$folder/data" --name one --initial-cluster "one=$peers" --initial-advertise-peer-urls "$peers" \
        --listen-peer-urls "$peers" --listen-client-urls "$clients" --advertise-client-urls "$clients" --log-level error \
        --heartbeat-interval 50 --election-timeout 500 >"$folder/log" 2>&1 </dev/null &
    pid=$!
    set +m
    for _ in {1..500}; do
        if ETCDCTL_API=3 "$programs/etcdctl" --endpoints "$clients" endpoint health >/dev/null 2>&1; then break 2; fi
        kill -0 $pid 2>/dev/null || break
        sleep 0.02
    done
    kill -KILL $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
    pid=
done
[ -n "$pid" ] || { echo "the server did not start:" >&2; cat "$folder/log" >&2; exit 1; }

ONELOCK_URL="etcd://127.0.0.1:$port/" ONELOCK_SERVER_PID=$pid "$@"

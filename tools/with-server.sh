#!/usr/bin/env bash
# tools/with-server.sh COMMAND...: runs a command with $ONELOCK_URL naming a server of its own, which ends with it. Called
# by itself several times it starts several; $ONELOCK_HOSTS has all of them, with commas between.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=$PATH:$HOME/.cargo/bin

"$root/tools/servers.sh" valkey-server-9.1
server=${ONELOCK_SERVERS:-$root/.tools/bin}/valkey-server-9.1
folder=$(mktemp -d)
pid=
stop() {
    if [ -n "$pid" ]; then kill "$pid" 2>/dev/null && wait "$pid" || true; fi
    rm -rf "$folder"
}
trap stop EXIT

# A port can be taken between the choice and the start; then the server ends at once and another one is tried.
for _ in {1..20}; do
    port=$((10000 + RANDOM % 20000))
    # In a process group of its own, so that Ctrl-C ends the command first and the server after it.
    set -m
    "$server" --port $port --bind 127.0.0.1 --save '' --dir "$folder" --unixsocket "$folder/socket" \
        --logfile "$folder/log" &
    pid=$!
    set +m
    for _ in {1..500}; do
        if [ -S "$folder/socket" ]; then break 2; fi
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
    kill $pid 2>/dev/null || true
    wait $pid || true
    pid=
done
[ -n "$pid" ] || { echo "the server did not start:" >&2; cat "$folder/log" >&2; exit 1; }

ONELOCK_URL="redis://127.0.0.1:$port/" ONELOCK_HOSTS="${ONELOCK_HOSTS:+$ONELOCK_HOSTS,}127.0.0.1:$port" "$@"

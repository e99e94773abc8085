#!/usr/bin/env bash
# tools/c/with-tls-server.sh COMMAND...: runs a command beside a server of its own that speaks TLS on one port and plain TCP
# on another. $ONELOCK_TLS_URL and $ONELOCK_PLAIN_URL name them, $ONELOCK_TLS_CA the authority, $ONELOCK_TLS_PID the process.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

"$root/tools/servers.sh" redis-server-7.0
server=${ONELOCK_SERVERS:-$root/.tools/bin}/redis-server-7.0
folder=$(mktemp -d)
pid=
stop() {
    if [ -n "$pid" ]; then
        # it may still be frozen
        kill -CONT "$pid" 2>/dev/null || true
        kill "$pid" 2>/dev/null && wait "$pid" || true
    fi
    rm -rf "$folder"
}
trap stop EXIT

quiet() { "$@" >"$folder/openssl.log" 2>&1 || { cat "$folder/openssl.log" >&2; exit 1; }; }
key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2)
quiet openssl req -x509 "${key[@]}" -subj /CN=authority -keyout "$folder/ca.key" -out "$folder/ca.pem"
quiet openssl req "${key[@]}" -subj /CN=server -keyout "$folder/server.key" -out "$folder/server.csr"
quiet openssl x509 -req -days 2 -in "$folder/server.csr" -CA "$folder/ca.pem" -CAkey "$folder/ca.key" -CAcreateserial \
    -extfile <(echo 'subjectAltName=IP:127.0.0.1') -out "$folder/server.pem"

# A port can be taken between the choice and the start; then the server ends at once and others are tried.
for _ in {1..20}; do
    port=$((10000 + RANDOM % 20000))
    set -m
    "$server" --port $port --tls-port $((port + 1)) --bind 127.0.0.1 --save '' --dir "$folder" \
        --tls-auth-clients no --tls-ca-cert-file "$folder/ca.pem" --tls-cert-file "$folder/server.pem" \
        --tls-key-file "$folder/server.key" --unixsocket "$folder/socket" --logfile "$folder/log" &
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

ONELOCK_TLS_URL="rediss://127.0.0.1:$((port + 1))/" ONELOCK_PLAIN_URL="redis://127.0.0.1:$port/" \
    ONELOCK_TLS_CA="$folder/ca.pem" ONELOCK_TLS_PID=$pid "$@"

#!/usr/bin/env bash
# What the measurements need besides Rust: a server to measure against, and the floor, a C program on hiredis.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}/release

"$here/../tools/servers.sh" redis-server-7.0 valkey-server-9.1
"$here/c/hiredis.sh" >/dev/null
if ! command -v redis-cli >/dev/null; then
    [ "$(id -u)" -eq 0 ] || { echo "bench: install redis-tools and run this again" >&2; exit 1; }
    echo "bench: installing redis-tools" >&2
    apt-get update -q >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends redis-tools >&2
fi
mkdir -p "$target"

# The command as people get it.
install -m 755 "$("$here/../tools/cli/build.sh")" "$target/onelock-bench-command"

# The C library and the program that measures it.
(cd "$here/.." && cargo build --quiet --release --locked --package onelock-c)
strip --strip-unneeded -o "$target/libonelock.so.0.bench" "$target/libonelock.so"
cc -O2 -Wall -Wextra -Werror -std=gnu11 -I"$here/../bindings-c/include" -o "$target/onelock-bench-c" "$here/c/onelock-loop.c" \
    "$target/libonelock.a" -lgcc_s -lutil -lrt -lm -ldl -pthread

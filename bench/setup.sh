#!/usr/bin/env bash
# What the measurements need besides Rust: a server to measure against, and the floor, a C program on hiredis.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}/release

"$here/../tools/servers.sh" redis-server-7.0 valkey-server-9.1
"$here/c/hiredis.sh" >/dev/null
mkdir -p "$target"

# The C library and the program that measures it.
(cd "$here/.." && cargo build --quiet --release --locked --package onelock-c)
strip --strip-unneeded -o "$target/libonelock.so.0.bench" "$target/libonelock.so"
cc -O2 -Wall -Wextra -Werror -std=gnu11 -I"$here/../bindings-c/include" -o "$target/onelock-bench-c" "$here/c/onelock-loop.c" \
    "$target/libonelock.a" -lgcc_s -lutil -lrt -lm -ldl -pthread

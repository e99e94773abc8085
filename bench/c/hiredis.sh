#!/usr/bin/env bash
# Builds the floor, the C program on hiredis, and prints its path.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}/release

if ! printf '#include <hiredis/hiredis.h>\n' | cc -E -x c - >/dev/null 2>&1; then
    [ "$(id -u)" -eq 0 ] || { echo "bench: install libhiredis-dev and run this again" >&2; exit 1; }
    echo "bench: installing libhiredis-dev" >&2
    apt-get update -q >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends libhiredis-dev >&2
fi
mkdir -p "$target"
cc -O2 -Wall -Wextra -Werror -std=gnu11 -o "$target/onelock-bench-hiredis" "$here/hiredis-loop.c" -lhiredis -pthread
echo "$target/onelock-bench-hiredis"

#!/usr/bin/env bash
# Measures the Python package against its peers and prints one table. `bench/python/run.sh --quick` only sees that
# everything works. What is measured, and how to read it: bench/README.md.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
venv=$root/.tools/python-bench
packages=(redis==8.1.0 hiredis==3.5.0 redlock-py==1.0.8 python-redis-lock==4.0.1 uvloop==0.23.0)

cd "$root"
"$root/tools/servers.sh" redis-server-7.0
if [ "$(cat "$venv/made-of" 2>/dev/null)" != "${packages[*]}" ]; then
    python=$("$root/tools/python/needs.sh")/bin/python
    rm -rf "$venv"
    "$python" -m venv "$venv" >&2
    "$venv/bin/pip" install -q --disable-pip-version-check "${packages[@]}" >&2
    echo "${packages[*]}" >"$venv/made-of"
fi
if ! printf '#include <hiredis/hiredis.h>\n' | cc -E -x c - >/dev/null 2>&1; then
    [ "$(id -u)" -eq 0 ] || { echo "bench: install libhiredis-dev and run this again" >&2; exit 1; }
    apt-get update -q >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends libhiredis-dev >&2
fi
"$root/tools/python/build.sh" --release
mkdir -p "$target/release"
cc -O2 -Wall -Wextra -Werror -std=gnu11 -o "$target/release/onelock-bench-hiredis" "$root/bench/c/hiredis-loop.c" -lhiredis -pthread
PYTHONPATH=$root/bindings-python/python exec "$venv/bin/python" "$here/main.py" \
    --server "${ONELOCK_SERVERS:-$root/.tools/bin}/redis-server-7.0" --floor "$target/release/onelock-bench-hiredis" "$@"

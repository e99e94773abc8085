#!/usr/bin/env bash
# Measures the Python package against its peers and prints one table. `bench/python/run.sh --quick` only sees that
# everything works. What is measured, and how to read it: bench/README.md.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

"$root/tools/servers.sh" redis-server-7.0
python=$("$here/setup.sh")
floor=$("$root/bench/c/hiredis.sh")
PYTHONPATH=$root/bindings-python/python exec "$python" "$here/main.py" \
    --server "${ONELOCK_SERVERS:-$root/.tools/bin}/redis-server-7.0" --floor "$floor" "$@"

#!/usr/bin/env bash
# tests/drivers/python/start.sh MODE: the Python driver. `start.sh build` builds the native module that it uses, and makes
# the virtual environment that it runs in.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
if [ "$1" = build ]; then
    # several tests start at once; one builds
    mkdir -p "$root/.tools"
    exec 9>"$root/.tools/python-driver.lock"
    flock 9
    "$root/tools/python/needs.sh" >/dev/null
    "$root/tools/python/build.sh" >&2
else
    exec "$root/.tools/python/bin/python" "$here/driver.py" "$1"
fi

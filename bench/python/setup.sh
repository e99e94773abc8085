#!/usr/bin/env bash
# What the measurements of the Python package need: the package in release mode, and its peers in an environment of its
# own. Prints the interpreter of that; PYTHONPATH=bindings-python/python has the package.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=$root/.tools/python-bench
packages=(redis==8.1.0 hiredis==3.5.0 redlock-py==1.0.8 python-redis-lock==4.0.1 pottery==3.0.1 uvloop==0.23.0)

cd "$root"
if [ "$(cat "$venv/made-of" 2>/dev/null)" != "${packages[*]}" ]; then
    python=$("$root/tools/python/needs.sh")/bin/python
    rm -rf "$venv"
    "$python" -m venv "$venv" >&2
    "$venv/bin/pip" install -q --disable-pip-version-check "${packages[@]}" >&2
    echo "${packages[*]}" >"$venv/made-of"
fi
"$root/tools/python/build.sh" --release >&2
echo "$venv/bin/python"

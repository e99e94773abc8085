#!/usr/bin/env bash
# bench/python/files.sh [--quick]: locks in files with the Python package against filelock. The native module must have been
# built with `tools/python/build.sh --release`, which this does.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
tools/peers.sh filelock
python=$(tools/python/needs.sh)/bin/python
tools/python/build.sh --release
PYTHONPATH=$root/bindings-python/python:$root/.tools/peers/filelock "$python" bench/python/files.py "$@"

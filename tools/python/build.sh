#!/usr/bin/env bash
# tools/python/build.sh [--release]: builds the native module and puts it into the source tree, where the virtual
# environment of the tests (and `PYTHONPATH=bindings-python/python`) finds it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
tools/cargo.sh
PATH=$PATH:$HOME/.cargo/bin
target=${CARGO_TARGET_DIR:-$root/target}
profile=debug
if [ "${1:-}" = --release ]; then
    profile=release
    cargo build --quiet --locked --package onelock-python --release >&2
else
    tools/bindings.sh
fi
package=$root/bindings-python/python/onelock
# moved into place: a program that has the old one open goes on with that
cp "$target/$profile/lib_onelock.so" "$package/.new.so"
mv "$package/.new.so" "$package/_onelock.abi3.so"

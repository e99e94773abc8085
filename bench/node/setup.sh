#!/usr/bin/env bash
# What the measurements of the Node package need: the package in release mode, and its peers. Prints the native module.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
PATH=$PATH:$HOME/.cargo/bin
target=${CARGO_TARGET_DIR:-$root/target}
tools/node/build.sh >&2
cargo build --quiet --release --locked --package onelock-node >&2
cp "$target/release/libonelock_node.so" "$target/release/onelock-bench.node"
if ! cmp -s "$here/package-lock.json" "$here/node_modules/.installed"; then
    (cd "$here" && npm ci --no-audit --no-fund --loglevel=error >&2)
    cp "$here/package-lock.json" "$here/node_modules/.installed"
fi
echo "$target/release/onelock-bench.node"

#!/usr/bin/env bash
# Measures the Node package against ioredis, redlock and redis-semaphore, and prints one table. About two minutes.
#
#   bench/node/run.sh              everything
#   bench/node/run.sh --quick      enough to see that it works, not for numbers to quote
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
PATH=$PATH:$HOME/.cargo/bin
target=${CARGO_TARGET_DIR:-$root/target}
tools/node/build.sh >&2
cargo build --quiet --release --locked --package onelock-node
cp "$target/release/libonelock_node.so" "$target/release/onelock-bench.node"
export ONELOCK_NATIVE=$target/release/onelock-bench.node
if ! cmp -s "$here/package-lock.json" "$here/node_modules/.installed"; then
    (cd "$here" && npm ci --no-audit --no-fund --loglevel=error >&2)
    cp "$here/package-lock.json" "$here/node_modules/.installed"
fi
tools/servers.sh redis-server-7.0
exec node "$here/main.mjs" "$@"

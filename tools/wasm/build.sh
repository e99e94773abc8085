#!/usr/bin/env bash
# Builds the package @onelock/wasm in bindings-wasm/dist: the module, and the TypeScript of the Node package over it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
PATH=$PATH:$HOME/.cargo/bin
tools/node/needs.sh
variables=$(tools/wasm/toolchain.sh)
(
    eval "$variables"
    CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/wasm
    export CARGO_TARGET_DIR
    # shellcheck disable=SC2086 # none or one word
    cargo build --quiet --locked --package onelock-wasm --profile wasm --target wasm32-unknown-unknown $ONELOCK_WASM_CARGO >&2
)
package=$root/bindings-wasm
rm -rf "$package/build" "$package/dist"
mkdir -p "$package/build"
# the same API, over another module: its own files take the place of those with the same names
cp bindings-node/ts/*.ts "$package/build/"
rm "$package/build/platform.ts"
cp "$package"/ts/*.ts "$package/build/"
(cd bindings-node && npx --no-install tsc --project "$package/tsconfig.json")
cp "${CARGO_TARGET_DIR:-$root/target}/wasm/wasm32-unknown-unknown/wasm/onelock_wasm.wasm" "$package/dist/onelock.wasm"
node bindings-node/scripts/entries.cjs "$package"
echo "bindings-wasm/dist ($(gzip -9c "$package/dist/onelock.wasm" | wc -c | awk '{ printf "%.0f KiB gzipped", $1 / 1024 }'))"

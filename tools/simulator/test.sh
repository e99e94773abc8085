#!/usr/bin/env bash
# The page of the simulator draws what the tests run: the same schedules from the native program and from WebAssembly, and in
# a headless browser at the width of a phone and of a desktop.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$PATH:$HOME/.cargo/bin
tools/node/needs.sh
bindings-node/node_modules/.bin/biome check --config-path=bindings-node docs/simulator/*.mjs tools/simulator/*.mjs
browser=$(tools/simulator/needs.sh)
page=$(tools/simulator/build.sh)
# beside what is compiled for the page: the rest of the workspace has other features
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/wasm
cargo build --quiet --locked --package onelock-simulator --bin onelock-simulator-trace
native=$CARGO_TARGET_DIR/debug/onelock-simulator-trace
timeout 300 node tools/simulator/same.mjs "$page" "$native"
timeout 600 node tools/simulator/page.mjs "$page" "$native" "$browser"

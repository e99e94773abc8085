#!/usr/bin/env bash
# The page of the simulator: one file without anything beside it, in dist/simulator/index.html. Prints where it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$PATH:$HOME/.cargo/bin
eval "$(tools/wasm/toolchain.sh)"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/wasm
# as small as can be: it is read by people over slow lines, and plays a schedule within milliseconds all the same
export CARGO_PROFILE_RELEASE_OPT_LEVEL=s CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1
export CARGO_PROFILE_RELEASE_PANIC=abort CARGO_PROFILE_RELEASE_DEBUG=none CARGO_PROFILE_RELEASE_STRIP=symbols
# shellcheck disable=SC2086 # none or one word
cargo rustc --quiet --locked --release --package onelock-simulator --lib --crate-type cdylib \
    --target wasm32-unknown-unknown $ONELOCK_WASM_CARGO >&2
node tools/simulator/pack.mjs "$CARGO_TARGET_DIR/wasm32-unknown-unknown/release/onelock_simulator.wasm"

#!/usr/bin/env bash
# The core compiles to WebAssembly, with what a host that is an event loop can use, and with nothing that needs a system.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
PATH=$PATH:$HOME/.cargo/bin
# before RUSTC is Debian's: features of the same crates, without the dependencies of tests
needs=$(cargo tree --locked --package onelock --no-default-features --features redlock --edges normal \
    --target wasm32-unknown-unknown --prefix none --format '{p}' | cut -d ' ' -f 1 | sort -u)
for crate in libc rustix socket2 ring rustls tokio-rustls getrandom mio; do
    if grep -qx "$crate" <<<"$needs"; then
        echo "wasm: the core needs $crate there, which has no use in a host" >&2
        exit 1
    fi
done
eval "$(tools/wasm/toolchain.sh)"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/wasm
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS='-D warnings'
# shellcheck disable=SC2086 # none or one word
cargo check --quiet --locked --package onelock --no-default-features --features redlock --target wasm32-unknown-unknown $ONELOCK_WASM_CARGO
# what decides alone: no store, no runtime
# shellcheck disable=SC2086
cargo check --quiet --locked --package onelock --no-default-features --target wasm32-unknown-unknown $ONELOCK_WASM_CARGO
echo 'wasm: the core compiles for a host'

#!/usr/bin/env bash
# bench/handover/build.sh CHECKOUT OUT: builds the sides that take part out of a checkout, this one or that of another
# commit, and puts them into the folder OUT.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
PATH=$PATH:$HOME/.cargo/bin
target=${CARGO_TARGET_DIR:-$root/target}/release

# an older checkout does not have this program
cmp -s "$here/../src/bin/turns.rs" "$root/bench/src/bin/turns.rs" || cp "$here/../src/bin/turns.rs" "$root/bench/src/bin/turns.rs"
cd "$root"
cargo build --quiet --release --locked --package onelock-c --package onelock-python --package onelock-node --package onelock-bench
tools/node/needs.sh
rm -rf "${out:?}/python" "$out/node"
mkdir -p "$out/python" "$out/node"
cp "$target/turns" "$out/"
# under the name that programs look for
library=$out/$(objdump -p "$target/libonelock.so" | sed -n "s/ *SONAME *//p")
cp "$target/libonelock.so" "$library"
cp -r bindings-python/python/onelock "$out/python/"
cp "$target/lib_onelock.so" "$out/python/onelock/_onelock.abi3.so"
(cd bindings-node && npx --no-install tsc --project tsconfig.json --outDir "$out/node/dist")
cp -r bindings-node/package.json bindings-node/scripts "$out/node/"
cp "$target/libonelock_node.so" "$out/node/onelock.$(node "$out/node/scripts/platform.cjs").node"
(cd "$out/node" && node scripts/entries.cjs)
cc -O2 -Wall -Wextra -Werror -std=gnu11 -I"$root/bindings-c/include" -o "$out/turns-c" "$here/turns.c" \
    "$library" -pthread

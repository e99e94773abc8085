#!/usr/bin/env bash
# tools/node/dist.sh [TARGET...]: the npm packages as tarballs in dist/: onelock, and @onelock/TARGET with the native module
# of each TARGET of bindings-node/npm/targets.json. Without any: that of this machine.
#
# Linux with glibc: against 2.28 (RHEL 8, Debian 10), with zig as linker, which is fetched into .tools; where zig cannot be
# had, against the glibc of this machine, and says so. Another target needs its Rust target (rustup target add).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
PATH=$PATH:$HOME/.cargo/bin
tools/cargo.sh
tools/node/needs.sh
target=${CARGO_TARGET_DIR:-$root/target}
out=$target/onelock-node
mkdir -p "$out" dist

cd bindings-node
npx --no-install tsc --project tsconfig.json
own=$(node scripts/platform.cjs)
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=("$own")

# build TARGET: prints the file
build() {
    local triple built
    # this machine's `strip` knows only what is its own
    [ "$1" = "$own" ] || export CARGO_PROFILE_RELEASE_STRIP=symbols
    triple=$(node -p 'require("./npm/targets.json")[process.argv[1]].triple' "$1")
    if [[ $1 == linux-* ]] && zig=$("$root/tools/zig.sh"); then
        local versioned=$triple
        [[ $1 != *-gnu ]] || versioned=$triple.2.28
        # a shared library needs the shared C library of musl
        [[ $1 != *-musl ]] || export "CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$triple")_RUSTFLAGS=-C target-feature=-crt-static"
        # the wrapper looks for `python -m ziglang` on the path
        PATH=$zig:$PATH cargo zigbuild --quiet --release --locked --package onelock-node --target "$versioned" >&2
    else
        [[ $1 != linux-* ]] || echo "zig cannot be had here: building against this machine's C library" >&2
        cargo build --quiet --release --locked --package onelock-node --target "$triple" >&2
    fi
    built=$target/$triple/release
    for name in libonelock_node.so libonelock_node.dylib onelock_node.dll; do
        if [ -e "$built/$name" ]; then echo "$built/$name"; fi
    done
}

for name in "${targets[@]}"; do
    built=$(build "$name")
    module=$out/onelock.$name.node
    if [[ $name == *-gnu || $name == *-musl ]] && [ "$name" = "$own" ]; then
        strip --strip-unneeded -o "$module.new" "$built"
    else
        cp "$built" "$module.new"
    fi
    mv -f "$module.new" "$module"
done

# the entries list what the package exports: it is loaded for that, with the module that runs here
if [ -e "$out/onelock.$own.node" ]; then export ONELOCK_NATIVE=$out/onelock.$own.node; fi
node scripts/entries.cjs
node scripts/packages.cjs "$out/packages"
for name in "${targets[@]}"; do cp "$out/onelock.$name.node" "$out/packages/$name/"; done
for name in onelock "${targets[@]}"; do
    (cd "$out/packages/$name" && npm pack --silent --pack-destination "$root/dist") | sed 's|^|dist/|'
done

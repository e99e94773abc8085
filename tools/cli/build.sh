#!/usr/bin/env bash
# Builds the command for release and prints the stripped file: static, against musl, so that one file runs on every Linux.
#
# The Rust target is fetched with rustup and linked with zig, which is fetched into .tools. Where one of them cannot be had, the
# command is built for this machine, and that is said. What C, Node.js and Python packages give away is this very file.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
tools/cargo.sh
PATH=$PATH:$HOME/.cargo/bin
target=${CARGO_TARGET_DIR:-$root/target}
out=$target/onelock-cli
triple=$(rustc -vV | sed -n 's/^host: //p')
static=${triple/-gnu/-musl}
mkdir -p "$out"

# std of the target: part of some toolchains, otherwise fetched
has_target() {
    [ -d "$(rustc --print sysroot)/lib/rustlib/$static/lib" ] ||
        { command -v rustup >/dev/null && rustup target add "$static" >&2; }
}

if [[ $static == *-musl ]] && has_target && zig=$(tools/zig.sh); then
    # the wrapper looks for `python -m ziglang` on the path
    PATH=$zig:$PATH cargo zigbuild --quiet --release --locked --package onelock-cli --target "$static" >&2
    built=$target/$static/release/onelock
else
    echo "a static build is not to be had here: building the command for this machine" >&2
    cargo build --quiet --release --locked --package onelock-cli >&2
    built=$target/release/onelock
fi

strip -o "$out/onelock.new" "$built"
mv -f "$out/onelock.new" "$out/onelock"
echo "$out/onelock"

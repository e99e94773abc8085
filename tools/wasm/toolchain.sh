#!/usr/bin/env bash
# A compiler for wasm32-unknown-unknown. Prints what a shell is to evaluate before it calls cargo; ONELOCK_WASM_CARGO is what
# cargo is to be given besides:
#
#   eval "$(tools/wasm/toolchain.sh)" && cargo build --target wasm32-unknown-unknown $ONELOCK_WASM_CARGO
#
# Where rustup has the target, that is all. Else Debian's rustc for browsers, which comes with the sources of the standard
# library, is unpacked into .tools/wasm: nothing is installed into the system.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
PATH=$PATH:$HOME/.cargo/bin
tools/cargo.sh
sysroot=$(rustc --print sysroot)
if [ -d "$sysroot/lib/rustlib/wasm32-unknown-unknown" ]; then
    echo 'export ONELOCK_WASM_CARGO='
    exit
fi
missing() {
    echo "wasm: $1: run rustup target add wasm32-unknown-unknown" >&2
    exit 1
}
linker=$(find "$sysroot"/lib/rustlib/*/bin -name rust-lld 2>/dev/null | head -n 1)
[ -n "$linker" ] || missing 'this Rust has no linker for it'

# depends PACKAGE PATTERN: what it depends on
depends() { apt-cache depends "$1" | sed -n "s/^ *Depends: \($2\)\$/\1/p" | head -n 1; }

fetch() {
    local std
    # compiler, library and sources are of one version, whichever it is now
    std=$(apt-cache depends libstd-rust-web-dev | sed -n 's/^ *Depends: \(libstd-rust-web-[0-9.]*\)$/\1/p' | head -n 1)
    [ -n "$std" ] || return 1
    apt-get download -qq rustc-web libstd-rust-web-dev rust-web-src "$std" "$(depends "$std" 'libllvm[0-9]*')"
}

to=$root/.tools/wasm
if [ ! -e "$to/.complete" ]; then
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || missing 'the target is missing'
    mkdir -p "$root/.tools"
    # another run may be at it: each makes its own, and the first one stays
    made=$(mktemp -d "$root/.tools/wasm-fetch.XXXXXX")
    trap 'rm -rf "$made"' EXIT
    mkdir "$made/packages"
    chmod 755 "$made" "$made/packages"
    cd "$made/packages"
    if [ "$(id -u)" -eq 0 ]; then apt-get update -qq >&2 || true; fi
    # a registry can be slow to answer once; a second failure is final
    fetch >&2 || { echo 'wasm: once more: apt-get download' >&2; fetch >&2; } || missing 'the target is missing'
    for package in *.deb; do dpkg -x "$package" "$made"; done
    cd "$root"
    rm -rf "$made/packages" "$made/usr/share" "$made"/usr/src/rustc-*/{compiler,src,debian}
    touch "$made/.complete"
    mv -T "$made" "$to" 2>/dev/null || [ -e "$to/.complete" ]
fi
llvm=$(find "$to/usr/lib" -name 'libLLVM*.so*' | head -n 1)
cat <<EOT
export RUSTC='$to/usr/bin/rustc' RUSTC_BOOTSTRAP=1 LD_LIBRARY_PATH='$(dirname "$llvm")'
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER='$linker' ONELOCK_WASM_CARGO=-Zbuild-std=std,panic_abort
EOT

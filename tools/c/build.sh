#!/usr/bin/env bash
# Builds libonelock for release and prints the folder that has it: libonelock.so (stripped) and libonelock.a.
#
# Against an old glibc (2.28, that of RHEL 8), with zig as linker, which is fetched into .tools. Where zig cannot be had,
# against the glibc of this machine, and says so.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
tools/cargo.sh
PATH=$PATH:$HOME/.cargo/bin
glibc=2.28
target=${CARGO_TARGET_DIR:-$root/target}
triple=$(rustc -vV | sed -n 's/^host: //p')

if zig=$(tools/zig.sh); then
    # the wrapper looks for `python -m ziglang` on the path
    PATH=$zig:$PATH cargo zigbuild --quiet --release --locked --package onelock-c --target "$triple.$glibc" >&2
    built=$target/$triple/release
else
    echo "zig cannot be had here: building against this machine's glibc" >&2
    cargo build --quiet --release --locked --package onelock-c >&2
    built=$target/release
fi

out=$target/onelock-c
mkdir -p "$out"
strip --strip-unneeded -o "$out/libonelock.so.new" "$built/libonelock.so"
mv -f "$out/libonelock.so.new" "$out/libonelock.so"
# One object whose only global names are onelock_*, so that another Rust library in the same program does no harm.
if [ ! "$out/libonelock.a" -nt "$built/libonelock.a" ]; then
    ld -r --whole-archive "$built/libonelock.a" -o "$out/onelock.o"
    # the compiler's bitcode in it is of no use here, and confuses ar
    objcopy --wildcard --keep-global-symbol='onelock_*' --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd \
        --remove-section=.llvm_addrsig "$out/onelock.o"
    rm -f "$out/libonelock.a"
    ar crs "$out/libonelock.a" "$out/onelock.o"
    rm -f "$out/onelock.o"
fi
echo "$out"

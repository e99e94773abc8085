#!/usr/bin/env bash
# tools/c/install.sh BUILT ROOT PREFIX: puts the C library from the folder BUILT under ROOT/PREFIX, as it is installed.
set -euo pipefail
source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
built=$1
root=$2
prefix=$3
binding=$source_root/bindings-c
to=${root%/}$prefix
version=$(sed -n 's/^#define ONELOCK_VERSION "\(.*\)"$/\1/p' "$binding/include/onelock.h")
# what a Rust static library needs beside libc; libgcc_s unwinds the stack of a panic
private='-lgcc_s -lutil -lrt -lpthread -lm -ldl'

fill() {
    sed -e "s|@VERSION@|$version|g" -e "s|@PREFIX@|$prefix|g" -e "s|@PRIVATE@|$private|g" \
        -e "s|@PRIVATE_CMAKE@|gcc_s;util;rt;m;\${CMAKE_DL_LIBS}|g" "$1"
}

install -d "$to/include" "$to/lib/pkgconfig" "$to/lib/cmake/onelock"
install -m 644 "$binding/include/onelock.h" "$binding/include/onelock.hpp" "$to/include/"
install -m 755 "$built/libonelock.so" "$to/lib/libonelock.so.$version"
ln -sf "libonelock.so.$version" "$to/lib/libonelock.so"
install -m 644 "$built/libonelock.a" "$to/lib/libonelock.a"
fill "$binding/onelock.pc.in" >"$to/lib/pkgconfig/onelock.pc"
install -d "$to/share/doc/onelock"
for file in LICENSE-MIT LICENSE-APACHE THIRD-PARTY-NOTICES.txt; do install -m 644 "$source_root/$file" "$to/share/doc/onelock/"; done
for file in onelock-config onelock-config-version; do
    fill "$binding/cmake/$file.cmake.in" >"$to/lib/cmake/onelock/$file.cmake"
done

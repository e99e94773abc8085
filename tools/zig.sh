#!/usr/bin/env bash
# Prints a folder with cargo-zigbuild, which links against an old glibc; it is fetched into .tools/zig when it is missing.
# Fails where it cannot be had: then a build is linked against the glibc of this machine.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
zig=$root/.tools/zig

if [ ! -x "$zig/bin/cargo-zigbuild" ]; then
    [ "$(uname -s)" = Linux ] || exit 1
    mkdir -p "$root/.tools"
    { python3 -m venv "$zig" && "$zig/bin/pip" install -q --disable-pip-version-check ziglang==0.17.1 cargo-zigbuild==0.24.1; } >&2 ||
        { rm -rf "$zig"; exit 1; }
fi
echo "$zig/bin"

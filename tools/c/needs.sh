#!/usr/bin/env bash
# What building and testing the C library needs from the system. As root on Debian or Ubuntu it is installed.
set -euo pipefail

declare -A packages=([gcc]=gcc [g++]=g++ [cmake]=cmake [make]=make [pkg-config]=pkg-config [valgrind]=valgrind
    [nm]=binutils [objcopy]=binutils [openssl]=openssl)
missing=()
for command in "${!packages[@]}"; do
    command -v "$command" >/dev/null || missing+=("${packages[$command]}")
done
# AddressSanitizer comes with gcc, except where the distribution splits it off
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "please install: ${missing[*]}" >&2
        exit 1
    fi
    apt-get update -q >&2 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" libc6-dev libc6-dbg >&2
fi

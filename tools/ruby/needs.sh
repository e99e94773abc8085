#!/usr/bin/env bash
# What the gem and its tests need from the system: Ruby with FFI, minitest, puma, and redis, which is measured beside it. As
# root on Debian or Ubuntu it is installed.
set -euo pipefail

declare -A packages=([ffi]=ruby-ffi [minitest]=ruby-minitest [puma]=puma [redis]=ruby-redis)
missing=()
if ! command -v ruby >/dev/null; then
    missing=(ruby "${packages[@]}")
else
    for library in "${!packages[@]}"; do
        ruby -e 'exit Gem::Specification.find_all_by_name(ARGV[0]).any?' "$library" || missing+=("${packages[$library]}")
    done
fi
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "please install: ${missing[*]}" >&2
        exit 1
    fi
    apt-get update -q >&2 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
fi

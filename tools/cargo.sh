#!/usr/bin/env bash
# Checks for the tools that building needs, and says how to get what is missing.
set -euo pipefail

# rustup puts cargo here, and a shell without a login does not look there.
if ! command -v cargo >/dev/null && [ ! -x "$HOME/.cargo/bin/cargo" ]; then
    echo "cargo is missing: install Rust 1.88 or newer with rustup (https://rustup.rs)" >&2
    exit 1
fi
if ! command -v cc >/dev/null; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        apt-get update -q >&2 || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends gcc libc6-dev >&2
    else
        echo "a C compiler is missing: install gcc or clang (Debian: apt-get install gcc libc6-dev)" >&2
        exit 1
    fi
fi
for part in "$@"; do
    PATH=$PATH:$HOME/.cargo/bin
    cargo "$part" --version >/dev/null 2>&1 && continue
    case $part in
        fmt) component=rustfmt ;;
        *) component=$part ;;
    esac
    echo "cargo $part is missing; adding the component $component" >&2
    rustup component add "$component" >&2 || { echo "run: rustup component add $component" >&2; exit 1; }
done

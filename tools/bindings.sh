#!/usr/bin/env bash
# The development builds of the libraries for C, Node, Python and the JVM, by one call of cargo: what is built together shares one build of
# the core, and each by itself would choose other features of the dependencies and build nearly everything again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PATH:$HOME/.cargo/bin
# What cargo tells a test of the test's own package: build scripts would take it for a change, and build everything again.
while read -r name; do unset "$name"; done < <(compgen -e | grep -E '^CARGO_(PKG|MANIFEST|BIN|CRATE|PRIMARY)_')
cargo build --quiet --locked --lib --package onelock-c --package onelock-node --package onelock-python \
    --package onelock-uniffi >&2

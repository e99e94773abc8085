#!/usr/bin/env bash
# Builds the Node package in place: the native module of this machine, and dist/ from ts/.
#
#   tools/node/build.sh              the development build, quick to make
#   tools/node/build.sh --release    the one to measure and to give away
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
PATH=$PATH:$HOME/.cargo/bin
tools/cargo.sh
tools/node/needs.sh
target=${CARGO_TARGET_DIR:-$root/target}
profile=debug
if [ "${1:-}" = --release ]; then
    profile=release
    cargo build --quiet --locked --package onelock-node --release
else
    tools/bindings.sh
fi

case $(uname -s) in
    Darwin) library=libonelock_node.dylib ;;
    MINGW* | MSYS* | CYGWIN*) library=onelock_node.dll ;;
    *) library=libonelock_node.so ;;
esac
cd bindings-node
npx --no-install tsc --project tsconfig.json
node scripts/platform.cjs >/dev/null
module=onelock.$(node scripts/platform.cjs).node
# a process may have the old one mapped: it is replaced, never written over
cp "$target/$profile/$library" "$module.new"
mv -f "$module.new" "$module"
node scripts/entries.cjs
echo "bindings-node/$module ($profile)"

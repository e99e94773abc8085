#!/usr/bin/env bash
# Everything about the Node package, in the order in which it fails fastest. `make test-node` runs it.
#
#   tools/node/test.sh           all
#   tools/node/test.sh PART...   only these parts: lint unit types
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
PATH=$PATH:$HOME/.cargo/bin
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(lint types unit)
started=$SECONDS
step() { printf '\n== Node: %s\n' "$*"; }

check_lint() {
    step "formatting and lint"
    (cd bindings-node && npx --no-install biome check --error-on-warnings .)
}

check_types() {
    step "types, from ES modules and from CommonJS"
    (cd bindings-node && npx --no-install tsc --project test/types/tsconfig.json)
}

check_unit() {
    step "tests, on real servers"
    export ONELOCK_SERVERS=${ONELOCK_SERVERS:-$root/.tools/bin}
    [ -n "$(ls -A "$ONELOCK_SERVERS" 2>/dev/null)" ] || tools/servers.sh
    (cd bindings-node && node --test test/*.test.cjs test/*.test.mjs)
}

tools/node/build.sh
for part in "${parts[@]}"; do "check_$part"; done
printf '\nNode: %s: all passed in %d s\n' "${parts[*]}" $((SECONDS - started))

#!/usr/bin/env bash
# tests/drivers/node/build.sh PROGRAMS: the Node package, built unless it is newer than what it is made of.
# PROGRAMS is cargo's folder of built programs.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
package=$root/bindings-node
built=$package/dist/index.mjs

fresh() {
    [ -e "$built" ] && [ -z "$(find "$root/core/src" "$package/src" "$package/ts" "$package/scripts" \
        "$package/package.json" "$root/Cargo.lock" -newer "$built" -print -quit)" ]
}

fresh && exit
# several test programs may start at once; the first one builds
exec 9>"$1/onelock-node.lock"
flock 9
fresh || CARGO_TARGET_DIR=$(dirname "$1") "$root/tools/node/build.sh" >&2

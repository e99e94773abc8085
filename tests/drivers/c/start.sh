#!/usr/bin/env bash
# tests/drivers/c/start.sh PROGRAMS MODE: the C driver, built first unless it is newer than what it is made of.
# PROGRAMS is cargo's folder of built programs. `start.sh PROGRAMS build` only builds.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
programs=$1
driver=$programs/onelock-driver-c

fresh() {
    [ -x "$driver" ] && [ -z "$(find "$here" "$root/core/src" "$root/bindings-c/src" "$root/bindings-c/include" \
        "$root/Cargo.lock" -newer "$driver" -print -quit)" ]
}

if ! fresh; then
    # many drivers start at once; the first one builds
    exec 9>"$driver.lock"
    flock 9
    if ! fresh; then
        CARGO_TARGET_DIR=$(dirname "$programs") "$root/tools/bindings.sh"
        cc -std=c99 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Wpedantic -Werror -I"$root/bindings-c/include" \
            -o "$driver.new" "$here/driver.c" "$programs/libonelock.a" \
            -lgcc_s -lutil -lrt -lpthread -lm -ldl >&2
        mv -f "$driver.new" "$driver"
    fi
    flock -u 9
    exec 9>&-
fi
[ "$2" = build ] || exec "$driver" "$2"

#!/usr/bin/env bash
# tests/drivers/ruby/start.sh PROGRAMS: the Ruby driver, on the library in PROGRAMS, cargo's folder of built programs.
# `start.sh PROGRAMS build` builds that, and installs Ruby where it is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
programs=$1
if [ "${2:-}" = build ]; then
    # several tests start at once; one builds
    exec 9>"$programs/onelock-driver-ruby.lock"
    flock 9
    "$root/tools/ruby/needs.sh"
    CARGO_TARGET_DIR=$(dirname "$programs") "$root/tools/bindings.sh"
else
    ONELOCK_LIBRARY=$programs/libonelock.so exec ruby -W0 -I"$root/bindings-ruby/lib" "$here/driver.rb"
fi

#!/usr/bin/env bash
# Measures how one lock goes from hand to hand, in every language, and prints one table for each part.
#
#   bench/handover/run.sh                      everything, about ten minutes after building
#   bench/handover/run.sh --quick              enough to see that it works, not for numbers to quote
#   bench/handover/run.sh --base DIR two       another checkout's build, measured in turn with this one's; one part
#   bench/handover/run.sh --faces Python,C     some languages
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
words=()
while [ $# -gt 0 ]; do
    if [ "$1" = --base ]; then
        base=$(cd "$2" && pwd)
        # a target folder of its own: two checkouts of one workspace take each other's files for theirs
        CARGO_TARGET_DIR=$base/target "$here/build.sh" "$base" "$root/target/handover/base"
        words+=(--base "$root/target/handover/base")
        shift 2
    else
        words+=("$1")
        shift
    fi
done
"$root/tools/servers.sh" redis-server-7.0
python=$("$root/bench/python/setup.sh")
"$here/build.sh" "$root" "$root/target/handover/own"
exec "$python" "$here/main.py" --server "${ONELOCK_SERVERS:-$root/.tools/bin}/redis-server-7.0" \
    --build "$root/target/handover/own" "${words[@]}"

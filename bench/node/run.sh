#!/usr/bin/env bash
# Measures the Node package against ioredis, redlock and redis-semaphore, and prints one table. About two minutes.
#
#   bench/node/run.sh              everything
#   bench/node/run.sh --quick      enough to see that it works, not for numbers to quote
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
native=$("$here/setup.sh")
"$root/tools/servers.sh" redis-server-7.0
ONELOCK_NATIVE=$native exec node "$here/main.mjs" "$@"

#!/usr/bin/env bash
# Measures the gem beside ruby-redis and prints one table. `bench/ruby/run.sh --quick` only sees that everything works. What is
# measured, and how to read it: bench/README.md.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
"$root/tools/ruby/needs.sh"
built=$("$root/tools/c/build.sh")
# all on one processor, as for the other languages: then the ratio does not depend on where the threads happen to run
cpus=()
if command -v taskset >/dev/null; then cpus=(taskset -c 0); fi
ONELOCK_LIBRARY=$built/libonelock.so exec "${cpus[@]}" "$root/tools/with-server.sh" \
    ruby -I"$root/bindings-ruby/lib" "$root/bench/ruby/main.rb" "$@"

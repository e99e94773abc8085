#!/usr/bin/env bash
# All checks, in the order in which they fail fastest. Prints how long each part took, and ends with one line that says
# what passed.
#
#   tools/test.sh           all
#   tools/test.sh PART...   only these parts: lint servers build core suites documents cli c node python ruby kotlin simulator wasm
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PATH:$HOME/.cargo/bin
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(lint servers build core suites documents cli c node python ruby kotlin simulator wasm)

log=$(mktemp)
times=$(mktemp)
started=$SECONDS
step() { printf '\n== %s\n' "$*"; "$@"; }

# The slowest suites, read from the lines that cargo prints around each of them.
slowest_suites() {
    awk '/^ *Running / { name = $2 == "unittests" ? $3 " " $4 : $2 }
         /^test result:/ && name != "" { seconds = $NF; sub(/s$/, "", seconds); printf "%8.1f s  %s\n", seconds, name; name = "" }' "$log" |
        sort -rn | head -n 12
}

# Whoever sees only the end of the output is to see which test it was, and where the time went.
finish() {
    local status=$?
    if ((status)); then
        grep -E -A 3 '^test .* FAILED$|panicked at ' "$log" | grep -v '^--$' | cut -c 1-300 | tail -n 24 || true
    fi
    printf '\nseconds of each part\n'
    cat "$times"
    printf 'slowest suites of the Rust tests\n'
    slowest_suites
    rm -f "$log" "$times"
    exit "$status"
}
trap finish EXIT

run_lint() { tools/lint.sh; }

run_servers() {
    step tools/servers.sh
    step tools/peers.sh
}

run_build() { step cargo test --workspace --all-targets --locked --no-run --quiet; }

# Always the whole workspace: with one package alone cargo would choose other features and build everything again.
run_core() { step cargo test --workspace --lib --locked --no-fail-fast 2>&1 | tee -a "$log"; }

# More tests at once than there are processors: most of them wait most of the time.
run_suites() {
    RUST_TEST_THREADS=${RUST_TEST_THREADS:-4} step cargo test --workspace --bins --examples --test '*' --locked --no-fail-fast 2>&1 | tee -a "$log"
}

run_documents() {
    step cargo test --workspace --doc --locked 2>&1 | tee -a "$log"
    RUSTDOCFLAGS='-D warnings' step cargo doc --quiet --workspace --no-deps --document-private-items --locked
}

run_cli() { step tools/cli/test.sh; }
run_c() { step tools/c/test.sh; }
run_node() { step tools/node/test.sh; }
run_python() { step tools/python/test.sh; }
run_ruby() { step tools/ruby/test.sh; }
run_kotlin() { step tools/uniffi/test.sh; }
run_simulator() { step tools/simulator/test.sh; }
run_wasm() { step tools/wasm/test.sh; }

for part in "${parts[@]}"; do
    begun=$SECONDS
    "run_$part"
    printf '%8d    %s\n' $((SECONDS - begun)) "$part" | tee -a "$times"
done

awk -v seconds=$((SECONDS - started)) -v parts="${parts[*]}" '
    /^test result:/ { passed += $4; failed += $6; ignored += $8 }
    END {
        printf "\ntest: %s: %d Rust tests (%d failed, %d ignored): all passed in %d s\n", parts, passed, failed, ignored, seconds
        # A build that silently runs nothing must not look like a success; nor may a test be switched off.
        tested = index(" " parts " ", " core ") || index(" " parts " ", " suites ") || index(" " parts " ", " documents ")
        exit (tested && passed == 0) || failed > 0 || ignored > 0
    }' "$log"

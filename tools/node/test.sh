#!/usr/bin/env bash
# Everything about the Node package, in the order in which it fails fastest. `make test-node` runs it.
#
#   tools/node/test.sh           all
#   tools/node/test.sh PART...   only these parts: lint types docs unit versions runtimes outside
#
# `versions` runs the tests on every supported Node.js side by side, and `unit` on the one at hand alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
PATH=$PATH:$HOME/.cargo/bin
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(lint types docs versions runtimes outside)
started=$SECONDS
fail() { echo "failed: $*" >&2; exit 1; }
step() { printf '\n== Node: %s\n' "$*"; }

check_lint() {
    step "formatting and lint"
    (cd bindings-node && npx --no-install biome check --error-on-warnings .)
}

check_types() {
    step "types, from ES modules and from CommonJS"
    (cd bindings-node && npx --no-install tsc --project test/types/tsconfig.json)
    step "types, with old compilers"
    tools/node/compilers.sh
}

check_docs() {
    step "every public item is documented, and links lead somewhere"
    (cd bindings-node && npx --no-install typedoc --emit none --logLevel Warn)
}

check_unit() {
    step "tests, on real servers"
    run_tests node
}

check_versions() {
    local own majors programs runs=() failed=()
    own=$(node --version)
    majors=("${own#v}" 18 22) programs=(node)
    step "tests, on real servers, on Node.js ${majors[*]}, side by side"
    for major in 18 22; do programs+=("$(tools/node/version.sh "$major")"); done
    local output; output=$(mktemp -d)
    for number in "${!majors[@]}"; do
        run_tests "${programs[number]}" >"$output/$number" 2>&1 &
        runs+=($!)
    done
    for number in "${!majors[@]}"; do
        wait "${runs[number]}" || failed+=("${majors[number]}")
        printf 'Node.js %s: ' "${majors[number]}"
        cat "$output/$number"
    done
    rm -rf "$output"
    [ ${#failed[@]} -eq 0 ] || fail "tests on Node.js ${failed[*]}"
}

check_runtimes() {
    step "Bun, Deno, and bundles"
    tools/with-server.sh "$root/tools/node/runtimes.sh"
}

check_outside() {
    step "the tarballs, installed in an empty folder"
    tools/with-server.sh "$root/tools/node/outside.sh" node "$(tools/node/version.sh 18)" "$(tools/node/version.sh 22)"
}

# run_tests NODE: only what failed is shown, and the counts
run_tests() {
    tools/servers.sh
    export ONELOCK_SERVERS=${ONELOCK_SERVERS:-$root/.tools/bin}
    local log; log=$(mktemp)
    if (cd bindings-node && timeout --kill-after=5 600 "$1" --test test/*.test.cjs test/*.test.mjs) >"$log" 2>&1; then
        grep -E '^. (tests|pass|fail|skipped|todo) [0-9]|^# (tests|pass|fail|skipped|todo)' "$log" | tr '\n' ' '
        echo
        # a run that leaves something out must not look like a good one
        if grep -Eq '(skipped|todo|cancelled) [1-9]' "$log" || grep -Eq '^[^0-9]*tests 0$' "$log"; then
            fail "tests were left out"
        fi
        rm -f "$log"
    else
        cat "$log"
        rm -f "$log"
        fail "tests"
    fi
}

tools/node/build.sh
for part in "${parts[@]}"; do "check_$part"; done
printf '\nNode: %s: all passed in %d s\n' "${parts[*]}" $((SECONDS - started))

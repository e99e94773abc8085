#!/usr/bin/env bash
# Everything about WebAssembly. `make test-wasm` runs it.
#
#   tools/wasm/test.sh           all
#   tools/wasm/test.sh PART...   only these parts: core package
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
PATH=$PATH:$HOME/.cargo/bin
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(core package)
started=$SECONDS
fail() { echo "failed: $*" >&2; exit 1; }
step() { printf '\n== WebAssembly: %s\n' "$*"; }

check_core() {
    step "the core needs nothing that a host lacks"
    local needs crate
    needs=$(cargo tree --locked --package onelock --no-default-features --features redlock --edges normal \
        --target wasm32-unknown-unknown --prefix none --format '{p}' | cut -d ' ' -f 1 | sort -u)
    for crate in libc rustix socket2 ring rustls tokio-rustls getrandom mio; do
        if grep -qx "$crate" <<<"$needs"; then fail "the core needs $crate there"; fi
    done
}

# At most so many bytes when gzipped.
size_max=$((640 * 1024))

check_package() {
    step "the package, and its size"
    tools/wasm/build.sh
    local size
    size=$(gzip -9c bindings-wasm/dist/onelock.wasm | wc -c)
    [ "$size" -le "$size_max" ] || fail "the module has $size bytes gzipped, more than $size_max"
    step "formatting and lint"
    (cd bindings-wasm && ../bindings-node/node_modules/.bin/biome check --error-on-warnings .)
    step "tests, on real servers: its own, and those of the Node package"
    tools/servers.sh valkey-server-9.1
    export ONELOCK_SERVERS=${ONELOCK_SERVERS:-$root/.tools/bin}
    local folder program
    folder=$(mktemp -d)
    # the tests of the Node package load it by its name
    mkdir -p "$folder/node_modules"
    ln -s "$root"/bindings-node/node_modules/* "$folder/node_modules/"
    ln -s "$root/bindings-wasm" "$folder/node_modules/onelock"
    ln -s "$root/bindings-wasm/dist" "$folder/dist"
    cp -r bindings-node/test "$folder/test"
    for program in node "$(tools/node/version.sh 18)" "$(tools/node/version.sh 22)"; do
        run_tests "$program" bindings-wasm test/host.test.cjs
        # without those of processes, threads, and files of the native package
        run_tests "$program" "$folder" test/{abort,arguments,basics,loss,multi_lock,prometheus,properties,redlock,redlock_quorum,using}.test.cjs
    done
    rm -rf "$folder"
}

# run_tests NODE FOLDER FILES...: only what failed is shown, and the counts
run_tests() {
    local log; log=$(mktemp)
    if (cd "$2" && timeout --kill-after=5 300 "$1" --test "${@:3}") >"$log" 2>&1 && ! grep -Eq '(skipped|todo|cancelled) [1-9]' "$log"; then
        grep -E '^. (tests|pass|fail) [0-9]|^# (tests|pass|fail)' "$log" | tr '\n' ' '
        echo
        rm -f "$log"
    else
        cat "$log"
        rm -f "$log"
        fail "tests on $1"
    fi
}

tools/node/needs.sh
for part in "${parts[@]}"; do "check_$part"; done
printf '\nWebAssembly: %s: all passed in %d s\n' "${parts[*]}" $((SECONDS - started))

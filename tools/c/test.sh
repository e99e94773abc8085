#!/usr/bin/env bash
# Everything about the C library, in the order in which it fails fastest. `make test-c` runs it.
#
#   tools/c/test.sh           all
#   tools/c/test.sh PART...   only these parts: header rust programs valgrind fuzz examples dist outside
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
PATH=$PATH:$HOME/.cargo/bin
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(header rust programs valgrind fuzz examples dist outside)

if [ -z "${ONELOCK_C_TEST_SERVER:-}" ]; then
    tools/c/needs.sh
    tools/cargo.sh
    export ONELOCK_C_TEST_SERVER=1
    exec tools/with-server.sh "$root/tools/c/test.sh" "${parts[@]}"
fi

started=$SECONDS
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/c-tests
binding=$root/bindings-c
tests=$binding/tests
rm -rf "$work"
mkdir -p "$work"
warnings=(-Wall -Wextra -Wpedantic -Werror)
posix=-D_XOPEN_SOURCE=700
step() { printf '\n== C library: %s\n' "$*"; }
fail() { echo "failed: $*" >&2; exit 1; }

# run LIMIT-IN-SECONDS COMMAND...: a test program that hangs has failed
run() { timeout --kill-after=5 "$@" || fail "exit status $? of: ${*:2}"; }

# ---- the library as other programs see it: installed, from the development build ------------------------------

stage=$work/stage
staged() {
    [ -e "$stage/usr/lib/libonelock.so" ] && return
    tools/bindings.sh
    tools/c/install.sh "$target/debug" "$stage" /usr
}
include() { printf -- '-I%s/usr/include' "$stage"; }
shared() { printf -- '-L%s/usr/lib -lonelock -Wl,-rpath,%s/usr/lib' "$stage" "$stage"; }
static() { printf -- '%s/usr/lib/libonelock.a -lgcc_s -lutil -lrt -lm -ldl' "$stage"; }

check_header() {
    step "header and list of functions are up to date, and are what the library exports"
    cargo run --quiet --locked --bin onelock-c-header -- --check
    staged
    nm -D --defined-only "$stage/usr/lib/libonelock.so" | awk '{ print $3 }' | sort >"$work/exported"
    diff "$binding/abi/symbols.txt" "$work/exported" || fail "the shared library exports something else"
    readelf -d "$stage/usr/lib/libonelock.so" >"$work/dynamic"
    grep -q 'SONAME.*\[libonelock\.so\.' "$work/dynamic" || fail "no soname"
    grep -q 'NODELETE' "$work/dynamic" || fail "the library could be unmapped under its threads"
    while read -r name; do
        grep -q "($name(" "$tests/calls.h" || fail "$name is missing in bindings-c/tests/calls.h"
    done <"$binding/abi/symbols.txt"
    # the frame that catches panics is the whole body of every exported function
    awk '/^pub (unsafe )?extern "C" fn/ { name = $0; open = 1 }
         open && /^    .*(status|value|get|borrowed|name_of|make|acquire|set|end|free(::<[A-Za-z]+>)?)\(/ { open = 0 }
         /^}/ && open { print name; open = 0; bad = 1 }
         END { exit bad }' "$binding"/src/*.rs || fail "an exported function without the frame"
    for language in c99 c11 c17; do
        gcc -std=$language "${warnings[@]}" $(include) -fsyntax-only -x c - <<<'#include <onelock.h>'
    done
    for language in c++11 c++17 c++20; do
        g++ -std=$language "${warnings[@]}" $(include) -fsyntax-only -x c++ - <<<'#include <onelock.h>'
    done
    g++ -std=c++17 "${warnings[@]}" $(include) -fsyntax-only -x c++ - <<<'#include <onelock.hpp>'
}

check_rust() {
    step "unit tests"
    # of all packages, as elsewhere: with two of them alone cargo would build everything again
    cargo test --quiet --locked --workspace --lib
    cargo test --quiet --locked --workspace --bin onelock-c-header
}

programs=(basics multi wait loss hostile log credentials fork exit limits)

# build NAME STANDARD OUTPUT FLAGS...
build() {
    gcc -std="$2" $posix -O1 -g "${warnings[@]}" $(include) -o "$3" "$tests/$1.c" "${@:4}" -pthread
}

check_programs() {
    staged
    step "programs in C99 with AddressSanitizer and LeakSanitizer, shared library"
    for name in "${programs[@]}"; do
        build "test_$name" c99 "$work/$name" -fsanitize=address $(shared)
        run 120 "$work/$name"
    done
    step "a program in C++17 with AddressSanitizer"
    g++ -std=c++17 -O1 -g "${warnings[@]}" $(include) -fsanitize=address -o "$work/cpp" "$tests/test_cpp.cpp" $(shared) -pthread
    run 120 "$work/cpp"
    step "programs in C11, static library"
    for name in "${programs[@]}"; do
        build "test_$name" c11 "$work/$name-static" $(static)
        run 120 "$work/$name-static"
    done
    step "waiting, forks and the end of a process on etcd, with AddressSanitizer"
    for name in wait fork exit; do run 120 tools/with-etcd.sh "$work/$name"; done
    step "signals every 10 ms, plain and over TLS, with AddressSanitizer and with the static library"
    build test_signals c99 "$work/signals" -fsanitize=address $(shared)
    build test_signals c11 "$work/signals-static" $(static)
    for program in signals signals-static; do run 240 tools/c/with-tls-server.sh "$work/$program"; done
    step "opened and closed as a plug-in"
    build test_dlopen c11 "$work/dlopen" -ldl
    run 60 "$work/dlopen" "$stage/usr/lib/libonelock.so"
}

check_valgrind() {
    staged
    step "valgrind: no bad access, nothing lost"
    for name in basics multi wait loss hostile log credentials; do
        build "test_$name" c11 "$work/$name-plain" $(shared)
        run 300 valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
            --show-leak-kinds=definite --fair-sched=yes "$work/$name-plain"
    done
}

check_fuzz() {
    staged
    step "arbitrary calls under AddressSanitizer"
    build fuzz c11 "$work/fuzz" -fsanitize=address $(shared)
    for seed in 1 2 3 4 5 6; do run 120 "$work/fuzz" $seed 40000; done
    for seed in 7 8; do run 120 "$work/fuzz" $seed 20000 4; done
    # a seed of its own every time; it is printed
    run 120 "$work/fuzz" $RANDOM 40000
}

check_examples() {
    staged
    step "examples"
    for example in acquire try_acquire renew lost_lease worker transfer job_queue cache downloads; do
        gcc -std=c99 $posix "${warnings[@]}" $(include) -o "$work/example-$example" "$binding/examples/$example.c" $(shared) -pthread
        run 60 "$work/example-$example" | tail -n 3
    done
    g++ -std=c++17 "${warnings[@]}" $(include) -o "$work/example-cpp" "$binding/examples/acquire.cpp" $(shared)
    run 60 "$work/example-cpp"
    gcc -std=c99 "${warnings[@]}" $(include) -o "$work/example-redlock" "$binding/examples/redlock.c" $(shared)
    # two more servers beside the one that is there; they are young, and would not vote yet
    run 60 tools/with-server.sh tools/with-server.sh bash -c \
        'ONELOCK_URL="redlock://$ONELOCK_HOSTS?quarantine_ms=0" exec "$0"' "$work/example-redlock" | tee "$work/redlock.log"
    [ "$(grep -c 'held by a majority' "$work/redlock.log")" -eq 3 ] || fail "the example of three servers"
}

# ---- the library as it is given away --------------------------------------------------------------------------

installed=$work/installed
install_it() {
    [ -e "$installed/opt/onelock/lib/libonelock.a" ] && return
    make --no-print-directory install DESTDIR="$installed" PREFIX=/opt/onelock >/dev/null
}

check_dist() {
    step "the release build: symbols, size, glibc"
    install_it
    local lib=$installed/opt/onelock/lib file newest size
    file=$(readlink -f "$lib/libonelock.so")
    nm -D --defined-only "$file" | awk '{ print $3 }' | sort | diff "$binding/abi/symbols.txt" - || fail "exports"
    nm --defined-only --extern-only "$lib/libonelock.a" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort |
        diff "$binding/abi/symbols.txt" - || fail "the static library has other global names"
    size=$(stat -c %s "$file")
    [ "$size" -lt $((10 << 20)) ] || fail "the shared library has $size bytes"
    newest=$(objdump -T "$file" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    echo "size $((size / 1024)) KiB, newest glibc symbol $newest"
    if [ -x "$root/.tools/zig/bin/cargo-zigbuild" ]; then
        [ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.28 ] || fail "newer than RHEL 8"
    fi
    objdump -p "$file" | awk '/NEEDED/ { print $2 }' | grep -Ev '^(libc|libm|libpthread|libdl|librt|libutil|libgcc_s|ld-linux.*)\.so' &&
        fail "the library needs more than the C library" || true
}

check_outside() {
    step "outside projects, from the installed tree only"
    install_it
    # moved away, as a package may be: nothing may name the place where it was made
    local prefix=$work/elsewhere out=$work/outside
    rm -rf "$prefix" "$out"
    cp -a "$installed/opt/onelock" "$prefix"
    mkdir -p "$out"
    cp -r "$tests/outside/." "$out"
    cp "$binding/examples/acquire.c" "$binding/examples/acquire.cpp" "$out"
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    unset PKG_CONFIG_SYSROOT_DIR
    local version; version=$(pkg-config --modversion onelock)
    grep -q "ONELOCK_VERSION \"$version\"" "$prefix/include/onelock.h" || fail "onelock.pc names another version"
    for file in LICENSE-MIT LICENSE-APACHE THIRD-PARTY-NOTICES.txt; do cmp "$file" "$prefix/share/doc/onelock/$file" || fail "$file"; done

    (cd "$out" && gcc -o by-pkg-config acquire.c $(pkg-config --define-prefix --cflags --libs onelock) -Wl,-rpath,"$prefix/lib")
    run 30 "$out/by-pkg-config"
    (cd "$out" && gcc $(pkg-config --define-prefix --cflags onelock) -o static acquire.c "$prefix/lib/libonelock.a" \
        $(pkg-config --define-prefix --static --libs-only-l onelock | sed 's/-lonelock//'))
    ldd "$out/static" | grep -q onelock && fail "not linked statically"
    run 30 "$out/static"
    (cd "$out" && g++ -std=c++17 -o in-cpp acquire.cpp $(pkg-config --define-prefix --cflags --libs onelock) -Wl,-rpath,"$prefix/lib")
    run 30 "$out/in-cpp"
    cmake -S "$out" -B "$out/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >"$out/cmake.log" ||
        { cat "$out/cmake.log"; fail "find_package"; }
    cmake --build "$out/build" >>"$out/cmake.log" || { cat "$out/cmake.log"; fail "building with CMake"; }
    for program in shared static cpp; do run 30 "$out/build/acquire-$program"; done
    grep -rl "$installed\|$root" "$prefix/include" "$prefix/lib/pkgconfig" "$prefix/lib/cmake" && fail "a path of the build machine" || true
}

for part in "${parts[@]}"; do "check_$part"; done
printf '\nC library: %s: all passed in %d s\n' "${parts[*]}" $((SECONDS - started))

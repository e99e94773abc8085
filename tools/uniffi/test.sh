#!/usr/bin/env bash
# All checks of the Kotlin package.
#
#   tools/uniffi/test.sh           all
#   tools/uniffi/test.sh PART...   only these parts: tests scenarios outside
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
PATH=$PATH:$HOME/.cargo/bin
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(tests scenarios outside)
started=$SECONDS
step() { printf '\n== Kotlin: %s\n' "$*"; }

needs=$(tools/uniffi/needs.sh)
built=$(tools/uniffi/build.sh)
classes=$built/tests

compile_tests() {
    local on
    on=$built/onelock.jar:$(printf '%s:' "$needs"/runtime/*.jar)
    local stamp; stamp=$(cat "$built/.stamp" bindings-uniffi/kotlin/tests/*.kt bindings-uniffi/kotlin/tests/onelock/tests/*.java tools/uniffi/test.sh | sha256sum)
    [ "$(cat "$classes/.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    rm -rf "$classes"
    # the tests see what is internal; the compiler reads the Java sources, and Java is compiled against both
    java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$needs/compiler/*" org.jetbrains.kotlin.cli.jvm.K2JVMCompiler \
        -no-stdlib -no-reflect -jvm-target 17 -module-name onelock -nowarn -Xfriend-paths="$built/onelock.jar" \
        -cp "$on" -d "$classes" bindings-uniffi/kotlin/tests
    javac -Xlint:all,-try,-classfile -Werror -cp "$on" -d "$classes" bindings-uniffi/kotlin/tests/onelock/tests/*.java
    echo "$stamp" >"$classes/.stamp"
}

check_tests() {
    step "its own tests, on a real server"
    compile_tests
    tools/with-server.sh timeout --kill-after=5 200 java -XX:+UseSerialGC \
        -Donelock.errors="$root/tests/spec/errors.toml" \
        -cp "$classes:$built/onelock.jar:$(printf '%s:' "$needs"/runtime/*.jar)" onelock.tests.MainKt
}

# Those that all languages share, with Kotlin beside Rust: every fourth here. A run of all takes a minute:
# ONELOCK_EVERY=1 tools/uniffi/test.sh scenarios
check_scenarios() {
    step "the scenarios of all languages"
    compile_tests
    tools/servers.sh
    ONELOCK_SERVERS=${ONELOCK_SERVERS:-$root/.tools/bin} ONELOCK_EVERY=${ONELOCK_EVERY:-4} \
        ONELOCK_DRIVERS=$root/tests/drivers/kotlin/drivers.toml \
        timeout --kill-after=5 300 cargo test --quiet --workspace --locked --test scenarios -- 'valkey-server-9.1 kotlin+rust-async' |
        grep -v ' ok ('
}

# The jar in an empty folder, with nothing else of this checkout.
check_outside() {
    step "the jar, in an empty folder"
    local folder; folder=$(mktemp -d)
    cp "$built/onelock.jar" "$needs"/runtime/*.jar "$folder/"
    cp bindings-uniffi/kotlin/tests/onelock/tests/JavaCaller.java "$folder/"
    cat >"$folder/Outside.java" <<'JAVA'
public final class Outside {
    public static void main(String[] words) throws Exception {
        onelock.tests.JavaCaller.run(System.getenv("ONELOCK_URL"), "outside");
        System.out.println("outside: passed");
    }
}
JAVA
    (cd "$folder" && javac -cp './*' -d . ./*.java && "$root/tools/with-server.sh" timeout 60 java -cp '.:./*' Outside)
    rm -rf "$folder"
}

for part in "${parts[@]}"; do "check_$part"; done
printf '\nKotlin: %s: all passed in %d s\n' "${parts[*]}" $((SECONDS - started))

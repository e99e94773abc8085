#!/usr/bin/env bash
# tests/drivers/kotlin/start.sh PROGRAMS: the Kotlin driver, which tools/uniffi/test.sh has compiled.
set -euo pipefail
target=$(dirname "$1")
built=$target/onelock-kotlin/debug
exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto \
    -cp "$built/tests:$built/onelock.jar:$(printf '%s:' "$target"/onelock-kotlin-needs/runtime/*.jar)" onelock.tests.DriverKt

#!/usr/bin/env bash
# What building and testing the Kotlin package needs: a JDK from 17 on, Maven, the Kotlin compiler and the libraries that the
# package uses, and the generator of its private part. As root on Debian or Ubuntu the first two are installed.
# Prints the folder with: compiler/*.jar, runtime/*.jar, uniffi-bindgen.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
PATH=$PATH:$HOME/.cargo/bin
tools/cargo.sh
kotlin=2.2.21
coroutines=1.10.2
jna=5.18.1
target=${CARGO_TARGET_DIR:-$root/target}
out=$target/onelock-kotlin-needs
versions="kotlin $kotlin coroutines $coroutines jna $jna"

need() {
    local command=$1
    shift
    if command -v "$command" >/dev/null; then return; fi
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "kotlin: $command is missing: install it (Debian: apt-get install $*)" >&2
        exit 1
    fi
    apt-get update -q >&2 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
}
need javac default-jdk-headless
need mvn maven

# fetch FOLDER DEPENDENCIES: by Maven coordinates, with what they need
fetch() {
    local folder=$1
    shift
    mkdir -p "$folder"
    {
        echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        echo '<groupId>onelock</groupId><artifactId>needs</artifactId><version>1</version><packaging>pom</packaging><dependencies>'
        for dependency in "$@"; do
            IFS=: read -r group artifact version <<<"$dependency"
            echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></dependency>"
        done
        echo '</dependencies></project>'
    } >"$folder/pom.xml"
    copy() { mvn -q -B -f "$folder/pom.xml" dependency:copy-dependencies -DoutputDirectory="$folder" -DincludeScope=runtime >&2; }
    # a registry can be slow to answer once; a second failure is final
    copy || { echo "kotlin: once more: mvn" >&2; copy; }
}

mkdir -p "$out"
# several may start at once; the first one fetches
exec 9>"$out/lock"
flock 9
if [ "$(cat "$out/.versions" 2>/dev/null)" != "$versions" ]; then
    rm -rf "$out/compiler" "$out/runtime"
    fetch "$out/compiler" "org.jetbrains.kotlin:kotlin-compiler-embeddable:$kotlin"
    fetch "$out/runtime" "org.jetbrains.kotlinx:kotlinx-coroutines-core-jvm:$coroutines" "net.java.dev.jna:jna:$jna" \
        "org.jetbrains.kotlin:kotlin-stdlib:$kotlin"
    echo "$versions" >"$out/.versions"
fi
if ! cmp -s bindings-uniffi/bindgen/Cargo.lock "$out/.bindgen"; then
    CARGO_TARGET_DIR=$target/onelock-bindgen cargo build --quiet --locked --manifest-path bindings-uniffi/bindgen/Cargo.toml >&2
    cp "$target/onelock-bindgen/debug/onelock-bindgen" "$out/uniffi-bindgen"
    cp bindings-uniffi/bindgen/Cargo.lock "$out/.bindgen"
fi
echo "$out"

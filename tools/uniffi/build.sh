#!/usr/bin/env bash
# Builds the Kotlin package: the native library, the Kotlin that is generated from it, and a jar with both and with
# bindings-uniffi/kotlin/src. Prints the folder with: onelock.jar, lib*.jar (what it uses).
#
#   tools/uniffi/build.sh              the development build, quick to make
#   tools/uniffi/build.sh --release    the one to give away
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
PATH=$PATH:$HOME/.cargo/bin
needs=$(tools/uniffi/needs.sh)
target=${CARGO_TARGET_DIR:-$root/target}
profile=debug
if [ "${1:-}" = --release ]; then profile=release; fi
out=$target/onelock-kotlin/$profile
mkdir -p "$out"

case $(uname -s) in
    Darwin) library=libonelock_uniffi.dylib system=darwin ;;
    MINGW* | MSYS* | CYGWIN*) library=onelock_uniffi.dll system=win32 ;;
    *) library=libonelock_uniffi.so system=linux ;;
esac
# as JNA names machines
case $(uname -m) in
    x86_64 | amd64) machine=x86-64 ;;
    arm64 | aarch64) machine=aarch64 ;;
    *) machine=$(uname -m) ;;
esac

built=$target/$profile
if [ "$profile" = release ]; then
    if [ "$system" = linux ] && zig=$(tools/zig.sh); then
        triple=$(rustc -vV | sed -n 's/^host: //p')
        # the wrapper looks for `python -m ziglang` on the path
        PATH=$zig:$PATH cargo zigbuild --quiet --release --locked --package onelock-uniffi --target "$triple.2.28" >&2
        built=$target/$triple/release
    else
        echo "building against this machine's C library" >&2
        cargo build --quiet --release --locked --package onelock-uniffi >&2
    fi
else
    tools/bindings.sh
fi

# compile FOLDER CLASSPATH SOURCES...
compile() {
    local folder=$1 classes=$2
    shift 2
    java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$needs/compiler/*" org.jetbrains.kotlin.cli.jvm.K2JVMCompiler \
        -no-stdlib -no-reflect -jvm-target 17 -module-name onelock -nowarn -cp "$classes" -d "$folder" "$@" >&2
}

runtime=$(printf '%s:' "$needs"/runtime/*.jar)
exec 9>"$out/lock"
flock 9
stamp=$(cat "$built/$library" bindings-uniffi/uniffi.toml bindings-uniffi/kotlin/src/*.kt tools/uniffi/build.sh | sha256sum)
if [ "$(cat "$out/.stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$out/generated" "$out/classes" "$out/.stamp"
    "$needs/uniffi-bindgen" generate --library "$built/$library" --language kotlin --config bindings-uniffi/uniffi.toml \
        --no-format --out-dir "$out/generated" >&2
    # a data class writes its values, and one is a password
    sed -i.all 's/^data class NativeClientOptions (/class NativeClientOptions (/' "$out"/generated/onelock/*.kt
    rm "$out"/generated/onelock/*.all
    grep -q '^class NativeClientOptions (' "$out"/generated/onelock/*.kt
    compile "$out/classes" "$runtime" "$out"/generated/onelock/*.kt bindings-uniffi/kotlin/src/*.kt
    resources=$out/classes/$system-$machine
    mkdir -p "$resources" "$out/classes/META-INF"
    if [ "$system" = linux ]; then
        strip --strip-unneeded -o "$resources/$library" "$built/$library"
    else
        cp "$built/$library" "$resources/"
    fi
    cp LICENSE-MIT LICENSE-APACHE THIRD-PARTY-NOTICES.txt "$out/classes/META-INF/"
    jar --create --file "$out/onelock.jar.new" -C "$out/classes" .
    mv -f "$out/onelock.jar.new" "$out/onelock.jar"
    echo "$stamp" >"$out/.stamp"
fi
echo "$out"

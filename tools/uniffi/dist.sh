#!/usr/bin/env bash
# The Kotlin package as dist/onelock-VERSION-MACHINE.jar, with the native library of this machine in it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
built=$(tools/uniffi/build.sh --release)
mkdir -p dist
name=onelock-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m).jar
cp "$built/onelock.jar" "dist/$name"
echo "dist/$name"

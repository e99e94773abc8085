#!/usr/bin/env bash
# The gem as it is given away, with the native library in it: dist/onelock-VERSION-PLATFORM.gem. Prints the file.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
tools/ruby/needs.sh
built=$(tools/c/build.sh)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r bindings-ruby/lib bindings-ruby/examples bindings-ruby/README.md bindings-ruby/onelock.gemspec "$folder"
cp LICENSE-MIT LICENSE-APACHE THIRD-PARTY-NOTICES.txt "$folder"
install -D -m 755 "$built/libonelock.so" "$folder/lib/onelock/native/libonelock.so"
mkdir -p dist
rm -f dist/onelock-*.gem
(cd "$folder" && gem build --silent onelock.gemspec >&2)
mv "$folder"/onelock-*.gem dist/
ls dist/onelock-*.gem

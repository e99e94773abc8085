#!/usr/bin/env bash
# The C library as an archive: dist/onelock-c-VERSION-MACHINE.tar.gz, to be unpacked anywhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version=$(sed -n 's/^#define ONELOCK_VERSION "\(.*\)"$/\1/p' bindings-c/include/onelock.h)
name=onelock-c-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)
built=$(tools/c/build.sh)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tools/c/install.sh "$built" "$folder" "/$name"
# found where the archive is unpacked, whatever that place is called
sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$folder/$name/lib/pkgconfig/onelock.pc"
tools/cli/install.sh "$(tools/cli/build.sh)" "$folder" "/$name"
install -m 644 bindings-c/README.md "$folder/$name/README.md"
cp -r bindings-c/examples "$folder/$name/examples"
mkdir -p dist
tar -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner -czf "dist/$name.tar.gz" "$name"
echo "dist/$name.tar.gz"

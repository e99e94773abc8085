#!/usr/bin/env bash
# The command as it is given away, in dist/: an archive to be unpacked anywhere, a Debian package, a wheel and an npm tarball, all
# with the very same file. Prints them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
command=$(tools/cli/build.sh)
command -v npm >/dev/null || tools/node/needs.sh
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
machine=$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p dist

# ---- an archive: the command, its man pages, completion

name=onelock-$version-linux-$machine
tools/cli/install.sh "$command" "$work" "/$name"
install -m 644 cli/README.md "$work/$name/README.md"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -czf "dist/$name.tar.gz" "$name"
echo "dist/$name.tar.gz"

# ---- a Debian package, where its tool is to be had

if command -v dpkg-deb >/dev/null; then
    architecture=$(dpkg-deb --version >/dev/null && dpkg --print-architecture)
    deb=$work/deb
    tools/cli/install.sh "$command" "$deb" /usr
    gzip -9nr "$deb/usr/share/man"
    mkdir -p "$deb/DEBIAN"
    # static: it depends on nothing
    needs=$(ldd "$command" >/dev/null 2>&1 && echo 'Depends: libc6' || true)
    cat >"$deb/DEBIAN/control" <<CONTROL
Package: onelock
Version: $version
Architecture: $architecture
Maintainer: The onelock authors <onelock@users.noreply.github.com>
Section: utils
Priority: optional
Installed-Size: $(du -sk "$deb/usr" | cut -f1)
Description: run a command under a distributed lock, and see what is locked
 The lock is kept on a Redis or Valkey server, or on several, and shared with every
 program that uses onelock.
CONTROL
    [ -z "$needs" ] || sed -i "/^Architecture/a $needs" "$deb/DEBIAN/control"
    file=dist/onelock_${version}_$architecture.deb
    dpkg-deb --root-owner-group -Zxz --build "$deb" "$file" >&2
    echo "$file"
fi

# ---- a wheel that puts the command on PATH: one of its own, so that who wants the library does not load the command as well

rm -f dist/onelock_cli-*.whl
python3 tools/cli/wheel.py "$command" "$version" dist

# ---- an npm tarball, for the same reason

node tools/cli/npm.cjs "$command" "$version" "$work/npm"
(cd "$work/npm" && npm pack --silent --pack-destination "$root/dist") | sed 's|^|dist/|'

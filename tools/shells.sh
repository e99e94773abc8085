#!/usr/bin/env bash
# Puts the shells in which completion is tested into .tools/shells (ignored by git): `bin/zsh`, `bin/fish`, and `zshenv`, which
# tells zsh where its modules and functions are. Debian's packages, unpacked and not installed; elsewhere those of the system.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$root/.tools"
tools=$(cd "$root/.tools" && pwd -P)
shells=$tools/shells
die() { printf 'shells: %s\n' "$*" >&2; exit 1; }
works() { "$shells/bin/zsh" --version && "$shells/bin/fish" --version; } >/dev/null 2>&1

# Two test runs may start at once; the second one waits and then finds everything in place.
exec 9>"$tools/shells.lock"
flock 9
works && exit 0
work=$(mktemp -d "$tools/shells.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
if command -v apt-get >/dev/null && command -v dpkg >/dev/null; then
    download() { (cd "$work" && apt-get download -q zsh zsh-common fish fish-common libpcre2-32-0) >"$work/log" 2>&1; }
    download || { [ "$(id -u)" -ne 0 ] || apt-get update -q >&2; download; } || die "apt-get could not download: $(cat "$work/log")"
    for deb in "$work"/*.deb; do dpkg -x "$deb" "$work/x" && rm -f "$deb"; done
    rm -f "$work/log"
    libraries=$(dirname "$(find "$work/x" -name 'libpcre2-32.so.0')")
    modules=$(dirname "$(dirname "$(find "$work/x" -name zle.so)")")
    for shell in bin/zsh usr/bin/fish; do
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "${libraries/$work/$shells}" "$shells/x/$shell" >"$work/bin/${shell##*/}"
    done
    echo "module_path=(${modules/$work/$shells}) fpath=($shells/x/usr/share/zsh/functions/**/*(/) \$fpath)" >"$work/zshenv"
else
    command -v zsh >/dev/null && command -v fish >/dev/null || die "install zsh and fish"
    printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v zsh)" >"$work/bin/zsh"
    printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v fish)" >"$work/bin/fish"
    : >"$work/zshenv"
fi
chmod 755 "$work/bin"/*
rm -rf "$shells"
mv "$work" "$shells"
works || die "they do not run: $("$shells/bin/zsh" --version 2>&1; "$shells/bin/fish" --version 2>&1)"

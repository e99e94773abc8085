#!/usr/bin/env bash
# The command as people get it: each file of dist/ is installed into an empty folder, and the command run from there.
# `make test-cli` runs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
[ -n "${ONELOCK_URL:-}" ] || exec tools/with-server.sh "$root/tools/cli/test.sh"
started=$SECONDS
fail() { echo "failed: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mapfile -t files < <(tools/cli/dist.sh)
command=${CARGO_TARGET_DIR:-$root/target}/onelock-cli/onelock
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
size=$(stat -c %s "$command")
echo "command: $((size / 1024)) KiB"
[ "$size" -lt $((10 << 20)) ] || fail "the command has $size bytes"
if readelf -l "$command" | grep -q INTERP; then
    echo "it is no static build: see above"
else
    echo "it is static"
fi
for file in "${files[@]}"; do echo "$file: $(($(stat -c %s "$file") / 1024)) KiB"; done

# try PROGRAM: from an empty folder, it says its version, and runs a command under a lock
try() {
    local empty said
    empty=$(mktemp -d "$work/empty.XXXXXX")
    said=$(cd "$empty" && "$@" --version)
    [ "$said" = "onelock $version" ] || fail "$*: it says $said"
    said=$(cd "$empty" && "$@" run packages -- sh -c 'echo "$ONELOCK_NAME $ONELOCK_FENCING_TOKEN"')
    [[ $said =~ ^packages\ [0-9]+$ ]] || fail "$*: under the lock it says $said"
    (cd "$empty" && "$@" list nothing >list) && [ "$(wc -l <"$empty/list")" -eq 1 ] || fail "$*: list"
}

# as a person with the sources gets it; the development build without optimization, since the release is tried below
installed=$(mktemp -d "$work/cargo.XXXXXX")
PATH=$PATH:$HOME/.cargo/bin cargo install --quiet --debug --config profile.dev.package.onelock.opt-level=0 --locked --no-track \
    --path cli --root "$installed" --target-dir "${CARGO_TARGET_DIR:-$root/target}"
try "$installed/bin/onelock"

tried=0
for file in "${files[@]}"; do
    to=$(mktemp -d "$work/to.XXXXXX")
    case $file in
    *.tar.gz)
        tar -C "$to" -xzf "$file"
        try "$to"/onelock-*/bin/onelock
        man=$(echo "$to"/onelock-*/share/man/man1/onelock-run.1)
        grep -q 'min\\-hold' "$man" || fail "no man page"
        bash -n "$to"/onelock-*/share/bash-completion/completions/onelock
        cmp LICENSE-MIT "$to"/onelock-*/share/doc/onelock/LICENSE-MIT
        ;;
    *.deb)
        dpkg-deb -x "$file" "$to"
        [ "$(dpkg-deb -f "$file" Version)" = "$version" ] || fail "$file has another version"
        try "$to/usr/bin/onelock"
        [ -e "$to/usr/share/man/man1/onelock-list.1.gz" ] || fail "$file has no man pages"
        ;;
    *.whl)
        python3 -m venv "$to/venv"
        "$to/venv/bin/pip" install -q --disable-pip-version-check --no-index "$file"
        try env PATH="$to/venv/bin:/usr/bin:/bin" onelock
        ;;
    *.tgz)
        (cd "$to" && echo '{ "private": true }' >package.json && npm install --offline --silent --no-audit --no-fund "$root/$file")
        try npx --offline --prefix "$to" onelock
        ;;
    *) fail "nobody tries $file" ;;
    esac
    tried=$((tried + 1))
done
[ "$tried" -ge 3 ] || fail "only $tried files were tried"
printf '\ncommand: %d packages tried in %d s\n' "$tried" $((SECONDS - started))

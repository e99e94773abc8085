#!/usr/bin/env bash
# tools/node/outside.sh NODE...: packs the packages, installs the tarballs in an empty folder, and runs the examples from
# there with each NODE. $ONELOCK_URL names the server.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
package=$root/bindings-node
fail() { echo "failed: $*" >&2; exit 1; }

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mapfile -t tarballs < <(tools/node/dist.sh)
[ ${#tarballs[@]} -eq 2 ] || fail "two tarballs are expected: ${tarballs[*]}"
version=$(node -p 'require("./bindings-node/package.json").version')
platform=$(node "$package/scripts/platform.cjs")

# ---- what is in them

laid=${CARGO_TARGET_DIR:-$root/target}/onelock-node/packages
[ "$(find "$laid" -name package.json | wc -l)" -eq 9 ] || fail "there must be the package and eight platforms"
for manifest in "$laid"/*/package.json; do
    node -e '
        const { name, version, scripts, devDependencies } = require(process.argv[1])
        if (version !== process.argv[2]) throw new Error(`${name} has version ${version}`)
        if (scripts !== undefined || devDependencies !== undefined) throw new Error(`${name} would run or need something`)
    ' "$manifest" "$version"
done
node -e '
    const { optionalDependencies } = require(process.argv[1] + "/onelock/package.json")
    for (const [name, version] of Object.entries(optionalDependencies)) {
        const found = require(`${process.argv[1]}/${name.split("/")[1]}/package.json`)
        if (found.name !== name || found.version !== version) throw new Error(`${name} ${version} is not laid out`)
    }' "$laid"
tar -tzf "${tarballs[0]}" | sort >"$out/list"
grep -Ev '^package/(dist/[a-z_]+\.(js|mjs|d\.ts|d\.mts)|package\.json|README\.md|LICENSE-(MIT|APACHE))$' "$out/list" &&
    fail "these do not belong into the package"
for needed in dist/index.mjs dist/index.d.mts dist/redlock.mjs dist/redlock.d.mts dist/prometheus.mjs dist/prometheus.d.mts README.md LICENSE-MIT; do
    grep -qx "package/$needed" "$out/list" || fail "the package has no $needed"
done
tar -tzf "${tarballs[1]}" >"$out/native-list"
for needed in LICENSE-MIT LICENSE-APACHE THIRD-PARTY-NOTICES.txt; do
    grep -qx "package/$needed" "$out/native-list" || fail "the package with the native module has no $needed"
done
module=$laid/$platform/onelock.$platform.node
size=$(stat -c %s "$module")
newest=$(objdump -T "$module" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
echo "native module: $((size / 1024)) KiB, newest glibc symbol $newest"
[ "$size" -lt $((10 << 20)) ] || fail "the native module has $size bytes"
if tools/zig.sh >/dev/null; then
    [ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.28 ] || fail "newer than RHEL 8"
fi

# ---- as people use them

# without a registry: the platforms that are not here are left out, as npm leaves out those of other machines
install() {
    mkdir -p "$1"
    (cd "$1" && echo '{ "private": true }' >package.json && npm install --offline --silent --no-audit --no-fund "${@:2}")
}
install "$out/outside" "$root/${tarballs[0]}" "$root/${tarballs[1]}"
cp "$package"/examples/* "$out/outside"
# what the examples need beside it
for other in express ioredis; do ln -s "$package/node_modules/$other" "$out/outside/node_modules/$other"; done
for node in "$@"; do
    echo "$("$node" --version): $(cd "$out/outside" && ls ./*.mjs ./*.cjs | tr '\n' ' ')"
    for example in "$out"/outside/*.mjs "$out"/outside/*.cjs; do
        (cd "$out/outside" && timeout 60 "$node" --no-warnings "$example" >"$out/log" 2>&1) || { cat "$out/log"; fail "$example"; }
    done
done

# the types, as TypeScript finds them there
cp "$package"/test/types/*.mts "$package"/test/types/*.cts "$package"/test/types/tsconfig.json "$out/outside"
ln -s "$package/node_modules/@types" "$out/outside/node_modules/@types"
(cd "$out/outside" && node "$package/node_modules/typescript/bin/tsc" --project tsconfig.json) || fail "types"

# without the native module people are told what to do
install "$out/without" "$root/${tarballs[0]}"
(cd "$out/without" && node -e 'require("onelock")' >"$out/log" 2>&1) && fail "it loads without a native module"
grep -q "the package @onelock/$platform is not installed. It is an optional dependency" "$out/log" || { cat "$out/log"; fail "no help"; }
echo "installed and tried: ${tarballs[*]}"

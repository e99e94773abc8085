#!/usr/bin/env bash
# The Node package where others run it: Bun, Deno, and bundles of esbuild, webpack and rollup. $ONELOCK_URL names the
# server. The package is laid out as it is installed, with the module that tools/node/build.sh made.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=$PWD/tools/node
package=$PWD/bindings-node
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
platform=$(node "$package/scripts/platform.cjs")

modules=$folder/inside/node_modules
mkdir -p "$modules/onelock" "$modules/@onelock/$platform" "$folder/outside"
cp -r "$package/dist" "$package/package.json" "$modules/onelock/"
cp "$package/onelock.$platform.node" "$modules/@onelock/$platform/module.node"
echo '{ "main": "module.node" }' >"$modules/@onelock/$platform/package.json"
cp "$package"/test/runtimes/* "$folder/inside/"
cd "$folder/inside"
echo '{ "private": true, "dependencies": { "onelock": "*" } }' >package.json

# try WHAT COMMAND...: it must say "good", and end by itself
try() {
    timeout 120 "${@:2}" >"$folder/log" 2>&1 && [ "$(tail -n 1 "$folder/log")" = good ] || {
        echo "failed: $1" >&2
        head -c 4000 "$folder/log" >&2
        exit 1
    }
    echo "$1"
}

# refuses WHAT TEXT COMMAND...: it must fail and say this
refuses() {
    if timeout 120 "${@:3}" >"$folder/log" 2>&1 || ! grep -q "$2" "$folder/log"; then
        echo "failed: $1" >&2
        head -c 4000 "$folder/log" >&2
        exit 1
    fi
    echo "$1"
}

bun=$("$tools/fetch.sh" bun)/bin/bun.exe
deno=$("$tools/fetch.sh" deno)/deno
try "Node.js $(node --version)" node program.mjs
try "Bun $("$bun" --version)" "$bun" program.mjs
try "Bun, CommonJS" "$bun" entry.cjs
try "$("$deno" --version | head -n 1)" "$deno" run --quiet --allow-all --node-modules-dir=manual program.mjs
try "Node.js, CommonJS" node entry.cjs

esbuild=$("$tools/fetch.sh" esbuild)/bin/esbuild
for entry in entry.mjs entry.cjs; do
    "$esbuild" "$entry" --bundle --platform=node --outfile="esbuild-$entry.cjs" --log-level=warning
    try "esbuild, one file, $entry" node "esbuild-$entry.cjs"
done
"$esbuild" entry.mjs --bundle --platform=node --format=esm --external:onelock --outfile=esbuild.mjs --log-level=warning
try "esbuild, onelock as external" node esbuild.mjs

WEBPACK=$("$tools/fetch.sh" webpack) node -e '
    const options = { mode: "production", target: "node", entry: "./entry.mjs", context: process.cwd() }
    const output = { path: process.cwd(), filename: "webpack.cjs" }
    require(process.env.WEBPACK)({ ...options, output }, (error, stats) => {
        if (!error && !stats.hasErrors() && !stats.hasWarnings()) return
        console.error(error ?? stats.toString())
        process.exit(1)
    })'
try "webpack" node webpack.cjs
"$("$tools/fetch.sh" rollup)/dist/bin/rollup" entry.mjs --silent --external onelock,onelock/redlock --format es --file rollup.mjs
try "rollup, onelock as external" node rollup.mjs

# a bundle that was taken away from its packages says what to do, or is told where the module is
cp esbuild-entry.mjs.cjs webpack.cjs "$folder/outside"
cd "$folder/outside"
module=$modules/@onelock/$platform/module.node
for bundle in *.cjs; do
    refuses "a bundle alone: $bundle" "name onelock as external" node "$bundle"
    try "the same with ONELOCK_NATIVE" env ONELOCK_NATIVE="$module" node "$bundle"
done

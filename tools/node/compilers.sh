#!/usr/bin/env bash
# The types of the Node package with old compilers, which know nothing of "exports" in package.json under
# `moduleResolution: node`, and with the present one under each way of finding modules.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../bindings-node"
package=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/node_modules"
ln -s "$package" "$folder/node_modules/onelock"
ln -s "$package/node_modules/@types" "$folder/node_modules/@types"
cp test/types/old/program.ts "$folder"

# check FOLDER OPTION...
check() {
    local options=(--noEmit --strict --target es2021 --types node --esModuleInterop)
    (cd "$folder" && node "$1/bin/tsc" "${options[@]}" "${@:2}" program.ts) || {
        echo "failed: $*" >&2
        exit 1
    }
    echo "TypeScript $(node -p 'require(process.argv[1]).version' "$1/package.json") ${*:2}"
}
# the types of Node.js itself are newer than this compiler
check "$(../tools/node/fetch.sh typescript-4.7)" --module commonjs --moduleResolution node --skipLibCheck
check "$(../tools/node/fetch.sh typescript-5.0)" --module commonjs --moduleResolution node
check "$package/node_modules/typescript" --module commonjs --moduleResolution node
check "$package/node_modules/typescript" --module esnext --moduleResolution bundler

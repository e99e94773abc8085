#!/usr/bin/env bash
# tools/node/fetch.sh NAME: prints the folder of a package of npm that only tests need, fetched into .tools if need be.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# one version each: tests tell when a new one behaves otherwise
declare -A packages=(
    [typescript-4.7]=typescript@4.7.4
    [typescript-5.0]=typescript@5.0.4
    [bun]=bun@1.4.5
    [deno]=deno@2.9.6
    [esbuild]=esbuild@0.28.2
    [webpack]=webpack@5.113.0
    [rollup]=rollup@4.68.8
)
package=${packages[$1]}
folder=$root/.tools/node-${package/@/-}
name=${package%@*}
if [ ! -e "$folder/.complete" ]; then
    # another run may be at it: each makes its own, and the first one stays
    made=$(mktemp -d "$root/.tools/node-fetch.XXXXXX")
    trap 'rm -rf "$made"' EXIT
    npm install --silent --no-audit --no-fund --prefix "$made" "$package" >&2
    touch "$made/.complete"
    chmod 755 "$made"
    mv -T "$made" "$folder" 2>/dev/null || [ -e "$folder/.complete" ]
fi
echo "$folder/node_modules/$name"

#!/usr/bin/env bash
# What building and testing the Node package needs: Node.js 18 or newer and npm, and the development packages
# into bindings-node/node_modules. As root on Debian or Ubuntu Node.js is installed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "node: please install Node.js 18 or newer and npm (Debian: apt-get install nodejs npm)" >&2
        exit 1
    fi
    apt-get update -q >&2 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends nodejs npm >&2
fi
node -e 'if (Number(process.versions.node.split(".")[0]) < 18) process.exit(1)' || {
    echo "node: Node.js $(node --version) is too old: 18 or newer is needed" >&2
    exit 1
}

cd "$root/bindings-node"
# what is there already is known by the lock file that it was made from
mark=node_modules/.installed
if ! cmp -s package-lock.json "$mark"; then
    npm ci --no-audit --no-fund --loglevel=error >&2 || {
        # a registry can be slow to answer once; a second failure is final
        echo "node: once more: npm ci" >&2
        npm ci --no-audit --no-fund --loglevel=error >&2
    }
    cp package-lock.json "$mark"
fi

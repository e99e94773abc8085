#!/usr/bin/env bash
# What the test of the page needs from the system: a browser. As root on Debian or Ubuntu it is installed. Prints its program.
set -euo pipefail
for program in chromium chromium-browser google-chrome; do
    if command -v "$program"; then exit; fi
done
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo 'please install: chromium' >&2
    exit 1
fi
apt-get update -q >&2 || true
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core >&2
command -v chromium

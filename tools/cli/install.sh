#!/usr/bin/env bash
# tools/cli/install.sh COMMAND ROOT PREFIX: puts the command under ROOT/PREFIX, as it is installed: itself, its man pages, and what
# shells need to complete.
set -euo pipefail
source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
to=${2%/}$3
install -Dm 755 "$1" "$to/bin/onelock"
install -d "$to/share/bash-completion/completions" "$to/share/zsh/site-functions" "$to/share/fish/vendor_completions.d"
"$1" man "$to/share/man/man1"
"$1" completions bash >"$to/share/bash-completion/completions/onelock"
"$1" completions zsh >"$to/share/zsh/site-functions/_onelock"
"$1" completions fish >"$to/share/fish/vendor_completions.d/onelock.fish"
install -d "$to/share/doc/onelock"
for file in LICENSE-MIT LICENSE-APACHE THIRD-PARTY-NOTICES.txt; do install -m 644 "$source_root/$file" "$to/share/doc/onelock/"; done

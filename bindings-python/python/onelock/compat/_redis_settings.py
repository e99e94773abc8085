"""The server of a `redis.Redis` object as an address and options of ours, and our errors as redis-py's."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import redis.exceptions as theirs

from onelock import errors as ours
from onelock.compat._redis_known import check_client, check_settings, has_async, is_fixed, is_of_loops

__all__ = ["settings", "translated"]


def settings(client: Any) -> tuple[str, dict[str, Any]]:
    """Address and options for a client of ours that goes where `client` goes. No I/O.

    `TypeError` for whatever is not known to go there: another class of client, pool or connection, another setting.
    """
    check_client(client)
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None:
        return _cluster(client, nodes)
    pool = client.connection_pool
    given: dict[str, Any] = pool.connection_kwargs
    check_settings(given, _has_tls(pool))
    if hasattr(pool, "sentinel_manager"):
        return _sentinels(client, pool, given)
    if "path" in given:
        address = quote(str(given["path"]))
        return f"unix://{_login(given)}{address}?db={_database(given)}", _options(given, client)
    tls = _has_tls(pool)
    options = {**_options(given, client), **(_tls(given) if tls else {})}
    host = _host(given.get("host") or "localhost", given.get("port") or 6379)
    return f"{'rediss' if tls else 'redis'}://{_login(given)}{host}/{_database(given)}", options


def _sentinels(client: Any, pool: Any, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A client of `redis.sentinel.Sentinel.master_for`."""
    manager = pool.sentinel_manager
    if not pool.is_master:
        raise TypeError("a client of replicas cannot lock; use the one of Sentinel.master_for")
    for what, value in (
        ("min_other_sentinels", manager.min_other_sentinels),
        ("force_master_ip", getattr(manager, "_force_master_ip", None)),
    ):
        if value:
            raise TypeError(f"{what} is not understood here; use onelock.Client")
    watchers = [(watcher.connection_pool, watcher.connection_pool.connection_kwargs) for watcher in manager.sentinels]
    hosts = [_host(settings["host"], settings["port"]) for _, settings in watchers]
    # all were made with the same settings but for host and port
    first_pool, first = watchers[0]
    for watcher in manager.sentinels:
        check_client(watcher)
        check_settings(watcher.connection_pool.connection_kwargs, _has_tls(watcher.connection_pool))
    if _provider(first, client) is not None:
        raise TypeError("a credential_provider for Sentinels is not understood here, only one for the servers")
    user, password = _credentials(first)
    tls, watched = _has_tls(pool), _has_tls(first_pool)
    files = [_tls(settings) for settings, has in ((given, tls), (first, watched)) if has]
    if len(files) == 2 and files[0] != files[1]:
        raise TypeError("Sentinels and servers with different ssl_ settings are not understood here")
    options = {
        **_options(given, client),
        **(files[0] if files else {}),
        "sentinel_username": user,
        "sentinel_password": password,
        "sentinel_tls": watched or None,
    }
    scheme = "rediss+sentinel" if tls else "redis+sentinel"
    service = quote(_text(pool.service_name) or "", safe="")
    return f"{scheme}://{_login(given)}{','.join(hosts)}/{service}/{_database(given)}", options


def _cluster(client: Any, nodes: Any) -> tuple[str, dict[str, Any]]:
    """A `redis.cluster.RedisCluster`, or one of asyncio."""
    if getattr(nodes, "address_remap", None) is not None:
        raise TypeError("address_remap is not understood here; use onelock.Client")
    # that of asyncio has them itself
    given: dict[str, Any] = getattr(client, "connection_kwargs", None) or nodes.connection_kwargs
    tls = bool(given.get("ssl")) or _is_tls(given.get("connection_class"))
    check_settings(given, tls, of_cluster=client)
    options = {**_options(given, client), **(_tls(given) if tls else {})}
    hosts = [_host(node.host, node.port) for node in list(nodes.startup_nodes.values())]
    return f"{'rediss' if tls else 'redis'}+cluster://{_login(given)}{','.join(hosts)}", options


def _options(given: dict[str, Any], client: Any) -> dict[str, Any]:
    return {
        "credentials": _provider(given, client),
        "connect_timeout": _limit(given.get("socket_connect_timeout")),
        "request_timeout": _limit(given.get("socket_timeout")),
        "label": given.get("client_name") or None,
    }


def _login(given: dict[str, Any]) -> str:
    user, password = _credentials(given)
    return "" if password is None else f"{quote(user or '', safe='')}:{quote(password, safe='')}@"


def _database(given: dict[str, Any]) -> int:
    return int(given.get("db") or 0)


def _host(host: Any, port: Any) -> str:
    host = _text(host) or "localhost"
    return f"[{host}]:{int(port)}" if ":" in host else f"{host}:{int(port)}"


def _has_tls(pool: Any) -> bool:
    return _is_tls(pool.connection_class)


def _is_tls(kind: Any) -> bool:
    return "SSL" in getattr(kind, "__name__", "")


def _credentials(given: dict[str, Any]) -> tuple[str | None, str | None]:
    provider: Any = given.get("credential_provider")
    if is_fixed(provider):
        return _pair(provider.get_credentials())
    return _text(given.get("username")), _text(given.get("password"))


def _pair(found: Any) -> tuple[str | None, str | None]:
    user, password = found if len(found) == 2 else (None, found[0])
    return _text(user), _text(password)


def _provider(given: dict[str, Any], client: Any) -> Any:
    """What gives the credentials of each new connection, if their answer may change."""
    provider: Any = given.get("credential_provider")
    if provider is None or is_fixed(provider):
        return None
    if is_of_loops(client) and has_async(provider):

        async def ask_async() -> tuple[str | None, str]:
            user, password = _pair(await provider.get_credentials_async())
            return user, password or ""

        return ask_async

    def ask() -> tuple[str | None, str]:
        user, password = _pair(provider.get_credentials())
        return user, password or ""

    return ask


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    return value.decode() if isinstance(value, bytes) else str(value)


def _limit(seconds: Any) -> Any:
    return seconds if seconds else None


def _tls(given: dict[str, Any]) -> dict[str, Any]:
    certificate = given.get("ssl_certfile")
    demands = given.get("ssl_cert_reqs", "required")
    return {
        "ca_file": given.get("ssl_ca_certs"),
        "cert_file": certificate,
        # redis-py allows both to be in one file
        "key_file": given.get("ssl_keyfile") or certificate,
        "tls_insecure": str(getattr(demands, "name", demands)).lower() in ("none", "cert_none") or None,
    }


_CLASSES: dict[type[ours.OnelockError], type[theirs.RedisError]] = {
    ours.LockLost: theirs.LockNotOwnedError,
    ours.LockNotHeld: theirs.LockNotOwnedError,
    ours.LeaseForked: theirs.LockNotOwnedError,
    ours.ClientClosed: theirs.LockError,
    ours.WrongKind: theirs.ResponseError,
    ours.ServerUnavailable: theirs.ConnectionError,
    ours.NoQuorum: theirs.ConnectionError,
    ours.AuthenticationFailed: theirs.AuthenticationError,
    ours.NotPermitted: theirs.NoPermissionError,
    ours.ServerReadOnly: theirs.ReadOnlyError,
    ours.ServerRefused: theirs.ResponseError,
}


def translated(error: ours.OnelockError, name: Any) -> Exception:
    """What redis-py would have raised; the error itself where redis-py has no word for it."""
    kind = _CLASSES.get(type(error))
    if kind is None:
        return error
    if issubclass(kind, theirs.LockError):
        return kind(str(error), lock_name=name)
    return kind(str(error))

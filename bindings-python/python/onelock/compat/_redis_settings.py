"""The server of a `redis.Redis` object as an address and options of ours, and our errors as redis-py's."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import redis.exceptions as theirs

from onelock import errors as ours

__all__ = ["settings", "translated"]


def settings(client: Any) -> tuple[str, dict[str, Any]]:
    """Address and options for a client of ours that goes where `client` goes. No I/O."""
    given: dict[str, Any] = client.connection_pool.connection_kwargs
    if "connection_pool" in given or "service_name" in vars(client.connection_pool):
        raise TypeError("a client that finds its server through Sentinel is not understood here; use onelock.Client")
    user, password = _credentials(given)
    login = "" if password is None else f"{quote(user or '', safe='')}:{quote(password, safe='')}@"
    options: dict[str, Any] = {
        "connect_timeout": _limit(given.get("socket_connect_timeout")),
        "request_timeout": _limit(given.get("socket_timeout")),
        "label": given.get("client_name") or None,
    }
    database = int(given.get("db") or 0)
    if "path" in given:
        return f"unix://{login}{quote(str(given['path']))}?db={database}", options
    scheme = "redis"
    if "SSL" in client.connection_pool.connection_class.__name__:
        scheme = "rediss"
        options.update(_tls(given))
    host = str(given.get("host") or "localhost")
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{login}{host}:{int(given.get('port') or 6379)}/{database}", options


def _credentials(given: dict[str, Any]) -> tuple[str | None, str | None]:
    provider = given.get("credential_provider")
    if provider is not None:
        found = provider.get_credentials()
        user, password = found if len(found) == 2 else (None, found[0])
    else:
        user, password = given.get("username"), given.get("password")
    return _text(user), _text(password)


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    return value.decode() if isinstance(value, bytes) else str(value)


def _limit(seconds: Any) -> Any:
    return seconds if seconds else None


def _tls(given: dict[str, Any]) -> dict[str, Any]:
    for key in ("ssl_ca_path", "ssl_ca_data", "ssl_password", "ssl_ciphers"):
        if given.get(key):
            raise TypeError(f"{key} is not understood here; make a onelock.Client with ca_file, cert_file and key_file")
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

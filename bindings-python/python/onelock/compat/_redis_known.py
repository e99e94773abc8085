"""What is known of redis-py's clients: which classes go where their settings say, and what each setting means for a lock.

Anything else is refused by name: a client of ours that goes elsewhere, or with less care, would be worse than none. A test
holds the lists against the parameters of the redis-py that is installed.
"""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.connection
import redis.asyncio.sentinel
import redis.cluster
import redis.connection
import redis.sentinel

__all__ = [
    "IRRELEVANT",
    "REFUSED",
    "TAKEN",
    "check_client",
    "check_settings",
    "has_async",
    "is_fixed",
    "is_of_loops",
]

TAKEN = frozenset(
    {
        "host",
        "port",
        "db",
        "path",
        "username",
        "password",
        "credential_provider",
        "client_name",
        "socket_timeout",
        "socket_connect_timeout",
        "ssl",
        "ssl_keyfile",
        "ssl_certfile",
        "ssl_cert_reqs",
        "ssl_ca_certs",
        "ssl_check_hostname",
        "redis_connect_func",
    }
)
"""Settings that are taken over, or looked at."""

REFUSED = frozenset(
    {
        "ssl_ca_data",
        "ssl_ca_path",
        "ssl_password",
        "ssl_ciphers",
        "ssl_min_version",
        "ssl_include_verify_flags",
        "ssl_exclude_verify_flags",
        "ssl_validate_ocsp",
        "ssl_validate_ocsp_stapled",
        "ssl_ocsp_context",
        "ssl_ocsp_expected_cert",
        "socket_type",
        "unix_socket_path",
    }
)
"""Settings that have no counterpart here: refused when they are set."""

IRRELEVANT = frozenset(
    {
        # how replies are read and names are encoded (for which the client itself is asked)
        "encoding",
        "encoding_errors",
        "decode_responses",
        "parser_class",
        "encoder_class",
        "socket_read_size",
        "protocol",
        "legacy_responses",
        "command_packer",
        "himport_registry",
        "response_callbacks",
        # how connections are kept and requests repeated, which this library does in its own way
        "retry",
        "retry_on_timeout",
        "retry_on_error",
        "health_check_interval",
        "socket_keepalive",
        "socket_keepalive_options",
        "max_connections",
        "timeout",
        "queue_class",
        "connection_class",
        "connection_pool",
        "connection_pool_class",
        # names that are for show, events, caches of values, announcements of maintenance
        "lib_name",
        "lib_version",
        "driver_info",
        "event_dispatcher",
        "cache",
        "cache_config",
        "nodes_flag",
        "maint_notifications_config",
        "maint_notifications_pool_handler",
        "maintenance_state",
        "maintenance_notification_hash",
        "orig_host_address",
        "orig_socket_timeout",
        "orig_socket_connect_timeout",
        "oss_cluster_maint_notifications_handler",
    }
)
"""Settings that do not say which server it is, who logs in, or how far the server is trusted."""

_CLIENTS = (redis.Redis, redis.asyncio.Redis)
_CLUSTERS = (redis.cluster.RedisCluster, redis.asyncio.cluster.RedisCluster)
_POOLS = (
    redis.connection.ConnectionPool,
    redis.connection.BlockingConnectionPool,
    redis.sentinel.SentinelConnectionPool,
    redis.asyncio.connection.ConnectionPool,
    redis.asyncio.connection.BlockingConnectionPool,
    redis.asyncio.sentinel.SentinelConnectionPool,
)
_CONNECTIONS = (
    redis.connection.Connection,
    redis.connection.SSLConnection,
    redis.connection.UnixDomainSocketConnection,
    redis.sentinel.SentinelManagedConnection,
    redis.sentinel.SentinelManagedSSLConnection,
    redis.asyncio.connection.Connection,
    redis.asyncio.connection.SSLConnection,
    redis.asyncio.connection.UnixDomainSocketConnection,
    redis.asyncio.sentinel.SentinelManagedConnection,
    redis.asyncio.sentinel.SentinelManagedSSLConnection,
)
_INSTEAD = "it may go elsewhere than its settings say; make a onelock.Client with the address of the server"


def check_client(client: Any) -> None:
    """Whether client, pool and connections are redis-py's own classes."""
    if type(client) in _CLUSTERS:
        return
    if type(client) not in _CLIENTS:
        raise TypeError(f"{_name(type(client))} is no redis.Redis: {_INSTEAD}")
    pool = client.connection_pool
    if type(pool) not in _POOLS:
        raise TypeError(f"the connection pool {_name(type(pool))} is not redis-py's own: {_INSTEAD}")
    if pool.connection_class not in _CONNECTIONS:
        raise TypeError(f"connections of the class {_name(pool.connection_class)} are not redis-py's own: {_INSTEAD}")


def check_settings(given: dict[str, Any], tls: bool, of_cluster: Any = None) -> None:
    """Whether everything in `given` can be taken over, or need not be."""
    for key, value in given.items():
        if key not in TAKEN and key not in IRRELEVANT and (key not in REFUSED or value):
            raise TypeError(
                f"{key} is not understood here; make a onelock.Client (for TLS: ca_file, cert_file, key_file)"
            )
    function = given.get("redis_connect_func")
    if of_cluster is not None:
        # a cluster has one of its own, and the user's in it
        if getattr(function, "__self__", None) is of_cluster:
            function = None
        function = getattr(of_cluster, "user_on_connect_func", None) or function
        if type(given.get("connection_class")) is type and given["connection_class"] not in _CONNECTIONS:
            raise TypeError(
                f"connections of the class {_name(given['connection_class'])} are not redis-py's own: {_INSTEAD}"
            )
    if function is not None:
        raise TypeError("redis_connect_func is not understood here; make a onelock.Client")
    demands = given.get("ssl_cert_reqs", "required")
    checked = str(getattr(demands, "name", demands)).lower() not in ("none", "cert_none")
    if tls and checked and not given.get("ssl_check_hostname", True):
        raise TypeError(
            "ssl_check_hostname=False is not understood here: a certificate is believed for its host only; make a "
            "onelock.Client with an address that the certificate names"
        )


def is_fixed(provider: Any) -> bool:
    """Whether this `credential_provider` gives the same to every connection."""
    return type(provider) is redis.UsernamePasswordCredentialProvider


def is_of_loops(client: Any) -> bool:
    """Whether it is one of redis-py's asyncio."""
    return type(client) in (redis.asyncio.Redis, redis.asyncio.cluster.RedisCluster)


def has_async(provider: Any) -> bool:
    """Whether a `credential_provider` can be awaited; what it inherits calls `get_credentials` on the loop, and complains."""
    inherited: Any = redis.CredentialProvider.get_credentials_async
    own: Any = getattr(provider, "get_credentials_async", None)
    return own is not None and getattr(own, "__func__", own) is not inherited


def _name(kind: Any) -> str:
    return f"{getattr(kind, '__module__', '?')}.{getattr(kind, '__qualname__', kind)}"

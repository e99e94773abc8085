"""Types that appear in many signatures. Imported by type checkers only."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, TypeAlias, TypedDict

from onelock.alease import AsyncLease
from onelock.lease import Lease
from onelock.outcomes import Grade, LossReason

Seconds: TypeAlias = "float | Decimal | Fraction | timedelta"
"""A duration: seconds as a number, or a `datetime.timedelta`."""

Name: TypeAlias = "str | bytes"
"""A lock's name: 1 to 512 bytes, any bytes. A `str` is taken as UTF-8."""

Url: TypeAlias = "str | Sequence[str]"

OnLost: TypeAlias = "Callable[[Lease, LossReason], object]"
OnJeopardy: TypeAlias = "Callable[[Lease], object]"
AsyncOnLost: TypeAlias = "Callable[[AsyncLease, LossReason], object]"
AsyncOnJeopardy: TypeAlias = "Callable[[AsyncLease], object]"

Path: TypeAlias = "str | os.PathLike[str]"


Credentials: TypeAlias = "str | tuple[str] | tuple[str | None, str]"
"""A password of the server's default user, or a user name and a password."""


class _Options(TypedDict, total=False):
    """The options of both kinds of clients."""

    # written by tools/options.py: client
    ttl: Seconds | None
    auto_renew: bool | None
    min_hold: Seconds | None
    max_hold: Seconds | None
    lock_delay: Seconds | None
    min_validity: Seconds | None
    fencing: bool | None
    drift_factor: float | None
    prefix: Name | None
    min_fencing_grade: Grade | str | None
    label: str | None
    inspectable: bool | None
    accepted_warnings: str | None
    connect_timeout: Seconds | None
    request_timeout: Seconds | None
    close_timeout: Seconds | None
    unreachable_limit: Seconds | None
    ca_file: Path | None
    cert_file: Path | None
    key_file: Path | None
    tls_insecure: bool | None
    notify: Literal["auto", "classic", "sharded", "both"] | None
    min_replicas: int | None
    replica_timeout: Seconds | None
    sentinel_username: str | None
    sentinel_password: str | None
    sentinel_tls: bool | None
    node_timeout: Seconds | None
    quarantine: Seconds | None
    # end of client


class ClientOptions(_Options, total=False):
    """The options of a client, as keyword arguments. `None` means the default."""

    credentials: Callable[[], Credentials] | None


class AsyncClientOptions(_Options, total=False):
    """The options of a client for asyncio, as keyword arguments. `None` means the default."""

    credentials: Callable[[], Credentials | Awaitable[Credentials]] | None


class LockOptions(TypedDict, total=False):
    """The options of a lock, as keyword arguments. `None` means the client's."""

    # written by tools/options.py: lock
    ttl: Seconds | None
    auto_renew: bool | None
    min_hold: Seconds | None
    max_hold: Seconds | None
    lock_delay: Seconds | None
    min_validity: Seconds | None
    fencing: bool | None
    # end of lock


AnyFunction: TypeAlias = "Callable[..., Any]"

"""A distributed lock on Redis and Valkey.

    from onelock import Client

    with Client("redis://localhost") as client:
        with client.lock("orders:42", timeout=5) as lease:      # LockTimeout when it stays held
            charge(order, fence=lease.fencing_token)

For asyncio there is `AsyncClient`, with the same names and `await`. A **lock** is a description: kind, name, options. A
**lease** is one granted hold of it, renewed in the background until it is released or lost. `lease.held` tells at any time
whether it is still held, without I/O.

Durations are seconds (`float`, `int`) or `datetime.timedelta`. All exceptions of onelock are an `OnelockError`.
"""

from __future__ import annotations

from onelock._onelock import (
    FENCE_GUARD_SCRIPT,
    Cancel,
    Diagnosis,
    Facts,
    FenceGate,
    Finding,
    Histogram,
    Inspection,
    LockEntry,
    LockPage,
    Owner,
    OwnerInfo,
    Permits,
    Stats,
    Waiter,
    __version__,
)
from onelock._owners import owner_scope
from onelock.client import Client
from onelock.errors import (
    AuthenticationFailed,
    ClientClosed,
    InternalError,
    InvalidArgument,
    LeaseForked,
    LockBusy,
    LockCancelled,
    LockLost,
    LockNotHeld,
    LockTimeout,
    NoQuorum,
    NotAcquired,
    NotPermitted,
    OnelockError,
    PermitsMismatch,
    ServerReadOnly,
    ServerRefused,
    ServerUnavailable,
    SystemLimit,
    Unsupported,
    WouldDeadlock,
    WrongKind,
)
from onelock.lease import Lease
from onelock.lock import Lock
from onelock.multi_lock import MultiLock
from onelock.outcomes import Grade, LossReason, Release, Severity
from onelock.rw_lock import RwLock
from onelock.semaphore import Semaphore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onelock._signals import release_on_signal
    from onelock.aclient import AsyncClient
    from onelock.alease import AsyncLease
    from onelock.alock import AsyncLock
    from onelock.amulti_lock import AsyncMultiLock
    from onelock.arw_lock import AsyncRwLock
    from onelock.asemaphore import AsyncSemaphore

__all__ = [
    "FENCE_GUARD_SCRIPT",
    "AsyncClient",
    "AsyncLease",
    "AsyncLock",
    "AsyncMultiLock",
    "AsyncRwLock",
    "AsyncSemaphore",
    "AuthenticationFailed",
    "Cancel",
    "Client",
    "ClientClosed",
    "Diagnosis",
    "Facts",
    "FenceGate",
    "Finding",
    "Grade",
    "Histogram",
    "Inspection",
    "InternalError",
    "InvalidArgument",
    "Lease",
    "LeaseForked",
    "Lock",
    "LockBusy",
    "LockCancelled",
    "LockEntry",
    "LockLost",
    "LockNotHeld",
    "LockPage",
    "LockTimeout",
    "LossReason",
    "MultiLock",
    "NoQuorum",
    "NotAcquired",
    "NotPermitted",
    "OnelockError",
    "Owner",
    "OwnerInfo",
    "Permits",
    "PermitsMismatch",
    "Release",
    "RwLock",
    "Semaphore",
    "ServerReadOnly",
    "ServerRefused",
    "ServerUnavailable",
    "Severity",
    "Stats",
    "SystemLimit",
    "Unsupported",
    "Waiter",
    "WouldDeadlock",
    "WrongKind",
    "__version__",
    "owner_scope",
    "release_on_signal",
]

# asyncio takes longer to import than all the rest, and programs with threads do not need it
_LAZY = {
    "AsyncClient": "aclient",
    "AsyncLease": "alease",
    "AsyncLock": "alock",
    "AsyncMultiLock": "amulti_lock",
    "AsyncRwLock": "arw_lock",
    "AsyncSemaphore": "asemaphore",
    "release_on_signal": "_signals",
}


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"onelock.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Why a call failed: one class per kind of error, with the parents that a Python programmer expects.

Every message says what was tried, on which lock, what was found, and what to do. None holds a password or a token.
"""

from __future__ import annotations

from onelock import _onelock

__all__ = [
    "AuthenticationFailed",
    "ClientClosed",
    "InternalError",
    "InvalidArgument",
    "LeaseForked",
    "LockBusy",
    "LockCancelled",
    "LockLost",
    "LockNotHeld",
    "LockTimeout",
    "NoQuorum",
    "NotAcquired",
    "NotPermitted",
    "OnelockError",
    "ServerReadOnly",
    "ServerRefused",
    "ServerUnavailable",
    "SystemLimit",
    "Unsupported",
    "WrongKind",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onelock.outcomes import LossReason


class OnelockError(Exception):
    """The base of everything that onelock raises by itself."""

    kind: str = "Internal"
    """The name of the kind of error, the same in every language."""
    number: int = 50
    """The number of the kind, the same in every language."""
    retryable: bool = False
    """Whether the same call may succeed later without anybody changing anything."""

    lock_name: str | None = None
    """The name of the lock, bytes that are not printable escaped; `None` when the error concerns no lock."""
    tried: str = ""
    """What was tried, in a few words: `acquire`, `extend`, `connect` ..."""
    detail: str = ""
    """What was found, without the lock's name and the hint."""
    causes: tuple[str, ...] = ()
    """What each server said, one entry per server; empty when no server was at fault."""

    def __reduce__(self) -> tuple[object, ...]:
        # the classes with two parents would be rebuilt from `args` by either of them; the fields come after
        return (type(self), self.args, self.__dict__)


class NotAcquired(OnelockError):
    """The base of what ends an acquire because of waiting, not because of a fault."""

    retryable = True


class LockBusy(NotAcquired):
    """A single try was refused: somebody else holds the lock."""

    kind, number = "Busy", 1


class LockTimeout(NotAcquired, TimeoutError):
    """The wait was used up while somebody else held the lock."""

    kind, number = "Timeout", 2


class LockCancelled(NotAcquired):
    """The wait was ended from outside; nothing is held."""

    kind, number = "Cancelled", 3


class LockLost(OnelockError):
    """The lease ended without being released: somebody else may hold the lock now."""

    kind, number = "Lost", 10
    reason: LossReason | None = None
    """Why it was lost, where that is known."""


class LockNotHeld(OnelockError):
    """The lease was released or handed away before."""

    kind, number = "NotHeld", 11


class ServerUnavailable(OnelockError, ConnectionError):
    """No server could be reached in time."""

    kind, number, retryable = "Unavailable", 20, True


class NoQuorum(OnelockError, ConnectionError):
    """Too few of several independent servers answered in time."""

    kind, number, retryable = "NoQuorum", 21, True


class AuthenticationFailed(OnelockError, PermissionError):
    """User name or password were refused."""

    kind, number = "AuthFailed", 22


class NotPermitted(OnelockError, PermissionError):
    """The user may not run a command or touch a key."""

    kind, number = "NotPermitted", 23


class ServerReadOnly(OnelockError):
    """The server is a replica."""

    kind, number, retryable = "ReadOnly", 24, True


class ServerRefused(OnelockError):
    """The server is up but refuses to write: out of memory, failing to persist, loading, running a long script."""

    kind, number, retryable = "ServerRefused", 25, True


class WrongKind(OnelockError):
    """Another kind of lock, or something else, stands under the name."""

    kind, number = "WrongKind", 30


class InvalidArgument(OnelockError, ValueError):
    """An argument was refused before any I/O."""

    kind, number = "InvalidArgument", 31


class Unsupported(OnelockError, NotImplementedError):
    """The store cannot do what was asked."""

    kind, number = "Unsupported", 32


class ClientClosed(OnelockError, RuntimeError):
    """The client was closed."""

    kind, number = "Closed", 40


class LeaseForked(OnelockError, RuntimeError):
    """The lease belongs to the parent process."""

    kind, number = "Forked", 41


class SystemLimit(OnelockError, OSError):
    """The machine gave no thread, file descriptor or memory; the same call works when it does again."""

    kind, number, retryable = "SystemLimit", 42, True


class InternalError(OnelockError, RuntimeError):
    """A defect of this library."""

    kind, number = "Internal", 50


_CLASSES: dict[str, type[OnelockError]] = {
    cls.kind: cls
    for cls in (
        LockBusy,
        LockTimeout,
        LockCancelled,
        LockLost,
        LockNotHeld,
        ServerUnavailable,
        NoQuorum,
        AuthenticationFailed,
        NotPermitted,
        ServerReadOnly,
        ServerRefused,
        WrongKind,
        InvalidArgument,
        Unsupported,
        ClientClosed,
        LeaseForked,
        SystemLimit,
        InternalError,
    )
}


_onelock.set_error_classes(dict(_CLASSES))

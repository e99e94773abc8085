"""The exceptions: one class for each kind of error, with the usual Python base classes.

Every message names the call, the lock, what was found, and what to do. None contains a password or a token.
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
    """The base class of all exceptions of onelock."""

    kind: str = "Internal"
    """The name of the kind of error, the same in every language."""
    number: int = 50
    """The number of the kind, the same in every language."""
    retryable: bool = False
    """Whether the same call may succeed later, without any change."""

    lock_name: str | None = None
    """The name of the lock, bytes that are not printable escaped; `None` when the error concerns no lock."""
    tried: str = ""
    """The call that failed, in a few words: `acquire`, `extend`, `connect` ..."""
    detail: str = ""
    """What was found, without the name of the lock and the hint."""
    causes: tuple[str, ...] = ()
    """The answer of each server, one entry per server; empty when no server was at fault."""

    def __reduce__(self) -> tuple[object, ...]:
        # classes with two bases would be rebuilt from `args` by either of them; the fields are set after
        return (type(self), self.args, self.__dict__)


class NotAcquired(OnelockError):
    """The base class of errors when the lock was not acquired, but nothing failed."""

    retryable = True


class LockBusy(NotAcquired):
    """A single try was refused: the lock is held."""

    kind, number = "Busy", 1


class LockTimeout(NotAcquired, TimeoutError):
    """The time-out passed while the lock was held."""

    kind, number = "Timeout", 2


class LockCancelled(NotAcquired):
    """The wait was cancelled; nothing is held."""

    kind, number = "Cancelled", 3


class LockLost(OnelockError):
    """The lease ended without a release: the lock may have another holder now."""

    kind, number = "Lost", 10
    reason: LossReason | None = None
    """Why it was lost, where that is known."""


class LockNotHeld(OnelockError):
    """The lease was released or detached before."""

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
    """The user lacks the permission for a command or a key."""

    kind, number = "NotPermitted", 23


class ServerReadOnly(OnelockError):
    """The server is a replica."""

    kind, number, retryable = "ReadOnly", 24, True


class ServerRefused(OnelockError):
    """The server is up but refuses to write: out of memory, failing to persist, loading, running a long script."""

    kind, number, retryable = "ServerRefused", 25, True


class WrongKind(OnelockError):
    """The key is another kind of lock, or not a lock."""

    kind, number = "WrongKind", 30


class InvalidArgument(OnelockError, ValueError):
    """An argument was refused before any I/O."""

    kind, number = "InvalidArgument", 31


class Unsupported(OnelockError, NotImplementedError):
    """The store cannot do what was asked."""

    kind, number = "Unsupported", 32


class WouldDeadlock(OnelockError, RuntimeError):
    """The owner of a read lease asks for the write lock of the same name: it would wait for itself."""

    kind, number = "WouldDeadlock", 33


class PermitsMismatch(OnelockError, ValueError):
    """A semaphore has another number of permits than was said, or none is set."""

    kind, number = "PermitsMismatch", 34


class ClientClosed(OnelockError, RuntimeError):
    """The client was closed."""

    kind, number = "Closed", 40


class LeaseForked(OnelockError, RuntimeError):
    """The lease belongs to the parent process."""

    kind, number = "Forked", 41


class SystemLimit(OnelockError, OSError):
    """The machine has no thread, file descriptor or memory left; the same call may succeed later."""

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
        WouldDeadlock,
        PermitsMismatch,
        ClientClosed,
        LeaseForked,
        SystemLimit,
        InternalError,
    )
}


_onelock.set_error_classes(dict(_CLASSES))

"""A lock for threads: the description of what to acquire."""

from __future__ import annotations

from onelock._owners import DEFAULT, REENTRANT, frame_of_scope, here, scope_entered, thread_owner
from onelock.errors import LockNotHeld

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from onelock import _onelock
    from onelock._onelock import Cancel, Owner
    from onelock._owners import Default
    from onelock._types import Name, OnJeopardy, OnLost, Seconds
    from onelock.lease import Lease

__all__ = ["Lock"]


class Entered:
    """One scope, and the lease that it holds."""

    __slots__ = ("frame", "lease", "owner")

    def __init__(self, lease: Lease, frame: object, owner: Owner) -> None:
        self.lease = lease
        self.frame = frame
        self.owner = owner


class Lock:
    """A lock by name, from `Client.lock`, `reentrant_lock` or `fair_lock`. It holds nothing by itself.

    It is cheap, and threads may share one. `with lock as lease:` acquires and releases:

        with client.lock("orders:42", timeout=5) as lease:
            charge(order, fence=lease.fencing_token)

    An exception of the body is never replaced by a problem of the release; if the lease was lost meanwhile, `LockLost` is
    its cause. If the body succeeds but the lease was lost, `LockLost` is raised.
    """

    __slots__ = ("__weakref__", "_entered", "_native", "_on_jeopardy", "_on_lost", "_owner", "_timeout")

    def __init__(
        self,
        native: _onelock.Lock,
        timeout: Seconds | None,
        owner: Owner | None,
        on_lost: OnLost | None,
        on_jeopardy: OnJeopardy | None,
    ) -> None:
        """Locks are made by `Client.lock`, `reentrant_lock` and `fair_lock`."""
        native.check(timeout, owner)
        self._native = native
        self._timeout = timeout
        self._owner: Owner | Default | None = owner
        if owner is None and native.kind in REENTRANT:
            self._owner = DEFAULT
        self._on_lost = on_lost
        self._on_jeopardy = on_jeopardy
        self._entered: list[Entered] = []

    @property
    def name(self) -> Name:
        """The name, without the prefix."""
        return self._native.name

    @property
    def kind(self) -> str:
        """The kind of lock: `lock`, `reentrant_lock`, `fair_lock`, `read_lock`, `write_lock` or `semaphore`."""
        return self._native.kind

    def acquire(self, timeout: Seconds | Default | None = DEFAULT, *, cancel: Cancel | None = None) -> Lease:
        """Waits until the lock is held, at most `timeout` seconds. Uncontended it takes one round trip.

        `None` waits without limit, 0 is a single try that raises `LockBusy`. The default is the time-out of the lock.
        Waiting does not poll, other threads run meanwhile, and Ctrl-C ends it at once; however it ends, nothing is left
        held. Returns within `timeout + connect_timeout + 2 x request_timeout`. Another thread ends it through `cancel`,
        which raises `LockCancelled`.

        Raises `LockTimeout`, `LockBusy` or `LockCancelled` (all `NotAcquired`); `InvalidArgument` before any I/O;
        `ServerUnavailable`, `ServerRefused`, `NotPermitted`, `AuthenticationFailed`; `WrongKind` when the key is something
        else; `LockLost` when a lost hold would be re-entered; `ClientClosed`.
        """
        if timeout is DEFAULT:
            timeout = self._timeout
        owner = self._owner
        if owner is DEFAULT:
            owner = thread_owner()
        if cancel is not None:
            return self._listening(self._native.acquire_unless(timeout, owner, cancel))  # type: ignore[arg-type]
        if self._on_lost is None and self._on_jeopardy is None:
            # no local name for the lease: if a signal handler raises now, the lease is dropped and released
            return self._native.acquire(timeout, owner)  # type: ignore[arg-type]
        return self._listening(self._native.acquire(timeout, owner))  # type: ignore[arg-type]

    def try_acquire(self) -> Lease | None:
        """One try: `None` when the lock is held. One round trip, no waiting. Otherwise as `acquire`."""
        lease = self._native.try_acquire(self._current_owner())
        return None if lease is None else self._listening(lease)

    def attach(self, proof: str) -> Lease:
        """Takes over a hold that another process detached with `Lease.detach`. One round trip.

        The ttl begins now; name, kind and prefix must be those of the detached lock. The server replaces the token of the
        hold, so a proof attaches only once; the fencing token stays the same (Redlock: it may be higher). Raises
        `InvalidArgument` for a text that is not a proof; `LockLost` when the hold has ended, or the proof was used before.
        After an error that does not tell whether the server attached, such as `ServerUnavailable`, and after an exception
        of a signal handler, the hold is released if it did.
        """
        return self._listening(self._native.attach(proof, self._current_owner()))

    def is_locked(self) -> bool:
        """Whether the lock is held, by this client or another. One round trip.

        The answer may be outdated when it arrives: to act on it, use `try_acquire`.
        """
        return self._native.is_locked()

    def _current_owner(self) -> Owner | None:
        owner = self._owner
        return thread_owner() if owner is DEFAULT else owner  # type: ignore[return-value]

    def _listening(self, lease: Lease) -> Lease:
        try:
            if self._on_lost is not None:
                lease.on_lost(self._on_lost)
            if self._on_jeopardy is not None:
                lease.on_jeopardy(self._on_jeopardy)
        except BaseException:
            lease.release()
            raise
        return lease

    def __enter__(self) -> Lease:
        lease = self.acquire()
        try:
            self._entered.append(Entered(lease, frame_of_scope(), here()))
        except BaseException:
            lease.release()
            raise
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            entry = scope_entered(self._entered, frame_of_scope(), here())
        except BaseException:
            # a signal handler raised in there: the scope is left all the same
            entry = scope_entered(self._entered, frame_of_scope(), here())
            if entry is not None:
                self._entered.remove(entry)
                entry.lease._leave(error)
            raise
        if entry is None:
            raise left_elsewhere(self.name)
        self._entered.remove(entry)
        entry.lease._leave(error)

    def __repr__(self) -> str:
        more = {
            "reentrant_lock": ", reentrant",
            "fair_lock": ", fair",
            "read_lock": ", read",
            "write_lock": ", write",
        }.get(self.kind, "")
        return f"<{type(self).__name__} {self.name!r}{more}>"


def left_elsewhere(name: Name) -> LockNotHeld:
    """The error that is raised instead of ending the hold of another scope."""
    return LockNotHeld(
        f"leave a scope of {name!r}: it was entered by another caller, and of the scopes that are open it cannot be told which "
        "one this is; nothing was released. Give each scope a lock object of its own, or use `with lock.acquire():`"
    )

"""Several locks at once, for threads: all are held, or none."""

from __future__ import annotations

from onelock import _onelock
from onelock._owners import DEFAULT
from onelock.errors import Unsupported
from onelock.lock import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from onelock._onelock import Cancel
    from onelock._owners import Default
    from onelock._types import Name, OnJeopardy, OnLost, Seconds
    from onelock.lease import Lease

__all__ = ["MultiLock"]


def joined(names: tuple[Name, ...]) -> str:
    """The names for messages."""
    return ", ".join(name if isinstance(name, str) else name.decode("utf-8", "backslashreplace") for name in names)


def no_attach(names: tuple[Name, ...]) -> Unsupported:
    """The error of an attach to several locks."""
    return Unsupported(f"attach {joined(names)!r}: several locks have no proof of their own; attach to them one by one")


class MultiLock(Lock):
    """Several locks as one: all are held, or none. From `Client.multi_lock`, or of locks of any kind and client:

        with MultiLock(accounts.lock("account:1"), audit.reentrant_lock("log"), timeout=5) as lease:
            transfer(fences=lease.fencing_tokens)

    The lease is held while all of them are, and the first loss is the loss of the whole. They are acquired one after the
    other, in an order that is the same for all programs, and held while later ones are waited for: callers of overlapping
    sets never wait in a circle. So name the locks of one piece of work together, instead of acquiring one while holding
    another. The time-outs of the locks do not count, only `timeout` of the whole. A lock that is named twice is held once.

    Otherwise as `Lock`: `with`, `acquire`, `try_acquire`, `is_locked`. Raises `InvalidArgument` for no lock, for more than
    32, for one name as two kinds of lock, and for one lock with two owners.
    """

    __slots__ = ("_locks", "_multi")

    def __init__(
        self,
        *locks: Lock,
        timeout: Seconds | None = None,
        on_lost: OnLost | None = None,
        on_jeopardy: OnJeopardy | None = None,
    ) -> None:
        for lock in locks:
            # programs without type checks may pass anything
            if not isinstance(lock, Lock) or isinstance(lock, MultiLock):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"a MultiLock is made of locks of a Client, not of {type(lock).__name__}")
        self._multi = _onelock.MultiLock([lock._native for lock in locks])
        self._locks = locks
        self._timeout = timeout
        self._on_lost = on_lost
        self._on_jeopardy = on_jeopardy
        self._entered = []
        self._multi.check(timeout, [lock._current_owner() for lock in locks])

    @property
    def names(self) -> tuple[Name, ...]:
        """The names, without prefixes."""
        return self._multi.names

    @property
    def name(self) -> str:
        """The names in one text, for messages."""
        return joined(self._multi.names)

    @property
    def kind(self) -> str:
        """`multi_lock`."""
        return "multi_lock"

    def acquire(self, timeout: Seconds | Default | None = DEFAULT, *, cancel: Cancel | None = None) -> Lease:
        """Waits until all of them are held, at most `timeout` seconds; see `Lock.acquire`.

        One round trip for each, uncontended. When it ends without a lease, nothing is left held. Errors are those of
        `Lock.acquire`, and name the lock that they are about.
        """
        wait: Seconds | None = self._timeout if timeout is DEFAULT else timeout  # type: ignore[assignment]
        owners = [lock._current_owner() for lock in self._locks]
        if cancel is not None:
            return self._listening(self._multi.acquire_unless(wait, owners, cancel))
        return self._listening(self._multi.acquire(wait, owners))

    def try_acquire(self) -> Lease | None:
        """One try: `None`, and nothing is held, when one of them is held by others."""
        lease = self._multi.try_acquire([lock._current_owner() for lock in self._locks])
        return None if lease is None else self._listening(lease)

    def attach(self, proof: str) -> NoReturn:
        """Raises `Unsupported`: several locks have no proof of their own."""
        raise no_attach(self.names)

    def is_locked(self) -> bool:
        """Whether one of them is held, by this client or another. One round trip for each."""
        return self._multi.is_locked()

    def _listening(self, lease: Lease) -> Lease:
        # one that is named twice is held once
        for lock in dict.fromkeys(self._locks):
            lock._listening(lease)
        return super()._listening(lease)

    def __repr__(self) -> str:
        return f"<MultiLock {self.names!r}>"

"""A semaphore for threads: so many permits, each a lease of its own."""

from __future__ import annotations

from onelock._owners import DEFAULT
from onelock.lock import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onelock._onelock import Cancel, Permits
    from onelock._owners import Default
    from onelock._types import Seconds
    from onelock.lease import Lease

__all__ = ["Semaphore"]


def is_one(permits: int) -> bool:
    """Whether it is the number 1, and not something that equals it, which the native module refuses."""
    return type(permits) is int and permits == 1


class Semaphore(Lock):
    """A semaphore by name, from `Client.semaphore`: at most so many holders at a time, in all programs together.

        downloads = client.semaphore("downloads", 4)
        with downloads:
            fetch(url)

    It is `threading.BoundedSemaphore` across machines, with one difference: a permit is released by its own lease, once,
    so `release` is a method of the lease. The permits of a program that died come back after their ttl. `is_locked` says
    whether no permit is free.
    """

    __slots__ = ()

    def acquire(
        self, timeout: Seconds | Default | None = DEFAULT, *, permits: int = 1, cancel: Cancel | None = None
    ) -> Lease:
        """Waits until so many permits are free and takes them, all or none; see `Lock.acquire`.

        Raises `PermitsMismatch` when the semaphore has another number of permits than `Client.semaphore` was told, or
        none is set; `InvalidArgument` when it has fewer than `permits`.
        """
        if is_one(permits):
            return super().acquire(timeout, cancel=cancel)
        return self._taking(permits).acquire(timeout, cancel=cancel)

    def try_acquire(self, *, permits: int = 1) -> Lease | None:
        """One try: `None` when too few permits are free. One round trip, no waiting. Otherwise as `acquire`."""
        return super().try_acquire() if is_one(permits) else self._taking(permits).try_acquire()

    def permits(self) -> Permits | None:
        """How many permits there are, and how many of them are held; `None` when no number is set yet. One round trip.

        The answer may be outdated when it arrives: to act on it, use `try_acquire`.
        """
        return self._native.permits()

    def set_permits(self, permits: int) -> Permits:
        """Sets how many permits there are in all, 1 to 1024. Whoever holds permits keeps them.

        Programs that name another number get `PermitsMismatch` from now on.
        """
        return self._native.set_permits(permits)

    def _taking(self, permits: int) -> Lock:
        return Lock(self._native.taking(permits), self._timeout, None, self._on_lost, self._on_jeopardy)

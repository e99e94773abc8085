"""A semaphore for asyncio: so many permits, each a lease of its own."""

from __future__ import annotations

from onelock import _pumps
from onelock._owners import DEFAULT
from onelock.alock import AsyncLock
from onelock.semaphore import is_one

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onelock._onelock import Permits
    from onelock._owners import Default
    from onelock._types import Seconds
    from onelock.alease import AsyncLease

__all__ = ["AsyncSemaphore"]


class AsyncSemaphore(AsyncLock):
    """A semaphore by name, from `AsyncClient.semaphore`; see `Semaphore`.

    async with client.semaphore("downloads", 4):
        await fetch(url)
    """

    __slots__ = ()

    async def acquire(self, timeout: Seconds | Default | None = DEFAULT, *, permits: int = 1) -> AsyncLease:
        """Waits until so many permits are free and takes them, all or none; see `Semaphore.acquire`."""
        if is_one(permits):
            return await super().acquire(timeout)
        return await self._taking(permits).acquire(timeout)

    async def try_acquire(self, *, permits: int = 1) -> AsyncLease | None:
        """One try: `None` when too few permits are free. One round trip, no waiting. Otherwise as `acquire`."""
        if is_one(permits):
            return await super().try_acquire()
        return await self._taking(permits).try_acquire()

    async def permits(self) -> Permits | None:
        """How many permits there are, and how many of them are held; see `Semaphore.permits`."""
        found: Permits | None = await _pumps.result(self._native.start_permits)
        return found

    async def set_permits(self, permits: int) -> Permits:
        """Sets how many permits there are in all; see `Semaphore.set_permits`."""
        found: Permits = await _pumps.result(self._native.start_set_permits, permits)
        return found

    def _taking(self, permits: int) -> AsyncLock:
        native = self._native.taking(permits)
        return AsyncLock(native, self._timeout, None, self._on_lost, self._on_jeopardy, self._cancel_on_loss)

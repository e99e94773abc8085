"""Several locks at once, for asyncio: all are held, or none."""

from __future__ import annotations

import asyncio

from onelock import _onelock, _pumps
from onelock._owners import DEFAULT
from onelock.alock import AsyncLock
from onelock.multi_lock import joined, no_attach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from onelock._owners import Default
    from onelock._types import AsyncOnJeopardy, AsyncOnLost, Name, Seconds
    from onelock.alease import AsyncLease

__all__ = ["AsyncMultiLock"]


class AsyncMultiLock(AsyncLock):
    """Several locks as one: all are held, or none. From `AsyncClient.multi_lock`, or of locks of any kind and client; see
    `MultiLock`.

        async with AsyncMultiLock(client.lock("account:1"), client.lock("account:2"), timeout=5) as lease:
            await transfer(fences=lease.fencing_tokens)

    The body is cancelled at the first loss, as that of `AsyncLock` (with `cancel_on_loss=False` it is not).
    """

    __slots__ = ("_locks", "_multi")

    def __init__(
        self,
        *locks: AsyncLock,
        timeout: Seconds | None = None,
        on_lost: AsyncOnLost | None = None,
        on_jeopardy: AsyncOnJeopardy | None = None,
        cancel_on_loss: bool = True,
    ) -> None:
        for lock in locks:
            # programs without type checks may pass anything
            if not isinstance(lock, AsyncLock) or isinstance(lock, AsyncMultiLock):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"an AsyncMultiLock is made of locks of an AsyncClient, not of {type(lock).__name__}")
        self._multi = _onelock.MultiLock([lock._native for lock in locks])
        self._locks = locks
        self._timeout = timeout
        self._on_lost = on_lost
        self._on_jeopardy = on_jeopardy
        self._cancel_on_loss = cancel_on_loss
        self._entered = []
        # the owners of a task are known when it acquires
        self._multi.check(timeout, [None if lock._owner is DEFAULT else lock._owner for lock in locks])  # type: ignore[misc]

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

    async def acquire(self, timeout: Seconds | Default | None = DEFAULT) -> AsyncLease:
        """Waits until all of them are held, at most `timeout` seconds; see `AsyncLock.acquire`.

        Cancel it at any point: nothing is left held.
        """
        wait = _pumps.plain(self._timeout if timeout is DEFAULT else timeout)  # type: ignore[arg-type]
        pump, loop = _pumps.current()
        future: asyncio.Future[AsyncLease] = loop.create_future()
        owners = [lock._current_owner() for lock in self._locks]
        number, actions = self._multi.start_acquire(pump, future, wait, owners)
        try:
            if actions is not None:
                _pumps.register(pump, loop, actions)
            lease = await future
        except BaseException:
            pump.abandon(number)
            _pumps.release_result(future)
            # breaks a cycle: the traceback has this frame, and the future has the error
            del future
            raise
        return self._listening(lease)

    async def try_acquire(self) -> AsyncLease | None:
        """One try: `None`, and nothing is held, when one of them is held by others."""
        owners = [lock._current_owner() for lock in self._locks]
        lease = await _pumps.granted(self._multi.start_try_acquire, owners)
        return None if lease is None else self._listening(lease)

    async def attach(self, proof: str) -> NoReturn:
        """Raises `Unsupported`: several locks have no proof of their own."""
        raise no_attach(self.names)

    async def is_locked(self) -> bool:
        """Whether one of them is held, by this client or another. One round trip for each."""
        return any(await asyncio.gather(*(lock.is_locked() for lock in self._locks)))

    def _listening(self, lease: AsyncLease) -> AsyncLease:
        # one that is named twice is held once
        for lock in dict.fromkeys(self._locks):
            lock._listening(lease)
        return super()._listening(lease)

    def __repr__(self) -> str:
        return f"<AsyncMultiLock {self.names!r}>"

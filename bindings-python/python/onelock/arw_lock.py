"""A read/write lock for asyncio: many readers at a time, or one writer."""

from __future__ import annotations

from onelock._owners import DEFAULT
from onelock.alock import AsyncLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from onelock import _onelock
    from onelock._onelock import Owner
    from onelock._owners import Default
    from onelock._types import AsyncOnJeopardy, AsyncOnLost, Name, Seconds

__all__ = ["AsyncRwLock"]


class AsyncRwLock:
    """A read/write lock by name, from `AsyncClient.rw_lock`; see `RwLock`. It holds nothing by itself.

    async with client.rw_lock("catalogue").read():
        await look()
    """

    __slots__ = ("_cancel_on_loss", "_make", "_on_jeopardy", "_on_lost", "_owner", "_timeout")

    def __init__(
        self,
        make: Callable[[str], _onelock.Lock],
        timeout: Seconds | None,
        owner: Owner | None,
        on_lost: AsyncOnLost | None,
        on_jeopardy: AsyncOnJeopardy | None,
        cancel_on_loss: bool,
    ) -> None:
        """Read/write locks are made by `AsyncClient.rw_lock`."""
        make("read_lock").check(timeout, owner)
        self._make = make
        self._timeout = timeout
        self._owner = owner
        self._on_lost = on_lost
        self._on_jeopardy = on_jeopardy
        self._cancel_on_loss = cancel_on_loss

    @property
    def name(self) -> Name:
        """The name, without the prefix."""
        return self._make("read_lock").name

    def read(self, timeout: Seconds | Default | None = DEFAULT) -> AsyncLock:
        """The reading side: any number of leases at a time, while nobody writes. No I/O.

        `timeout` takes the place of that of the lock.
        """
        return self._side("read_lock", timeout)

    def write(self, timeout: Seconds | Default | None = DEFAULT) -> AsyncLock:
        """The writing side: one lease, and nobody reads meanwhile; see `RwLock.write`. No I/O."""
        return self._side("write_lock", timeout)

    def _side(self, kind: str, timeout: Seconds | Default | None) -> AsyncLock:
        wait = self._timeout if timeout is DEFAULT else timeout
        native, owner = self._make(kind), self._owner
        return AsyncLock(native, wait, owner, self._on_lost, self._on_jeopardy, self._cancel_on_loss)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

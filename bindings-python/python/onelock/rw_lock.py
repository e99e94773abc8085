"""A read/write lock for threads: many readers at a time, or one writer."""

from __future__ import annotations

from onelock._owners import DEFAULT
from onelock.lock import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from onelock import _onelock
    from onelock._onelock import Owner
    from onelock._owners import Default
    from onelock._types import Name, OnJeopardy, OnLost, Seconds

__all__ = ["RwLock"]


class RwLock:
    """A read/write lock by name, from `Client.rw_lock`: many readers at a time, or one writer. It holds nothing by itself.

        catalogue = client.rw_lock("catalogue")
        with catalogue.read():
            look()
        with catalogue.write(timeout=5) as lease:
            change(fence=lease.fencing_token)

    A waiting writer keeps new readers out, and after a writer the readers that waited go first: neither side starves.
    """

    __slots__ = ("_make", "_on_jeopardy", "_on_lost", "_owner", "_timeout")

    def __init__(
        self,
        make: Callable[[str], _onelock.Lock],
        timeout: Seconds | None,
        owner: Owner | None,
        on_lost: OnLost | None,
        on_jeopardy: OnJeopardy | None,
    ) -> None:
        """Read/write locks are made by `Client.rw_lock`."""
        make("read_lock").check(timeout, owner)
        self._make = make
        self._timeout = timeout
        self._owner = owner
        self._on_lost = on_lost
        self._on_jeopardy = on_jeopardy

    @property
    def name(self) -> Name:
        """The name, without the prefix."""
        return self._make("read_lock").name

    def read(self, timeout: Seconds | Default | None = DEFAULT) -> Lock:
        """The reading side: any number of leases at a time, while nobody writes. No I/O.

        `timeout` takes the place of that of the lock.
        """
        return self._side("read_lock", timeout)

    def write(self, timeout: Seconds | Default | None = DEFAULT) -> Lock:
        """The writing side: one lease, and nobody reads meanwhile. No I/O.

        An owner that writes may read and write again. One that reads gets `WouldDeadlock`: it would wait for itself.
        """
        return self._side("write_lock", timeout)

    def _side(self, kind: str, timeout: Seconds | Default | None) -> Lock:
        wait = self._timeout if timeout is DEFAULT else timeout
        return Lock(self._make(kind), wait, self._owner, self._on_lost, self._on_jeopardy)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

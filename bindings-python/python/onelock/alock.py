"""A lock: a description of what is wanted, for asyncio."""

from __future__ import annotations

import asyncio

from onelock import _pumps
from onelock._owners import DEFAULT, frame_of_scope, scope_entered, task_owner
from onelock._scope import Scope
from onelock.lock import left_elsewhere

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from onelock import _onelock
    from onelock._onelock import Owner
    from onelock._owners import Default
    from onelock._types import AsyncOnJeopardy, AsyncOnLost, Name, Seconds
    from onelock.alease import AsyncLease

__all__ = ["AsyncLock"]


class AsyncLock:
    """A lock by name, from `AsyncClient.lock` or `AsyncClient.reentrant_lock`. Says what is wanted; holds nothing.

    Cheap, and any number of tasks may share one. `async with lock as lease:` acquires and releases:

        async with client.lock("orders:42", timeout=5) as lease:
            await charge(order, fence=lease.fencing_token)

    If the lease is lost, the body is cancelled at its present `await` and `LockLost` is raised (`cancel_on_loss=False`
    leaves it alone, and `LockLost` is raised at its end). Cancelled means from its next `await` on: look at `lease.held`
    before steps that cannot be taken back. A cancellation of the caller's stays a plain `CancelledError`. What the body
    raises goes through, whatever becomes of the release; if the lease was lost meanwhile, `LockLost` is its cause.
    """

    __slots__ = (
        "__weakref__",
        "_cancel_on_loss",
        "_entered",
        "_native",
        "_on_jeopardy",
        "_on_lost",
        "_owner",
        "_timeout",
    )

    def __init__(
        self,
        native: _onelock.Lock,
        timeout: Seconds | None,
        owner: Owner | None,
        on_lost: AsyncOnLost | None,
        on_jeopardy: AsyncOnJeopardy | None,
        cancel_on_loss: bool,
    ) -> None:
        """Locks are made by `AsyncClient.lock` and `AsyncClient.reentrant_lock`."""
        native.check(timeout, owner)
        self._native = native
        self._timeout = timeout
        self._owner: Owner | Default | None = owner
        if owner is None and native.kind == "reentrant_lock":
            self._owner = DEFAULT
        self._on_lost = on_lost
        self._on_jeopardy = on_jeopardy
        self._cancel_on_loss = cancel_on_loss
        self._entered: list[Scope] = []

    @property
    def name(self) -> Name:
        """The name, as it was given."""
        return self._native.name

    @property
    def kind(self) -> str:
        """The kind of lock: `lock` or `reentrant_lock`."""
        return self._native.kind

    async def acquire(self, timeout: Seconds | Default | None = DEFAULT) -> AsyncLease:
        """Waits until the lock is held, at most `timeout` seconds. Uncontended it takes one round trip.

        `None` waits as long as it takes, 0 is a single try that raises `LockBusy`. Left out, it is the time-out that the
        lock was made with. Cancel it at any point (also through `asyncio.timeout` or `wait_for`): nothing is left held.
        Errors are those of `Lock.acquire`.
        """
        if timeout is DEFAULT:
            timeout = self._timeout
        timeout = _pumps.plain(timeout)  # type: ignore[arg-type]
        pump, loop = _pumps.current()
        future: asyncio.Future[AsyncLease] = loop.create_future()
        number, chores = self._native.start_acquire(pump, future, timeout, self._who())
        try:
            if chores is not None:
                _pumps.attend(pump, loop, chores)
            lease = await future
        except BaseException:
            pump.abandon(number)
            _pumps.give_back(future)
            # the error's traceback has this frame, and the future has the error
            del future
            raise
        return lease if self._on_lost is None and self._on_jeopardy is None else self._listening(lease)

    async def try_acquire(self) -> AsyncLease | None:
        """One try: `None` when somebody else holds the lock. One round trip, no waiting. Otherwise as `acquire`."""
        lease = await _pumps.granted(self._native.start_try_acquire, self._who())
        return None if lease is None else self._listening(lease)

    async def attach(self, proof: str) -> AsyncLease:
        """Goes on with a hold that another process gave away with `detach`; see `Lock.attach`.

        Cancelled, a hold that was taken over is given back in the background; if the request never reached the server, the
        hold stays as it was and the proof can be used again.
        """
        return self._listening(await _pumps.granted(self._native.start_attach, proof, self._who()))

    async def is_locked(self) -> bool:
        """Whether anybody holds it, this client included. One round trip.

        When the answer arrives it may be old: to act on it, use `try_acquire`.
        """
        found: bool = await _pumps.result(self._native.start_is_locked)
        return found

    def _who(self) -> Owner | None:
        owner = self._owner
        if owner is DEFAULT:
            task = asyncio.current_task()
            return None if task is None else task_owner(task)
        return owner  # type: ignore[return-value]

    def _listening(self, lease: AsyncLease) -> AsyncLease:
        if self._on_lost is not None:
            lease.on_lost(self._on_lost)
        if self._on_jeopardy is not None:
            lease.on_jeopardy(self._on_jeopardy)
        return lease

    async def __aenter__(self) -> AsyncLease:
        lease = await self.acquire()
        pump, _ = _pumps.current()
        task = asyncio.current_task()
        assert task is not None
        self._entered.append(Scope(lease, task, pump, self._cancel_on_loss, frame_of_scope()))
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        scope = scope_entered(self._entered, frame_of_scope(), asyncio.current_task())
        if scope is None:
            raise left_elsewhere(self.name)
        self._entered.remove(scope)
        await scope.lease._leave(scope, error)

    def __repr__(self) -> str:
        return f"<AsyncLock {self.name!r}>" if self.kind == "lock" else f"<AsyncLock {self.name!r}, reentrant>"

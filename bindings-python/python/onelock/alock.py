"""A lock for asyncio: the description of what to acquire."""

from __future__ import annotations

import asyncio

from onelock import _pumps
from onelock._owners import DEFAULT, REENTRANT, frame_of_scope, scope_entered, task_owner
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
    """A lock by name, from `AsyncClient.lock`, `reentrant_lock` or `fair_lock`. It holds nothing by itself.

    It is cheap, and tasks may share one. `async with lock as lease:` acquires and releases:

        async with client.lock("orders:42", timeout=5) as lease:
            await charge(order, fence=lease.fencing_token)

    If the lease is lost, the body is cancelled at its current `await` and `LockLost` is raised (with `cancel_on_loss=False`
    the body is not cancelled, and `LockLost` is raised at its end). Code before the next `await` still runs: check
    `lease.held` before steps that cannot be undone. A cancellation by the caller stays a plain `CancelledError`. An
    exception of the body is never replaced by a problem of the release; if the lease was lost meanwhile, `LockLost` is its
    cause.
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
        """Locks are made by `AsyncClient.lock`, `reentrant_lock` and `fair_lock`."""
        native.check(timeout, owner)
        self._native = native
        self._timeout = timeout
        self._owner: Owner | Default | None = owner
        if owner is None and native.kind in REENTRANT:
            self._owner = DEFAULT
        self._on_lost = on_lost
        self._on_jeopardy = on_jeopardy
        self._cancel_on_loss = cancel_on_loss
        self._entered: list[Scope] = []

    @property
    def name(self) -> Name:
        """The name, without the prefix."""
        return self._native.name

    @property
    def kind(self) -> str:
        """The kind of lock: `lock`, `reentrant_lock`, `fair_lock`, `read_lock`, `write_lock` or `semaphore`."""
        return self._native.kind

    async def acquire(self, timeout: Seconds | Default | None = DEFAULT) -> AsyncLease:
        """Waits until the lock is held, at most `timeout` seconds. Uncontended it takes one round trip.

        `None` waits without limit, 0 is a single try that raises `LockBusy`. The default is the time-out of the lock.
        Cancel it at any point (also through `asyncio.timeout` or `wait_for`): nothing is left held. Errors are those of
        `Lock.acquire`.
        """
        if timeout is DEFAULT:
            timeout = self._timeout
        timeout = _pumps.plain(timeout)  # type: ignore[arg-type]
        pump, loop = _pumps.current()
        future: asyncio.Future[AsyncLease] = loop.create_future()
        number, actions = self._native.start_acquire(pump, future, timeout, self._current_owner())
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
        return lease if self._on_lost is None and self._on_jeopardy is None else self._listening(lease)

    async def try_acquire(self) -> AsyncLease | None:
        """One try: `None` when the lock is held. One round trip, no waiting. Otherwise as `acquire`."""
        lease = await _pumps.granted(self._native.start_try_acquire, self._current_owner())
        return None if lease is None else self._listening(lease)

    async def attach(self, proof: str) -> AsyncLease:
        """Takes over a hold that another process detached with `detach`; see `Lock.attach`.

        If it is cancelled, a hold that was taken over is released in the background; if the request never reached the
        server, the hold is unchanged and the proof can be used again.
        """
        return self._listening(await _pumps.granted(self._native.start_attach, proof, self._current_owner()))

    async def is_locked(self) -> bool:
        """Whether the lock is held, by this client or another. One round trip.

        The answer may be outdated when it arrives: to act on it, use `try_acquire`.
        """
        found: bool = await _pumps.result(self._native.start_is_locked)
        return found

    def _current_owner(self) -> Owner | None:
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
        more = {
            "reentrant_lock": ", reentrant",
            "fair_lock": ", fair",
            "read_lock": ", read",
            "write_lock": ", write",
        }.get(self.kind, "")
        return f"<{type(self).__name__} {self.name!r}{more}>"

"""One granted hold, for asyncio."""

from __future__ import annotations

import asyncio
import weakref

from onelock import _logging, _onelock, _pumps
from onelock._scope import Scope
from onelock.errors import LeaseForked, LockLost
from onelock.lease import lost_error, warn_unreleased
from onelock.outcomes import LOSSES, RELEASES, Grade, LossReason, Release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Any

    from onelock._types import AsyncOnJeopardy, AsyncOnLost, Seconds

__all__ = ["AsyncLease"]

_running: set[asyncio.Future[None]] = set()
"""Coroutines of callbacks that have not ended: a loop does not keep its tasks alive."""


class AsyncLease(_onelock.Lease):
    """One granted hold of a lock, from `AsyncLock.acquire`. Any task may use and release it.

    It is renewed in the background, also while the event loop is blocked, until it is released or lost. `held` is always
    correct; `lost()` and `on_lost` may come late. Dropping the last reference releases the lock in the background, with a
    `ResourceWarning`; `async with lease:` or `await lease.release()` is faster.
    """

    _callbacks: list[tuple[weakref.ref[_onelock.Pump], int]] | None = None
    _scope: Scope | None = None

    @property
    def fencing_grade(self) -> Grade:
        """The grade of the fencing token, from the server's configuration."""
        return Grade(self._fencing_grade)

    @property
    def loss(self) -> LossReason | None:
        """Why the lease was lost; `None` while it is held, and after a release. No I/O."""
        reason = self._loss
        return None if reason is None else LOSSES[reason]

    async def release(self) -> Release:
        """Releases the lock, wakes a waiter, and returns what the server found. One round trip; it may be called again.

        If it is cancelled, it continues in the background. Otherwise as `Lease.release`.
        """
        # if it is cancelled, the request is still sent, but its reply is not awaited
        _, _, future = _pumps.begin(self._start_release)
        found = await future
        # a release that finds the hold gone is a loss, which callbacks receive
        if self._callbacks is not None and self._loss is None:
            self._remove_callbacks()
        return RELEASES[found]

    async def extend(self, ttl: Seconds) -> None:
        """Sets the end of the lease to `ttl` seconds from now, unless it ends later already; see `Lease.extend`.

        If it is cancelled, the extension may or may not reach the server; the local deadline is unchanged.
        """
        await _pumps.result(self._start_extend, _pumps.plain(ttl))

    async def downgrade(self) -> None:
        """Makes a write lease a read lease, in place; see `Lease.downgrade`.

        If it is cancelled, the lease counts as a read lease, and a further call asks again.
        """
        await _pumps.result(self._start_downgrade)

    async def lost(self) -> LossReason:
        """Waits for the loss of the lease. It never returns if the lease is released instead, so wait for something else
        too:

        done, _ = await asyncio.wait({work, asyncio.ensure_future(lease.lost())}, return_when=FIRST_COMPLETED)
        """
        return LOSSES[await _pumps.result(self._start_lost)]

    def on_lost(self, callback: AsyncOnLost) -> None:
        """Calls `callback(lease, reason)` once, on the running loop, when the lease is lost; soon if it is lost already.

        It may be a coroutine function. Exceptions are logged. It is not called when the lease is released or dropped.
        """
        self._listen(self._listen_lost, lambda lease, reason: callback(lease, LOSSES[reason]), "loss")

    def on_jeopardy(self, callback: AsyncOnJeopardy) -> None:
        """Calls `callback(lease)` on the running loop whenever a renewal was missed while the lease is still valid."""
        self._listen(self._listen_jeopardy, lambda lease, _: callback(lease), "jeopardy")

    def _listen(
        self,
        register: Callable[[_onelock.Pump, Callable[[str], None]], int],
        callback: Callable[[AsyncLease, str], object],
        what: str,
    ) -> None:
        pump, _ = _pumps.current()
        # weak: a listener must not keep an unreferenced lease from being released
        weak = weakref.ref(self)

        def call(event: str) -> None:
            lease = weak()
            if lease is not None:
                _call(callback, lease, event, what)

        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append((weakref.ref(pump), register(pump, call)))

    def _remove_callbacks(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        for weak, number in callbacks or ():
            pump = weak()
            if pump is not None:
                pump.forget(number)

    async def _leave(self, scope: Scope, error: BaseException | None) -> None:
        """Ends a scope: releases, and reports a loss without hiding an error of the body."""
        lost_us = scope.leave(error)
        if isinstance(error, GeneratorExit):
            # the coroutine is being destroyed: it cannot await
            self._release_later()
            return
        try:
            await self.release()
        except LeaseForked:
            return
        # also a loss that only the release detected
        lost = lost_error(self)
        if lost is None:
            return
        if error is None or lost_us:
            raise lost from error
        if isinstance(error, asyncio.CancelledError):
            # a cancellation by the caller
            return
        if error.__cause__ is None and not isinstance(error, LockLost):
            error.__cause__ = lost

    async def __aenter__(self) -> AsyncLease:
        pump, _ = _pumps.current()
        task = asyncio.current_task()
        assert task is not None
        self._scope = Scope(self, task, pump, cancel_on_loss=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        scope, self._scope = self._scope, None
        assert scope is not None
        await self._leave(scope, error)

    def __del__(self) -> None:
        if self._callbacks is not None:
            self._remove_callbacks()
        if self.held:
            warn_unreleased(self)

    def __repr__(self) -> str:
        state = f"held, {self.remaining:.3f} s left" if self.held else self._loss or "not held"
        return f"<AsyncLease of {self.name!r}: {state}, fencing token {self.fencing_token}>"


def _call(callback: Callable[[AsyncLease, str], object], lease: AsyncLease, event: str, what: str) -> None:
    try:
        outcome: Any = callback(lease, event)
        if not hasattr(outcome, "__await__"):
            return
        running = asyncio.ensure_future(_guarded(outcome, what))
        _running.add(running)
        running.add_done_callback(_running.discard)
    except Exception:
        _logging.callback_failed(what)


async def _guarded(awaitable: Awaitable[object], what: str) -> None:
    try:
        await awaitable
    except Exception:
        _logging.callback_failed(what)

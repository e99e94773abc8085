"""The body of an `async with` on a lock: cancels it when the lease is lost, and tells that from other cancellations."""

from __future__ import annotations

import asyncio
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onelock._onelock import Pump
    from onelock.alease import AsyncLease

_COUNTS = sys.version_info >= (3, 11)
"""Whether tasks count cancellations."""

_BY_US = "onelock: the lease was lost"


class Scope:
    """One entry into a lease by one task."""

    __slots__ = ("_cancelled", "_cancelling", "_inside", "_number", "_pump", "frame", "lease", "task")

    def __init__(
        self, lease: AsyncLease, task: asyncio.Task[object], pump: Pump, cancel_on_loss: bool, frame: object = None
    ) -> None:
        self.lease = lease
        self.frame = frame
        self.task = task
        self._pump = pump
        self._inside = True
        self._cancelled = False
        self._cancelling = self._count()
        self._number = lease._listen_lost(pump, self._lost) if cancel_on_loss else None

    @property
    def owner(self) -> asyncio.Task[object]:
        """The task that entered."""
        return self.task

    def _count(self) -> int:
        if sys.version_info >= (3, 11):
            return self.task.cancelling()
        return 0

    def _lost(self, reason: str) -> None:
        """Called on the loop when the lease is lost: cancels the body at its current `await`."""
        if not self._inside or self.task.done():
            return
        if not _COUNTS and self._is_being_cancelled():
            # the caller cancelled first, and one cancellation would hide the other
            return
        self._cancelled = True
        self.task.cancel(_BY_US)
        if not _COUNTS:
            # a second cancellation before the task runs sets another message
            setattr(self.task, "_cancel_message", _BY_US)  # noqa: B010

    def _is_being_cancelled(self) -> bool:
        waiting_for = getattr(self.task, "_fut_waiter", None)
        return bool(getattr(self.task, "_must_cancel", False)) or (waiting_for is not None and waiting_for.cancelled())

    def leave(self, error: BaseException | None) -> bool:
        """The body has ended with `error`. True when that is the cancellation by this scope and no other."""
        self._inside = False
        if self._number is not None:
            self._pump.forget(self._number)
        if not self._cancelled:
            return False
        if sys.version_info >= (3, 11):
            others = self.task.uncancel() > self._cancelling
        else:
            # the message of the last cancellation
            others = getattr(self.task, "_cancel_message", _BY_US) is not _BY_US
        return isinstance(error, asyncio.CancelledError) and not others

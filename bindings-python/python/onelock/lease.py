"""One granted hold, for threads."""

from __future__ import annotations

import weakref

from onelock import _onelock
from onelock.errors import LeaseForked, LockLost
from onelock.outcomes import LOSSES, RELEASES, Grade, LossReason, Release

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from types import TracebackType

    from onelock._types import OnJeopardy, OnLost, Seconds

__all__ = ["Lease"]


def lost_error(lease: _onelock.Lease) -> LockLost | None:
    """The exception of the loss of `lease`, if it was lost."""
    error = lease._lost_error()
    if error is not None:
        error.reason = LOSSES[lease._loss]  # type: ignore[index]
    return error


def warn_unreleased(lease: _onelock.Lease) -> None:
    """Warns of a lease that was dropped without a release. It is released now, later than necessary."""
    try:
        import warnings

        warnings.warn(
            f"the lease of {lease.name!r} was neither released nor lost when it was dropped; "
            "use `with`, or call release()",
            ResourceWarning,
            stacklevel=3,
            source=lease,
        )
    except ImportError:
        # the interpreter is shutting down
        pass


class Lease(_onelock.Lease):
    """One granted hold of a lock, from `Lock.acquire`. Any thread may use and release it.

    It is renewed in the background until it is released or lost. `held` is always correct; `lost_event` and `on_lost` may
    come late. Dropping the last reference releases the lock in the background, with a `ResourceWarning`; `with lease:` or
    `release()` is faster.

        lease = client.lock("orders:42").acquire(timeout=5)
        try:
            charge(order, fence=lease.fencing_token)
        finally:
            lease.release()
    """

    _event_object: threading.Event | None = None
    _callbacks: dict[int, Callable[[Lease, str], object]] | None = None

    @property
    def fencing_grade(self) -> Grade:
        """The grade of the fencing token, from the server's configuration."""
        return Grade(self._fencing_grade)

    @property
    def loss(self) -> LossReason | None:
        """Why the lease was lost; `None` while it is held, and after a release. No I/O.

        A release that finds the hold gone before its deadline counts as a loss.
        """
        reason = self._loss
        return None if reason is None else LOSSES[reason]

    def release(self) -> Release:
        """Releases the lock, wakes a waiter, and returns what the server found. One round trip; it may be called again.

        Returns within `request_timeout`. If a reentrant lock was entered more than once, this releases one entry; the last
        release releases the lock. Raises only `LeaseForked`, in a forked child; everything else is an outcome, see
        `Release`.
        """
        return RELEASES[self._release()]

    def extend(self, ttl: Seconds) -> None:
        """Sets the end of the lease to `ttl` seconds from now, unless it ends later already. It never adds or shortens.

        From 0.01 s to one year. Automatic renewal continues with the longer of the two lengths. One round trip. Raises
        `InvalidArgument` before any I/O; `LockLost` or `LockNotHeld` when the lease is not held; `ServerUnavailable` when
        no server answered (the deadline is unchanged).
        """
        self._extend(ttl)

    def downgrade(self) -> None:
        """Makes a write lease a read lease, in place: at no moment could another writer enter. One round trip.

        Other readers may enter from now on, and `fencing_token` is a new one. A read lease stays what it is. Raises
        `InvalidArgument` for another kind of lock; `LockBusy` while its owner enters or leaves it; `LockLost` or
        `LockNotHeld` when the lease is not held; `ServerUnavailable` when no server answered: it counts as a read lease then,
        and a further call asks again.
        """
        self._downgrade()

    @property
    def lost_event(self) -> threading.Event:
        """An event that is set when the lease is lost, and never when it is released. Always the same object.

        It may be set late (`held` is always correct). It is for threads that wait for the end of the work or of the lease.
        """
        event = self._event_object
        if event is None:
            import threading

            event = threading.Event()
            self._event_object = event
            self._listen(lambda _lease, _what: event.set(), jeopardy=False)
        if not event.is_set() and self._loss is not None:
            event.set()
        return event

    def wait_lost(self, timeout: Seconds | None = None) -> LossReason | None:
        """Waits for the loss of the lease, at most `timeout` seconds. `None` when it has not been lost by then.

        Without a time-out it never returns if the lease is released instead.
        """
        self.lost_event.wait(None if timeout is None else _onelock.seconds(timeout, "timeout", "wait_lost"))
        return self.loss

    def on_lost(self, callback: OnLost) -> None:
        """Calls `callback(lease, reason)` once when the lease is lost; at once if it is lost already.

        Callbacks run on a thread of their own, one after the other, so keep them short. Exceptions are logged. It is not
        called when the lease is released or dropped.
        """
        self._listen(lambda lease, reason: callback(lease, LOSSES[reason]), jeopardy=False)

    def on_jeopardy(self, callback: OnJeopardy) -> None:
        """Calls `callback(lease)` whenever a renewal was missed while the lease is still valid."""
        self._listen(lambda lease, _: callback(lease), jeopardy=True)

    def _listen(self, callback: Callable[[Lease, str], object], *, jeopardy: bool) -> None:
        # kept here, without the lease: the core has a weak reference, so that an unreferenced lease is dropped at once
        if self._callbacks is None:
            self._callbacks = {}
        number = len(self._callbacks)
        self._callbacks[number] = callback
        if jeopardy:
            self._on_jeopardy(weakref.ref(self), number)
        else:
            self._on_lost(weakref.ref(self), number)

    def _event(self, number: int, what: str) -> None:
        """Called by the core, on its thread for callbacks."""
        callback = (self._callbacks or {}).get(number)
        if callback is None:
            return
        try:
            callback(self, what)
        except Exception:
            from onelock import _logging

            _logging.callback_failed("jeopardy" if what == "jeopardy" else "loss")

    def _leave(self, error: BaseException | None) -> None:
        """Ends a scope: releases, and reports a loss without hiding an error of the body."""
        try:
            self._release()
        except LeaseForked:
            # a forked child leaves the scope of its parent: it holds nothing
            return
        # also a loss that only the release detected
        lost = lost_error(self)
        if lost is None:
            return
        if error is None:
            raise lost
        if error.__cause__ is None and not isinstance(error, LockLost):
            error.__cause__ = lost

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(error)

    def __del__(self) -> None:
        # they refer to the lease: without them it is dropped at once
        self._callbacks = None
        if self.held:
            warn_unreleased(self)

    def __repr__(self) -> str:
        state = f"held, {self.remaining:.3f} s left" if self.held else self._loss or "not held"
        return f"<Lease of {self.name!r}: {state}, fencing token {self.fencing_token}>"

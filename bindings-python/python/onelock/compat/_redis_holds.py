"""Who holds what through one lock object of the redis-py shim."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from onelock import _clients
from onelock.errors import OnelockError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Hold", "Holds", "of_tasks", "of_threads"]

_staying: WeakSet[Any] = WeakSet()
"""Holds with a time-out: as in redis-py they last until then, whatever becomes of the program."""


def _let_stay() -> None:
    for hold in list(_staying):
        hold.let_stay()


_clients.before_exit(_let_stay)


class Hold:
    """A lease and whether it outlives the one who has it."""

    __slots__ = ("__weakref__", "lease", "stays")

    def __init__(self, lease: Any, stays: bool) -> None:
        self.lease = lease
        self.stays = stays
        if stays:
            _staying.add(self)

    def let_stay(self) -> None:
        # an error: it has ended meanwhile
        with suppress(OnelockError):
            self.lease.detach()

    def __del__(self) -> None:
        # before the lease itself goes, which would release it
        if self.stays and self.lease.held:
            self.let_stay()


class _Known:
    """What is known of one caller."""

    __slots__ = ("_caller", "hold")

    def __init__(self, caller: object = None, hold: Hold | None = None) -> None:
        self._caller = None if caller is None else ref(caller)
        self.hold = hold

    def caller(self) -> object:
        """Who it is; `None` when that has gone."""
        return None if self._caller is None else self._caller()

    def is_held(self) -> bool:
        """Whether it holds the lock."""
        return self.hold is not None and bool(self.hold.lease.held)


class Holds:
    """Each caller (a task, or a thread) has a hold of its own, so that a late release by one never ends the hold of another.

    Who has not acquired through this lock object releases for whoever did, if that is one.
    """

    def __init__(self, caller: Callable[[], object]) -> None:
        self._caller = caller
        # a hold stays when its task has ended: `wait_for(lock.acquire(), 5)` acquires in a task of its own
        self._all: list[_Known] = []

    def _mine(self) -> _Known:
        caller = self._caller()
        held: list[_Known] = []
        for known in list(self._all):
            if caller is not None and known.caller() is caller:
                return known
            if known.hold is not None:
                held.append(known)
        return held[0] if len(held) == 1 else _Known()

    @property
    def hold(self) -> Hold | None:
        return self._mine().hold

    @property
    def token(self) -> bytes | None:
        """The owner token, as it stands on the server; `None` when nothing is held."""
        hold = self.hold
        return None if hold is None else hold.lease.token.encode()

    def acquired(self, hold: Hold) -> None:
        """The caller has this one from now on."""
        mine = _Known(self._caller(), hold)
        # one whose task is there is kept, also when it has ended: its release must find it
        self._all = [
            known
            for known in self._all
            if known.caller() is not mine.caller() and (known.caller() is not None or known.is_held())
        ]
        self._all.append(mine)

    def ended(self) -> None:
        """The hold of the caller is over."""
        self._mine().hold = None


class _LocalHolds(Holds, threading.local):
    """The same, and each thread has its own."""


def _current_task() -> object:
    """The running task."""
    import asyncio

    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class _Mark:
    __slots__ = ("__weakref__",)


_marks = threading.local()


def _current_thread() -> object:
    """A marker of this thread (or greenlet)."""
    mark = getattr(_marks, "mark", None)
    if mark is None:
        mark = _marks.mark = _Mark()
    return mark


def of_threads(thread_local: bool) -> Holds:
    """The holds of a lock for threads."""
    return _LocalHolds(_current_thread) if thread_local else Holds(_current_thread)


def of_tasks(thread_local: bool) -> Holds:
    """The holds of a lock for asyncio."""
    return _LocalHolds(_current_task) if thread_local else Holds(_current_task)

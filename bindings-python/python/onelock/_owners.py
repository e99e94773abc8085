"""The default owner of reentrant locks, and the scope that a `with` statement leaves.

The owner comes from the program (`owner=`, then `owner_scope`); otherwise it is the task in asyncio, and the thread within
its context (`contextvars`) elsewhere. The thread alone is not enough: a thread of a pool serves one request after the
other, and each call into it (by anyio for Starlette and FastAPI, by asgiref for Django, by `asyncio.to_thread`) has a
context of its own. The context alone is not enough either: a thread or task that is started inside a scope gets a copy of
it.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar

from onelock._onelock import Owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence
    from types import FrameType, TracebackType
    from typing import Protocol, TypeVar
    from weakref import WeakKeyDictionary

    class Entry(Protocol):
        """One scope that was entered."""

        @property
        def frame(self) -> object: ...
        @property
        def owner(self) -> object: ...

    E = TypeVar("E", bound=Entry)

# with greenlets, it belongs to the greenlet
_local = threading.local()
_tasks: WeakKeyDictionary[asyncio.Task[object], Owner] | None = None
_here: ContextVar[tuple[object, Owner] | None] = ContextVar("onelock_here", default=None)
_scope: ContextVar[Owner | None] = ContextVar("onelock_owner", default=None)


class Default:
    """Marks an argument that was left out, where `None` has a meaning."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT = Default()

# the kinds of lock that an owner may acquire again
REENTRANT = ("reentrant_lock", "read_lock", "write_lock")


class owner_scope:
    """Acquires of reentrant locks inside it, without an `owner`, have the same owner: for a request, a job, a session.

        @app.middleware("http")                     # Starlette, FastAPI
        async def one_owner_per_request(request, call_next):
            with onelock.owner_scope():
                return await call_next(request)

    It belongs to the context (`contextvars`): called functions, also through `asyncio.to_thread`, and tasks that are
    started inside have the same owner, and can hold the lock **at the same time**. Without `owner` a new one is made. The
    value of `with` is the owner. Leave it where it was entered: in the same task, or in the same thread.
    """

    __slots__ = ("_before", "_owner")

    def __init__(self, owner: Owner | None = None) -> None:
        self._owner = Owner() if owner is None else owner
        self._before: list[Owner | None] = []

    def __enter__(self) -> Owner:
        self._before.append(_scope.get())
        _scope.set(self._owner)
        return self._owner

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        before = self._before.pop()
        # in another context there is nothing to restore
        if _scope.get() is self._owner:
            _scope.set(before)


def _thread() -> object:
    """A marker of this thread (or greenlet)."""
    try:
        mark: object = _local.mark
    except AttributeError:
        mark = _local.mark = object()
    return mark


def here() -> Owner:
    """The owner of this thread (or greenlet) within its context."""
    thread, known = _thread(), _here.get()
    if known is not None and known[0] is thread:
        return known[1]
    owner = Owner()
    _here.set((thread, owner))
    return owner


def thread_owner() -> Owner:
    """The default owner for threads."""
    owner = _scope.get()
    return here() if owner is None else owner


def task_owner(task: asyncio.Task[object]) -> Owner:
    """The default owner of this task; a task that it starts has another one."""
    global _tasks
    scope = _scope.get()
    if scope is not None:
        return scope
    if _tasks is None:
        from weakref import WeakKeyDictionary

        _tasks = WeakKeyDictionary()
    owner = _tasks.get(task)
    if owner is None:
        owner = _tasks.setdefault(task, Owner())
    return owner


_MOVES = 0x20 | 0x80 | 0x200
"""Flags of code whose frame may continue in another thread and context: generators, coroutines, and async generators."""


def frame_of_scope(depth: int = 2) -> object:
    """The identity of a scope: the frame of the `with` statement, or its `ExitStack`."""
    try:
        frame: FrameType = sys._getframe(depth)
    except ValueError:
        # not called by Python code
        return object()
    if frame.f_globals.get("__name__") == "contextlib":
        return frame.f_locals.get("self", frame)
    return frame


def scope_entered(entered: Sequence[E], frame: object, owner: object) -> E | None:
    """The scope that is left here. `None` when it was entered elsewhere and cannot be identified."""
    for entry in reversed(entered):
        if entry.frame is frame:
            code = getattr(frame, "f_code", None)
            # the frame of a plain function does not move: another owner means another caller, as in a thread pool
            if code is None or code.co_flags & _MOVES or entry.owner is owner:
                return entry
    for entry in reversed(entered):
        if entry.owner is owner:
            return entry
    return entered[0] if len(entered) == 1 else None

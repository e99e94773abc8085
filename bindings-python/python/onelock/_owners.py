"""Who re-enters by default, and which scope is left.

The owner is whoever the program says (`owner=`, then `owner_scope`); else in asyncio the task, and in code of threads the
thread within its context (`contextvars`). The thread alone would not do: a pool's thread works for one request, then for the
next one, and each call into it (of anyio, so of Starlette and FastAPI, of asgiref, so of Django, of `asyncio.to_thread`) has
a context of its own. The context alone would not do either: who is started inside a scope gets a copy of it.
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
        def who(self) -> object: ...

    E = TypeVar("E", bound=Entry)

# where greenlets stand in for threads, this is theirs
_local = threading.local()
_tasks: WeakKeyDictionary[asyncio.Task[object], Owner] | None = None
_here: ContextVar[tuple[object, Owner] | None] = ContextVar("onelock_here", default=None)
_scope: ContextVar[Owner | None] = ContextVar("onelock_owner", default=None)


class Default:
    """Stands for an argument that was left out, where `None` means something."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT = Default()


class owner_scope:
    """Inside, whoever acquires a reentrant lock without an `owner` is the same one: for a request, a job, a session.

        @app.middleware("http")                     # Starlette, FastAPI
        async def one_owner_per_request(request, call_next):
            with onelock.owner_scope():
                return await call_next(request)

    It goes with the context (`contextvars`): functions that are called, also through `asyncio.to_thread`, and tasks that are
    started inside are the same owner, and can be in the lock **at the same time**. Without `owner`, a fresh one. The value
    of `with` is the owner. Leave it where it was entered: in the same task, or in the same thread.
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
        # in another context there is nothing to put back
        if _scope.get() is self._owner:
            _scope.set(before)


def _thread() -> object:
    """What stands for this thread (or greenlet)."""
    try:
        mark: object = _local.mark
    except AttributeError:
        mark = _local.mark = object()
    return mark


def here() -> Owner:
    """The owner that stands for this thread (or greenlet) within its context."""
    thread, known = _thread(), _here.get()
    if known is not None and known[0] is thread:
        return known[1]
    owner = Owner()
    _here.set((thread, owner))
    return owner


def thread_owner() -> Owner:
    """Who acquires, in code of threads, unless the lock says so."""
    owner = _scope.get()
    return here() if owner is None else owner


def task_owner(task: asyncio.Task[object]) -> Owner:
    """Who acquires in this task, unless the lock says so; a task that it starts is another one."""
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
"""Code whose frame may go on in another thread and context: of generators, coroutines, and both at once."""


def frame_of_scope(depth: int = 2) -> object:
    """What stands for a scope: the frame that has the `with`; the `ExitStack`, where there is one."""
    try:
        frame: FrameType = sys._getframe(depth)
    except ValueError:
        # called by no code of Python
        return object()
    if frame.f_globals.get("__name__") == "contextlib":
        return frame.f_locals.get("self", frame)
    return frame


def scope_entered(entered: Sequence[E], frame: object, who: object) -> E | None:
    """The scope that is left here. `None`: it was entered elsewhere, and which one it is cannot be told."""
    for entry in reversed(entered):
        if entry.frame is frame:
            code = getattr(frame, "f_code", None)
            # the frame of a plain function stays where it is: what differs is another caller's, as in a thread of a pool
            if code is None or code.co_flags & _MOVES or entry.who is who:
                return entry
    for entry in reversed(entered):
        if entry.who is who:
            return entry
    return entered[0] if len(entered) == 1 else None

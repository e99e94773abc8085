"""Who re-enters by default: the thread in code of threads, the task in asyncio."""

from __future__ import annotations

import threading

from onelock._onelock import Owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from weakref import WeakKeyDictionary

# where greenlets stand in for threads, this is theirs
_local = threading.local()
_tasks: WeakKeyDictionary[asyncio.Task[object], Owner] | None = None


class Default:
    """Stands for an argument that was left out, where `None` means something."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT = Default()


def thread_owner() -> Owner:
    """The owner that stands for this thread (or greenlet)."""
    try:
        owner: Owner = _local.owner
    except AttributeError:
        owner = _local.owner = Owner()
    return owner


def task_owner(task: asyncio.Task[object]) -> Owner:
    """The owner that stands for this task; a task that it starts has another one."""
    global _tasks
    if _tasks is None:
        from weakref import WeakKeyDictionary

        _tasks = WeakKeyDictionary()
    owner = _tasks.get(task)
    if owner is None:
        owner = _tasks.setdefault(task, Owner())
    return owner

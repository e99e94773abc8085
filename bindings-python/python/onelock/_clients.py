"""What both kinds of client are made of."""

from __future__ import annotations

import atexit
import os
import sys

from onelock import _logging, _onelock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from onelock._credentials import Asking
    from onelock._types import AsyncClientOptions, ClientOptions, Url

_EXIT_LIMIT = 1.0
"""How long the end of the program waits for what is held to be given back, in seconds."""

_watching = False
_before: list[Callable[[], None]] = []


def before_exit(call: Callable[[], None]) -> None:
    """Calls it when the process ends, before what is held is given back."""
    _before.append(call)


def give_back() -> None:
    """Gives back what is held by every client. The process is about to end."""
    for call in _before:
        call()
    _onelock.give_back(_EXIT_LIMIT)


def _at_exit() -> None:
    give_back()
    lines = _onelock.take_log()
    if lines:
        _logging.deliver(lines)


def _end_of_child(_: object) -> None:
    from multiprocessing import util

    # after the finalizers of the program's own objects
    util.Finalize(None, _at_exit, exitpriority=-100)


def _in_child() -> None:
    """A process forked by multiprocessing ends without atexit, and forgets what its parent wanted done at the end."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(_in_child, _end_of_child)


def _watch() -> None:
    """Sees to it that what is held is given back when the process ends."""
    global _watching
    if not _watching:
        _watching = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_in_child)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def make(url: Url | None, options: ClientOptions | AsyncClientOptions, asking: Asking | None) -> _onelock.Client:
    """A native client. Opens no socket and starts no thread."""
    if url is None:
        url = ""
    elif not isinstance(url, str):
        # a client of another library can be iterated over too, with an odd error
        parts: object = url
        if not isinstance(parts, (list, tuple)) or not all(map(_is_text, parts)):
            raise TypeError(
                f"url must be an address such as 'redis://localhost', or a list of them, not {type(url).__name__}; "
                "for a redis.Redis object there is onelock.compat.redis_py"
            )
        url = " ".join(url)
    client = _onelock.Client(url, {**options, "credentials": asking})
    _watch()
    _logging.refresh()
    return client

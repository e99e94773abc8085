"""The parts that both kinds of client share."""

from __future__ import annotations

import atexit
import os
import sys

from onelock import _logging, _onelock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from onelock._credentials import Provider
    from onelock._types import AsyncClientOptions, ClientOptions, Url

_EXIT_LIMIT = 1.0
"""How long the end of the program waits for releases, in seconds."""

_watching = False
_before: list[Callable[[], None]] = []


def before_exit(call: Callable[[], None]) -> None:
    """Registers a function that is called when the process ends, before what is held is released."""
    _before.append(call)


def release_all() -> None:
    """Releases what every client holds. The process is about to end."""
    for call in _before:
        call()
    _onelock.release_all(_EXIT_LIMIT)


def _at_exit() -> None:
    release_all()
    lines = _onelock.take_log()
    if lines:
        _logging.deliver(lines)


def _end_of_child(_: object) -> None:
    from multiprocessing import util

    # after the finalizers of the program
    util.Finalize(None, _at_exit, exitpriority=-100)


def _in_child() -> None:
    """A process forked by multiprocessing ends without atexit, and without the exit functions of its parent."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(_in_child, _end_of_child)


def _watch() -> None:
    """Makes the end of the process release what is held."""
    global _watching
    if not _watching:
        _watching = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_in_child)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def make(url: Url | None, options: ClientOptions | AsyncClientOptions, provider: Provider | None) -> _onelock.Client:
    """A native client. Opens no socket and starts no thread."""
    if url is None:
        url = ""
    elif not isinstance(url, str):
        # a client of another library may be iterable too, with a confusing error
        parts: object = url
        if not isinstance(parts, (list, tuple)) or not all(map(_is_text, parts)):
            raise TypeError(
                f"url must be an address such as 'redis://localhost', or a list of them, not {type(url).__name__}; "
                "for a redis.Redis object there is onelock.compat.redis_py"
            )
        url = " ".join(url)
    client = _onelock.Client(url, {**options, "credentials": provider})
    _watch()
    _logging.refresh()
    return client

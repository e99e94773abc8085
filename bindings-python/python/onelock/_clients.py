"""What both kinds of client are made of."""

from __future__ import annotations

import atexit

from onelock import _logging, _onelock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onelock._types import ClientOptions, Url

_EXIT_LIMIT = 1.0
"""How long the end of the program waits for what is held to be given back, in seconds."""

_watching = False


def _at_exit() -> None:
    _onelock.give_back(_EXIT_LIMIT)
    lines = _onelock.take_log()
    if lines:
        _logging.deliver(lines)


def _after_fork(_: object) -> None:
    from multiprocessing import util

    # a process of multiprocessing ends without atexit; this runs after the finalizers of the program's own objects
    util.Finalize(None, _at_exit, exitpriority=-100)


def _watch() -> None:
    """Sees to it that what is held is given back when the process ends, also in processes forked by multiprocessing."""
    global _watching
    if not _watching:
        _watching = True
        atexit.register(_at_exit)
        import sys

        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(_watch, _after_fork)


def make(url: Url | None, options: ClientOptions) -> _onelock.Client:
    """A native client. Opens no socket and starts no thread."""
    if url is None:
        url = ""
    elif not isinstance(url, str):
        url = " ".join(url)
    client = _onelock.Client(url, dict(options))
    _watch()
    _logging.refresh()
    return client

"""Releases what is held when a signal ends the process."""

from __future__ import annotations

import os
import signal

from onelock import _clients

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

__all__ = ["release_on_signal"]


def release_on_signal(number: int = signal.SIGTERM) -> bool:
    """From now on, what is held is released (within a second) when this signal ends the process. True when it was set up.

    Without this call Python ends at once on SIGTERM, without clean-up, and others wait for the ttl. The process still ends
    by that signal, with the same status. If the signal is ignored or has a handler already (of a web server, a worker,
    asyncio), nothing changes, and the result is `False`: when that handler ends the program normally, what is held is
    released anyway. A handler that is set later replaces this one.

    Call it in the main thread, as `signal.signal` (elsewhere: `ValueError`). Python runs handlers between two steps of the
    main thread, so a long call into C delays the end. Code in other threads may still run meanwhile: a lease counts as lost
    before its release is sent.
    """
    if signal.getsignal(number) is not signal.SIG_DFL:
        return False
    signal.signal(number, _end)
    return True


def _end(number: int, _: FrameType | None) -> None:
    try:
        _clients.release_all()
    finally:
        # ends the process as without a handler
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

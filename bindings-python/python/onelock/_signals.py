"""Giving back what is held when a signal ends the process."""

from __future__ import annotations

import os
import signal

from onelock import _clients

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

__all__ = ["give_back_on_signal"]


def give_back_on_signal(number: int = signal.SIGTERM) -> bool:
    """From now on, what is held is given back (within a second) when this signal ends the process. True when it was set up.

    By itself Python ends at once on SIGTERM, with no clean-up of any kind, and others wait for the ttl. Everything else stays
    as it is: the process still ends by that signal, with the same status. A signal that is ignored, or that something handles
    already (a web server, a worker, asyncio), is left alone, and the answer is `False`: who handles it ends the program in good
    order, and then what is held is given back anyway. A handler that is set later takes the place of this one.

    To be called in the main thread, as every `signal.signal` (elsewhere: `ValueError`). Python runs handlers between two steps
    of the main thread, so a long call into C delays the end. Code in other threads may still run for that moment: a lease is
    told lost before the server hears of it.
    """
    if signal.getsignal(number) is not signal.SIG_DFL:
        return False
    signal.signal(number, _end)
    return True


def _end(number: int, _: FrameType | None) -> None:
    try:
        _clients.give_back()
    finally:
        # as if there were no handler
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

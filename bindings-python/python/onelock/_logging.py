"""The core's events in `logging`, under the logger `onelock`.

`logging` is imported when there is something to say, not before.
"""

from __future__ import annotations

import sys

from onelock import _onelock

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging

_WARNING = 30
_logger: logging.Logger | None = None


def logger() -> logging.Logger:
    """The logger `onelock`."""
    global _logger
    if _logger is None:
        import logging

        _logger = logging.getLogger("onelock")
    return _logger


def refresh() -> None:
    """Tells the core from which level on its events are wanted. Called whenever a client or a lock is made."""
    # a program that has not imported logging has not configured it either: what Python then shows is warnings
    level = logger().getEffectiveLevel() if "logging" in sys.modules else _WARNING
    _onelock.set_log_level(min(max(level, 1), 255))


def deliver(lines: list[tuple[int, str]]) -> None:
    """Hands lines to the logger. Runs on a thread kept for this, never where locks are renewed."""
    log = logger()
    for level, text in lines:
        if log.isEnabledFor(level):
            log.log(level, "%s", text)
    refresh()


def callback_failed(what: str) -> None:
    """An exception in a callback is logged and harms nothing. Called while it is handled."""
    logger().exception("a callback for %s failed; renewal and other callbacks go on", what)

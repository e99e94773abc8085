"""Log lines of the core in `logging`, under the logger `onelock`.

`logging` is imported with the first line, not before.
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
    """Sets the level of the core's log lines. Called whenever a client or a lock is made."""
    # a program that has not imported logging has not configured it either: then Python shows warnings
    level = logger().getEffectiveLevel() if "logging" in sys.modules else _WARNING
    _onelock.set_log_level(min(max(level, 1), 255))


def deliver(lines: list[tuple[int, str]]) -> None:
    """Passes lines to the logger. Runs on a thread of its own, not on that of renewal."""
    log = logger()
    for level, text in lines:
        if log.isEnabledFor(level):
            log.log(level, "%s", text)
    refresh()


def callback_failed(what: str) -> None:
    """Logs an exception of a callback. Called while it is handled."""
    logger().exception("a callback for %s failed; renewal and other callbacks go on", what)

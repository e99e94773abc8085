"""The way of results into event loops: one pump for each loop."""

from __future__ import annotations

import asyncio
from math import inf
from weakref import WeakKeyDictionary, ref

from onelock._onelock import Granted, Pump, Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Iterable
    from typing import Any, TypeAlias

    from onelock._onelock import Connection
    from onelock._types import Seconds
    from onelock.alease import AsyncLease

    _Started: TypeAlias = tuple[int, tuple[list[Connection], bool] | None]

_ERROR, _EVENT = 1, 2
"""What is told, besides results (0)."""

# The loop owns the reader of its pump, and the reader the pump. When the loop is closed they go, and with them what was
# under way. So neither loop nor pump is held here.
_pumps: WeakKeyDictionary[AbstractEventLoop, ref[Pump]] = WeakKeyDictionary()
# The one that was asked for last, since most programs have one.
_last: tuple[ref[AbstractEventLoop], ref[Pump]] | None = None

_running_loop = asyncio.get_running_loop


def current() -> tuple[Pump, AbstractEventLoop]:
    """The pump of the running loop, and the loop."""
    loop = _running_loop()
    if (last := _last) is not None and last[0]() is loop and (pump := last[1]()) is not None:
        return pump, loop
    return _found(loop), loop


def last_loop() -> AbstractEventLoop | None:
    """The loop that was asked for last, if it goes on."""
    loop = None if _last is None else _last[0]()
    return None if loop is None or loop.is_closed() else loop


def _found(loop: AbstractEventLoop) -> Pump:
    global _last
    known = _pumps.get(loop)
    pump = None if known is None else known()
    if pump is None:
        pump = Pump()
        reader = Reader(pump)
        loop.add_reader(reader.fileno(), _drain, reader)
        known = _pumps[loop] = ref(pump)
    assert known is not None
    _last = ref(loop), known
    return pump


# What follows calls the loop, its futures and listeners, and is Python to its last frame: the loop may run in a daemon
# thread, and when the interpreter ends (before 3.14), a thread that is in Python is unwound, which must not meet native code.


def attend(pump: Pump, loop: AbstractEventLoop, chores: tuple[list[Connection], bool]) -> None:
    """Does what the loop is asked for when something was started."""
    connections, flush = chores
    if flush:
        loop.call_soon(_flush, pump)
    for connection in connections:
        loop.add_reader(connection.fileno(), _ready, connection)


def _drain(reader: Reader | Pump) -> None:
    tell(reader.drain())


def _flush(pump: Pump) -> None:
    tell(pump.flush())


def _ready(connection: Connection) -> None:
    goes_on, told = connection.ready()
    if not goes_on:
        _running_loop().remove_reader(connection.fileno())
    tell(told)


def tell(told: Iterable[tuple[Any, int, Any]]) -> None:
    """Hands results to futures and events to listeners."""
    each = iter(told)
    try:
        for target, what, value in each:
            if what == _EVENT:
                target(value)
            elif target.done():
                # cancelled meanwhile: dropping the result undoes it
                pass
            elif what == _ERROR:
                target.set_exception(value)
            else:
                target.set_result(_lease(value) if type(value) is Granted else value)
    except BaseException as error:
        # the others are told all the same
        loop = _running_loop()
        loop.call_soon(tell, each)
        if not isinstance(error, Exception):
            raise
        loop.call_exception_handler({"message": "onelock could not hand over a result", "exception": error})


def _lease(granted: Granted) -> AsyncLease:
    from onelock.alease import AsyncLease

    return AsyncLease(granted)


def begin(start: Callable[..., _Started], *args: object) -> tuple[Pump, int, Future[Any]]:
    """Starts something in the background: its pump and number, and the future that will have its result."""
    pump, loop = current()
    future: Future[Any] = loop.create_future()
    number, chores = start(pump, future, *args)
    if chores is not None:
        attend(pump, loop, chores)
    return pump, number, future


async def result(start: Callable[..., _Started], *args: object) -> Any:
    """Starts something and waits for it; cancelled or destroyed meanwhile, that ends too."""
    pump, number, future = begin(start, *args)
    try:
        return await future
    except BaseException:
        pump.abandon(number)
        del future
        raise


async def granted(start: Callable[..., _Started], *args: object) -> Any:
    """The same for a lease: one that came and was not delivered is given back."""
    pump, number, future = begin(start, *args)
    try:
        return await future
    except BaseException:
        pump.abandon(number)
        give_back(future)
        # the error's traceback has this frame, and the future has the error
        del future
        raise


def give_back(future: Future[Any]) -> None:
    """Nobody will have this result any more: a lease in it is given back."""
    if future.done() and not future.cancelled() and future.exception() is None:
        lease = future.result()
        if lease is not None:
            lease._release_later()


def plain(seconds: Seconds | None) -> Seconds | None:
    """A duration as a number that native code can read without running Python, see above; nonsense stays as it is."""
    if seconds is None or isinstance(seconds, (float, int, str, bytes)):
        return seconds
    number: Any = seconds
    try:
        return float(number.total_seconds() if hasattr(number, "total_seconds") else number)
    except OverflowError:
        return inf
    except (TypeError, ValueError):
        return seconds

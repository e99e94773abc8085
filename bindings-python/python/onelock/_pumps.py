"""Delivers results to event loops: one pump for each loop."""

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
"""The kinds of deliveries, besides results (0)."""

# The loop owns the reader of its pump, and the reader the pump. When the loop is closed both are dropped, which ends the
# calls in progress. So neither loop nor pump is referenced here.
_pumps: WeakKeyDictionary[AbstractEventLoop, ref[Pump]] = WeakKeyDictionary()
# A cache of the last one, since most programs have one loop.
_last: tuple[ref[AbstractEventLoop], ref[Pump]] | None = None

_running_loop = asyncio.get_running_loop


def current() -> tuple[Pump, AbstractEventLoop]:
    """The pump of the running loop, and the loop."""
    loop = _running_loop()
    if (last := _last) is not None and last[0]() is loop and (pump := last[1]()) is not None:
        return pump, loop
    return _found(loop), loop


def last_loop() -> AbstractEventLoop | None:
    """The loop that was used last, if it is open."""
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


# The functions below call the loop, its futures and listeners, without native frames above them: the loop may run in a
# daemon thread, and when the interpreter ends (before 3.14), a thread in Python code is unwound, which native frames do not
# survive.


def register(pump: Pump, loop: AbstractEventLoop, actions: tuple[list[Connection], bool]) -> None:
    """Registers new connections with the loop, and schedules a flush."""
    connections, flush = actions
    if flush:
        loop.call_soon(_flush, pump)
    for connection in connections:
        loop.add_reader(connection.fileno(), _ready, connection)


def _drain(reader: Reader | Pump) -> None:
    deliver(reader.drain())


def _flush(pump: Pump) -> None:
    deliver(pump.flush())


def _ready(connection: Connection) -> None:
    keep_watching, deliveries = connection.ready()
    if not keep_watching:
        _running_loop().remove_reader(connection.fileno())
    deliver(deliveries)


def deliver(deliveries: Iterable[tuple[Any, int, Any]]) -> None:
    """Delivers results to futures and events to listeners."""
    each = iter(deliveries)
    try:
        for target, what, value in each:
            if what == _EVENT:
                target(value)
            elif target.done():
                # cancelled meanwhile: dropping the result releases a lease in it
                pass
            elif what == _ERROR:
                target.set_exception(value)
            else:
                target.set_result(_lease(value) if type(value) is Granted else value)
    except BaseException as error:
        # the others are delivered all the same
        loop = _running_loop()
        loop.call_soon(deliver, each)
        if not isinstance(error, Exception):
            raise
        loop.call_exception_handler({"message": "onelock could not hand over a result", "exception": error})


def _lease(granted: Granted) -> AsyncLease:
    from onelock.alease import AsyncLease

    return AsyncLease(granted)


def begin(start: Callable[..., _Started], *args: object) -> tuple[Pump, int, Future[Any]]:
    """Starts a call in the background. Returns its pump, its number, and the future of its result."""
    pump, loop = current()
    future: Future[Any] = loop.create_future()
    number, actions = start(pump, future, *args)
    if actions is not None:
        register(pump, loop, actions)
    return pump, number, future


async def result(start: Callable[..., _Started], *args: object) -> Any:
    """Starts a call and awaits it; when the task is cancelled or destroyed meanwhile, the call ends too."""
    pump, number, future = begin(start, *args)
    try:
        return await future
    except BaseException:
        pump.abandon(number)
        del future
        raise


async def granted(start: Callable[..., _Started], *args: object) -> Any:
    """The same for a call that returns a lease: a lease that is not delivered is released."""
    pump, number, future = begin(start, *args)
    try:
        return await future
    except BaseException:
        pump.abandon(number)
        release_result(future)
        # breaks a cycle: the traceback has this frame, and the future has the error
        del future
        raise


def release_result(future: Future[Any]) -> None:
    """Releases the lease in a result that is not delivered."""
    if future.done() and not future.cancelled() and future.exception() is None:
        lease = future.result()
        if lease is not None:
            lease._release_later()


def plain(seconds: Seconds | None) -> Seconds | None:
    """A duration as a number that native code can read without running Python, see above; other values are unchanged."""
    if seconds is None or isinstance(seconds, (float, int, str, bytes)):
        return seconds
    number: Any = seconds
    try:
        return float(number.total_seconds() if hasattr(number, "total_seconds") else number)
    except OverflowError:
        return inf
    except (TypeError, ValueError):
        return seconds

"""The way of results into event loops: one pump for each loop."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary, ref

from onelock._onelock import Pump, Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from typing import Any

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


def _found(loop: AbstractEventLoop) -> Pump:
    global _last
    known = _pumps.get(loop)
    pump = None if known is None else known()
    if pump is None:
        pump = Pump()
        reader = Reader(pump)
        loop.add_reader(reader.fileno(), reader.drain)
        known = _pumps[loop] = ref(pump)
    assert known is not None
    _last = ref(loop), known
    return pump


async def result(pump: Pump, started: tuple[int, Future[Any]]) -> Any:
    """Waits for what was started; cancelled or destroyed meanwhile, that ends too."""
    number, future = started
    try:
        return await future
    except BaseException:
        pump.abandon(number)
        del future, started
        raise


async def granted(pump: Pump, started: tuple[int, Future[Any]]) -> Any:
    """The same for a lease: one that came and was not delivered is given back."""
    number, future = started
    try:
        return await future
    except BaseException:
        pump.abandon(number)
        give_back(future)
        # the error's traceback has this frame, and the future has the error
        del future, started
        raise


def give_back(future: Future[Any]) -> None:
    """Nobody will have this result any more: a lease in it is given back."""
    if future.done() and not future.cancelled() and future.exception() is None:
        lease = future.result()
        if lease is not None:
            lease._release_later()

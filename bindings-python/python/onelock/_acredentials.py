"""Credentials of new connections of an `AsyncClient`."""

from __future__ import annotations

import asyncio
import contextlib
from weakref import ref

from onelock import _pumps
from onelock._credentials import COROUTINE, Provider, function_flags, read, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Awaitable, Callable
    from typing import Any

    from onelock._onelock import CredentialsRequest


class AsyncProvider(Provider):
    """The same for an `AsyncClient`. A coroutine is awaited in the loop that used the client last, or, when that has ended,
    in a loop of its own.
    """

    __slots__ = ("_is_coroutine", "_loop")

    def __init__(self, provider: Callable[[], Any]) -> None:
        super().__init__(provider)
        self._is_coroutine = bool(function_flags(provider) & COROUTINE)
        self._loop: ref[AbstractEventLoop] | None = None

    def __call__(self, request: CredentialsRequest) -> None:
        if self._is_coroutine:
            # created where it is awaited, so that it is not left over when the loop ends
            self._later(None, request)
        else:
            super().__call__(request)

    def here(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop = ref(asyncio.get_running_loop())

    def _check_loops(self) -> None:
        pass

    def _later(self, found: Awaitable[Any] | None, request: CredentialsRequest) -> None:
        loop = None if self._loop is None else self._loop()
        if loop is None or loop.is_closed():
            loop = _pumps.last_loop()
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._begin, loop, found, request)
                return
            except RuntimeError:
                # it has just been closed
                pass
        asyncio.run(self._answer(found, request))

    def _begin(self, loop: AbstractEventLoop, found: Awaitable[Any] | None, request: CredentialsRequest) -> None:
        task = loop.create_task(self._answer(found, request))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def _answer(self, found: Awaitable[Any] | None, request: CredentialsRequest) -> None:
        try:
            awaited = self._provider() if found is None else found
            username, password = read(await asyncio.wait_for(awaited, request.time_left()))
        except BaseException as error:
            request.fail(reason(error))
            if not isinstance(error, Exception):
                raise
        else:
            request.answer(username, password)


# a loop references its tasks weakly
_tasks: set[Task[None]] = set()

"""The client for asyncio: where the locks are kept."""

from __future__ import annotations

from functools import wraps

from onelock import _clients, _logging, _pumps
from onelock._acredentials import AsyncAsking
from onelock._credentials import COROUTINE, function_flags
from onelock.alock import AsyncLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Any, ParamSpec, TypeVar

    from typing_extensions import Unpack

    from onelock._onelock import Facts, Inspection, Owner, Stats
    from onelock._types import AsyncClientOptions, AsyncOnJeopardy, AsyncOnLost, LockOptions, Name, Seconds, Url

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = ["AsyncClient"]


class AsyncClient:
    """A client of one lock server, for asyncio: the way to locks. One for the whole program is enough.

    Making it opens no socket, starts no thread and needs no loop yet; it connects when it is first used.
    `await AsyncClient.connect(...)` also looks whether the server is there. Connections and renewal do not run on the event
    loop, so a loop that is busy loses no lease, and one client may serve several loops. `async with client:`, or
    `await client.close()`, gives back what is still held; so does the end of the program.

    Address and options are those of `Client`; the function `credentials` may be `async`: then it is awaited in the event loop
    that used the client last, which must not be blocked for long while a connection is made.
    """

    __slots__ = ("__weakref__", "_asking", "_native")

    def __init__(self, url: Url | None = None, **options: Unpack[AsyncClientOptions]) -> None:
        provider = options.get("credentials")
        self._asking = None if provider is None else AsyncAsking(provider)
        self._native = _clients.make(url, options, self._asking)
        self._here()

    def _here(self) -> None:
        """What the credentials are awaited in, if they are."""
        if self._asking is not None:
            self._asking.here()

    @classmethod
    async def connect(cls, url: Url | None = None, **options: Unpack[AsyncClientOptions]) -> AsyncClient:
        """A client that is connected and checked; see `Client.connect`."""
        client = cls(url, **options)
        await client.check()
        return client

    def lock(
        self,
        name: Name,
        *,
        timeout: Seconds | None = None,
        owner: Owner | None = None,
        on_lost: AsyncOnLost | None = None,
        on_jeopardy: AsyncOnJeopardy | None = None,
        cancel_on_loss: bool = True,
        **options: Unpack[LockOptions],
    ) -> AsyncLock:
        """The lock of this name: one holder at a time, among everybody who uses the same server, prefix and name.

        No I/O. See `Client.lock`; `cancel_on_loss` is whether the body of an `async with` is cancelled when the lease is
        lost.
        """
        _logging.refresh()
        self._here()
        native = self._native.lock(True, "lock", name, **options)
        return AsyncLock(native, timeout, owner, on_lost, on_jeopardy, cancel_on_loss)

    def reentrant_lock(
        self,
        name: Name,
        *,
        timeout: Seconds | None = None,
        owner: Owner | None = None,
        on_lost: AsyncOnLost | None = None,
        on_jeopardy: AsyncOnJeopardy | None = None,
        cancel_on_loss: bool = True,
        **options: Unpack[LockOptions],
    ) -> AsyncLock:
        """The reentrant lock of this name: its holder may enter again. No I/O.

        The holder is the `owner` that is passed, or that of the `owner_scope` around; else the task (not the tasks that it
        starts). See `Client.reentrant_lock`.
        """
        _logging.refresh()
        self._here()
        native = self._native.lock(True, "reentrant_lock", name, **options)
        return AsyncLock(native, timeout, owner, on_lost, on_jeopardy, cancel_on_loss)

    def locked(
        self,
        name: Name | Callable[..., Name],
        *,
        reentrant: bool = False,
        timeout: Seconds | None = None,
        owner: Owner | None = None,
        on_lost: AsyncOnLost | None = None,
        on_jeopardy: AsyncOnJeopardy | None = None,
        cancel_on_loss: bool = True,
        **options: Unpack[LockOptions],
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """A decorator for `async def`: the function runs while the lock is held; see `Client.locked`."""

        def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            if not function_flags(function) & COROUTINE:
                raise TypeError(f"{function!r} is no `async def`: decorate it with the `locked` of a Client")

            @wraps(function)
            async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
                make = self.reentrant_lock if reentrant else self.lock
                full = name if isinstance(name, (str, bytes)) else name(*args, **kwargs)
                async with make(
                    full,
                    timeout=timeout,
                    owner=owner,
                    on_lost=on_lost,
                    on_jeopardy=on_jeopardy,
                    cancel_on_loss=cancel_on_loss,
                    **options,
                ):
                    return await function(*args, **kwargs)

            return locked

        return decorate

    async def inspect(self, name: Name) -> Inspection | None:
        """Who holds the lock of this name, whatever its kind; see `Client.inspect`."""
        found: Inspection | None = await _pumps.result(self._native.start_inspect, name)
        return found

    async def force_release(self, name: Name, *, foreign: bool = False) -> bool:
        """Takes the lock of this name away from whoever holds it; see `Client.force_release`.

        Cancelled, it may or may not have been taken away.
        """
        found: bool = await _pumps.result(self._native.start_force_release, name, foreign)
        return found

    async def check(self) -> Facts:
        """Looks at the server: its version, its fencing grade, and what breaks locks on it."""
        _logging.refresh()
        self._here()
        facts: Facts = await _pumps.result(self._native.start_check)
        return facts

    def stats(self) -> Stats:
        """What this client has done so far: counters, and histograms of waiting and holding. No I/O."""
        return self._native.stats()

    async def close(self) -> None:
        """Gives back what is held, waits for clean-up (at most `close_timeout`), and ends background work.

        Waiting acquires end with `ClientClosed`, and so does every later call but `release`. Calling it again is fine.
        """
        await _pumps.result(self._native.start_close)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient: {self.stats().held} held>"

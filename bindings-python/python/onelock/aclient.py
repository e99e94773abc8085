"""The client for asyncio."""

from __future__ import annotations

from functools import wraps

from onelock import _clients, _logging, _pumps
from onelock._acredentials import AsyncProvider
from onelock._credentials import COROUTINE, function_flags
from onelock.alock import AsyncLock
from onelock.amulti_lock import AsyncMultiLock
from onelock.arw_lock import AsyncRwLock
from onelock.asemaphore import AsyncSemaphore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from types import TracebackType
    from typing import Any, ParamSpec, TypeVar

    from typing_extensions import Unpack

    from onelock import _onelock
    from onelock._onelock import Diagnosis, Facts, Inspection, LockEntry, LockPage, Owner, Stats
    from onelock._types import AsyncClientOptions, AsyncOnJeopardy, AsyncOnLost, LockOptions, Name, Seconds, Url

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = ["AsyncClient"]


class AsyncClient:
    """A client of a lock store, for asyncio. One for the whole program is enough.

    Making it opens no socket, starts no thread and needs no loop yet; it connects when it is first used. `await
    AsyncClient.connect(...)` also checks that the server answers. Connections and renewal do not run on the event loop, so
    a busy loop loses no lease, and one client may serve several loops. `async with client:`, or `await client.close()`,
    releases what is still held; so does the end of the program.

    Address and options are those of `Client`; the function `credentials` may be `async`: then it is awaited in the event
    loop that used the client last, which must not block for long while a connection is made.
    """

    __slots__ = ("__weakref__", "_native", "_provider")

    def __init__(self, url: Url | None = None, **options: Unpack[AsyncClientOptions]) -> None:
        provider = options.get("credentials")
        self._provider = None if provider is None else AsyncProvider(provider)
        self._native = _clients.make(url, options, self._provider)
        self._here()

    def _here(self) -> None:
        """What the credentials are awaited in, if they are."""
        if self._provider is not None:
            self._provider.here()

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
        """The lock of this name: one holder at a time, among all clients with the same server, prefix and name.

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
        """The reentrant lock of this name: its owner may acquire it again. No I/O.

        The owner is the argument `owner`, or that of the enclosing `owner_scope`; otherwise the task (not the tasks that it
        starts). See `Client.reentrant_lock`.
        """
        _logging.refresh()
        self._here()
        native = self._native.lock(True, "reentrant_lock", name, **options)
        return AsyncLock(native, timeout, owner, on_lost, on_jeopardy, cancel_on_loss)

    def fair_lock(
        self,
        name: Name,
        *,
        timeout: Seconds | None = None,
        on_lost: AsyncOnLost | None = None,
        on_jeopardy: AsyncOnJeopardy | None = None,
        cancel_on_loss: bool = True,
        **options: Unpack[LockOptions],
    ) -> AsyncLock:
        """The fair lock of this name: first come, first served among the processes that wait. No I/O.

        Whoever releases it makes the first in the queue the holder. See `Client.fair_lock`.
        """
        _logging.refresh()
        self._here()
        native = self._native.lock(True, "fair_lock", name, **options)
        return AsyncLock(native, timeout, None, on_lost, on_jeopardy, cancel_on_loss)

    def multi_lock(
        self,
        *names: Name,
        timeout: Seconds | None = None,
        on_lost: AsyncOnLost | None = None,
        on_jeopardy: AsyncOnJeopardy | None = None,
        cancel_on_loss: bool = True,
        **options: Unpack[LockOptions],
    ) -> AsyncMultiLock:
        """The locks of these names, held all together or not at all; see `Client.multi_lock`. No I/O."""
        locks = [self.lock(name, **options) for name in names]
        return AsyncMultiLock(
            *locks, timeout=timeout, on_lost=on_lost, on_jeopardy=on_jeopardy, cancel_on_loss=cancel_on_loss
        )

    def rw_lock(
        self,
        name: Name,
        *,
        timeout: Seconds | None = None,
        owner: Owner | None = None,
        on_lost: AsyncOnLost | None = None,
        on_jeopardy: AsyncOnJeopardy | None = None,
        cancel_on_loss: bool = True,
        **options: Unpack[LockOptions],
    ) -> AsyncRwLock:
        """The read/write lock of this name: many readers at a time, or one writer; see `Client.rw_lock`. No I/O.

        The default owner is the task, as in `reentrant_lock`; `cancel_on_loss` as in `lock`.
        """
        _logging.refresh()
        self._here()

        def make(kind: str) -> _onelock.Lock:
            return self._native.lock(True, kind, name, **options)

        return AsyncRwLock(make, timeout, owner, on_lost, on_jeopardy, cancel_on_loss)

    def semaphore(
        self,
        name: Name,
        permits: int | None = None,
        *,
        timeout: Seconds | None = None,
        on_lost: AsyncOnLost | None = None,
        on_jeopardy: AsyncOnJeopardy | None = None,
        cancel_on_loss: bool = True,
        **options: Unpack[LockOptions],
    ) -> AsyncSemaphore:
        """The semaphore of this name: at most `permits` holders at a time, in all programs together. No I/O.

        See `Client.semaphore`; `cancel_on_loss` as in `lock`.
        """
        _logging.refresh()
        self._here()
        native = self._native.lock(True, "semaphore", name, permits=permits, **options)
        return AsyncSemaphore(native, timeout, None, on_lost, on_jeopardy, cancel_on_loss)

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
        """The state of the lock of this name; see `Client.inspect`."""
        found: Inspection | None = await _pumps.result(self._native.start_inspect, name)
        return found

    async def list(self, pattern: Name = "*", *, limit: int = 100, cursor: str | None = None) -> LockPage:
        """The locks whose names match `pattern`, about `limit` of them at a time; see `Client.list`."""
        page: LockPage = await _pumps.result(self._native.start_list, pattern, limit, cursor)
        return page

    async def listing(self, pattern: Name = "*") -> AsyncIterator[LockEntry]:
        """All locks whose names match `pattern`, one after the other: the pages of `list`. For `async for`."""
        page = await self.list(pattern)
        for entry in page.entries:
            yield entry
        while page.next is not None:
            page = await self.list(pattern, cursor=page.next)
            for entry in page.entries:
                yield entry

    async def force_release(self, name: Name, *, foreign: bool = False) -> bool:
        """Releases the lock of this name without its holder; see `Client.force_release`.

        If it is cancelled, the lock may or may not have been released.
        """
        found: bool = await _pumps.result(self._native.start_force_release, name, foreign)
        return found

    async def check(self) -> Facts:
        """Queries the server: version, fencing grade, and settings that can break locks."""
        _logging.refresh()
        self._here()
        facts: Facts = await _pumps.result(self._native.start_check)
        return facts

    async def diagnose(self, name: Name = "") -> Diagnosis:
        """Looks at the servers step by step, and tells which step fails and what to do; see `Client.diagnose`."""
        _logging.refresh()
        self._here()
        found: Diagnosis = await _pumps.result(self._native.start_diagnose, name)
        return found

    def stats(self) -> Stats:
        """Counters of this client, and histograms of waiting and holding. No I/O."""
        return self._native.stats()

    async def close(self) -> None:
        """Releases what is held, waits for clean-up (at most `close_timeout`), and ends background work.

        Waiting acquires end with `ClientClosed`, and so does every later call but `release`. It may be called again.
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

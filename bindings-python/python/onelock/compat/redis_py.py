"""redis-py's `Lock`, on this library: change the import, and nothing else.

    from onelock.compat.redis_py import Lock          # was: from redis.lock import Lock
    from onelock.compat.redis_py import AsyncLock     # was: from redis.asyncio.lock import Lock

    with Lock(redis.Redis(), "orders:42", timeout=10):
        ...

`redis.Redis().lock("orders:42", timeout=10, lock_class=Lock)` does as well. Names, arguments, defaults, results and
exceptions (`redis.exceptions.LockError`, `LockNotOwnedError`, `ConnectionError` ...) are redis-py's, and so is what
`timeout` means: the length of the lease. Waiters are woken instead of polling, and `lock.lease.fencing_token` is there.

What is different, on purpose (`tests/test_compat_redis_py.py` runs every case with both):

- `timeout=None`, the default: a lease of 30 s that is renewed until it is released. The end of the lock object or of
  the program releases it. In redis-py, a key without a time to live: a crash blocks the name for ever. With a time-out, both
  keep the lock until then, whatever becomes of object and program.
- A `with` body that raises: its exception goes through, also when the release fails, which replaces it in redis-py.
- `sleep` is accepted and not needed: a release wakes the waiter at once. `blocking_timeout` is waited for to its end;
  redis-py gives up one `sleep` early.
- `acquire(token=...)` is refused: a token that is chosen is not unique, so a late copy of a request could end another
  hold. `local.token` can be read, not set. To hand a hold over, see `onelock.Lease.detach`.
- `extend(n, replace_ttl=True)` with less than is left leaves it longer: nothing ever shortens a lease.
- A thread that holds nothing gets `LockError` from `release()`; `AttributeError` in redis-py.
- Tasks that share an `AsyncLock`, and threads that share a `Lock(thread_local=False)`, each release what they acquired
  themselves: a late `release()` of one is `LockNotOwnedError`. In redis-py it ends the hold of the other. A task or thread
  that has not acquired releases for whoever has, if that is one.
- A client, pool or connection class that is not redis-py's own (`fakeredis`, a subclass) is a `TypeError`: it may go elsewhere
  than its settings say.
- A forked child holds nothing (`LockNotOwnedError`); in redis-py it shares the parent's hold.
- A key of another type under the name is a `ResponseError` for `acquire`; in redis-py it looks held.
- A `timeout` below 0.01 s is a `ValueError`.
- `await lock.release()`, cancelled, goes on in the background; in redis-py the lock may still be held.
- `LockError.lock_name` is always there; redis-py's asyncio forgets it where a scope is not entered.
- A companion key `onelock_fence:{name}` keeps the fencing token of the name for a week.

The server is the one that the `redis.Redis` object has: also the master that one of `Sentinel.master_for` finds, which is
followed at a failover, or the cluster of a `RedisCluster`. Its `credential_provider` is asked for each new connection:
`get_credentials` on a thread of its own, or `get_credentials_async` on the loop of an `AsyncLock`, where the provider has that.
Settings that have no counterpart here (`address_remap`, `min_other_sentinels`, `ssl_ca_data`, `ssl_check_hostname=False`,
`redis_connect_func`, a `credential_provider` for Sentinels ...) are refused with `TypeError`, and so is a client of
`Sentinel.slave_for`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import LockError, LockNotOwnedError

from onelock.client import Client
from onelock.compat._redis_holds import Hold, Holds, of_tasks, of_threads
from onelock.compat._redis_settings import settings, translated
from onelock.errors import NotAcquired, OnelockError
from onelock.outcomes import Release

if TYPE_CHECKING:
    from types import TracebackType

    from onelock import AsyncClient, AsyncLease, Inspection, Lease

__all__ = ["AsyncLock", "Lock"]

_logger = logging.getLogger(__name__)
_clients_of: WeakKeyDictionary[Any, Client] = WeakKeyDictionary()
_async_clients_of: WeakKeyDictionary[Any, AsyncClient] = WeakKeyDictionary()


def _server(redis: Any) -> Any:
    """What stands for the server: its pool of connections, which clients may share; a client of a cluster has many."""
    server = redis if hasattr(redis, "nodes_manager") else getattr(redis, "connection_pool", None)
    if server is None:
        raise TypeError(f"this lock needs a redis.Redis object with a connection pool, not {type(redis).__name__}")
    return server


def _client(redis: Any) -> Client:
    server = _server(redis)
    client = _clients_of.get(server)
    if client is None:
        url, options = settings(redis)
        # making one does nothing yet, so it is no harm when two threads do
        client = _clients_of.setdefault(server, Client(url, **options))
    return client


def _async_client(redis: Any) -> AsyncClient:
    from onelock.aclient import AsyncClient

    server = _server(redis)
    client = _async_clients_of.get(server)
    if client is None:
        url, options = settings(redis)
        client = _async_clients_of.setdefault(server, AsyncClient(url, **options))
    return client


class _Base:
    _make_client: staticmethod[[Any], Any]
    _make_holds: staticmethod[[bool], Holds]

    def __init__(
        self,
        redis: Any,
        name: str | bytes | memoryview,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.redis = redis
        self.name: Any = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local = self._make_holds(self.thread_local)
        # a redis object of a kind that is not understood is refused here
        self._client = self._make_client(redis)
        self._key = bytes(redis.get_encoder().encode(name))
        # 0 means none, as in redis-py
        self._options: dict[str, Any] = {"ttl": timeout, "auto_renew": False} if timeout else {}

    def _wait(self, blocking: bool | None, blocking_timeout: float | None, token: object) -> float | None:
        if token is not None:
            raise TypeError(
                "token= is not supported: every hold has a token of its own; to hand a hold to another process use "
                "onelock.Client, Lease.detach and Lock.attach"
            )
        if not (self.blocking if blocking is None else blocking):
            return 0
        limit = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        return None if limit is None else max(limit, 0)

    def _got(self, lease: Any) -> Literal[True]:
        self.local.acquired(Hold(lease, bool(self.timeout)))
        return True

    def _held(self, what: str) -> Hold:
        hold = self.local.hold
        if hold is None:
            raise LockError(f"{what}: this lock is not held here; acquire it first", lock_name=self.name)
        return hold

    def _timed(self, what: str) -> tuple[Hold, float]:
        hold = self._held(what)
        if self.timeout is None:
            raise LockError(f"{what}: this lock has no timeout, so it is renewed by itself", lock_name=self.name)
        return hold, self.timeout

    def _is_mine(self, found: Inspection | None, hold: Hold | None) -> bool:
        if found is None or hold is None or found.fencing_token is None:
            return False
        return bool(hold.lease.held and found.fencing_token == hold.lease.fencing_token)

    def _longer(self, found: Inspection | None, hold: Hold, additional_time: float) -> float:
        if found is None or found.ttl_left is None or not self._is_mine(found, hold):
            raise self._not_owned("extend")
        return found.ttl_left + additional_time

    def _not_owned(self, what: str) -> LockNotOwnedError:
        return LockNotOwnedError(f"{what}: the lock is no longer owned by this holder", lock_name=self.name)

    def _judge(self, release: Release) -> None:
        if release is Release.UNCONFIRMED:
            raise RedisConnectionError(
                f"no server confirmed the release of {self.name!r}; it goes on in the background"
            )
        if release is not Release.RELEASED:
            raise self._not_owned("release")

    def _not_acquired(self) -> LockError:
        return LockError(f"{self.name!r} was not acquired within the time given", lock_name=self.name)

    def _leaving(self, error: LockError, body: BaseException | None) -> None:
        """A release at the end of a scope has failed."""
        if body is None and self.raise_on_release_error:
            raise error
        if body is None:
            _logger.warning("%s was no longer owned at the end of its scope", self.name)
        elif body.__cause__ is None:
            body.__cause__ = error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {'held here' if self.local.hold else 'not held here'}>"


class Lock(_Base):
    """redis-py's `redis.lock.Lock`; see the module for what is different."""

    _make_client = staticmethod(_client)
    _make_holds = staticmethod(of_threads)

    @property
    def lease(self) -> Lease | None:
        """The lease behind it, with `fencing_token`, `held`, `remaining` and `lost_event`; `None` when nothing is held."""
        hold = self.local.hold
        return None if hold is None else hold.lease

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """True once the lock is held; False when it is not had at once (`blocking=False`) or within `blocking_timeout`."""
        wait = self._wait(blocking, blocking_timeout, token)
        lock = self._client.lock(self._key, **self._options)
        try:
            return self._got(lock.acquire(wait))
        except NotAcquired:
            return False
        except OnelockError as error:
            raise translated(error, self.name) from error

    def locked(self) -> bool:
        """Whether anybody holds it."""
        return self._look() is not None

    def owned(self) -> bool:
        """Whether this lock object holds it, as the server sees it."""
        return self._is_mine(self._look(), self.local.hold)

    def release(self) -> None:
        """Releases the lock. Raises `LockError` when nothing is held, `LockNotOwnedError` when it was lost meanwhile."""
        hold = self._held("release")
        self.local.ended()
        try:
            outcome = hold.lease.release()
        except OnelockError as error:
            raise translated(error, self.name) from error
        self._judge(outcome)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Adds seconds to what is left of the lease; with `replace_ttl`, makes it last that long from now."""
        hold, _ = self._timed("extend")
        ttl = additional_time if replace_ttl else self._longer(self._look(), hold, additional_time)
        return self._extend(hold, ttl)

    def reacquire(self) -> Literal[True]:
        """Makes the lease last its whole `timeout` from now."""
        return self._extend(*self._timed("reacquire"))

    def _extend(self, hold: Hold, ttl: float) -> Literal[True]:
        try:
            hold.lease.extend(ttl)
        except OnelockError as error:
            raise translated(error, self.name) from error
        return True

    def _look(self) -> Inspection | None:
        try:
            found: Inspection | None = self._client.inspect(self._key)
        except OnelockError as error:
            raise translated(error, self.name) from error
        return found

    def __enter__(self) -> Lock:
        if not self.acquire():
            raise self._not_acquired()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.release()
        except LockError as failed:
            self._leaving(failed, error)
        except RedisConnectionError:
            if error is None:
                raise


class AsyncLock(_Base):
    """redis-py's `redis.asyncio.lock.Lock`; see the module for what is different."""

    _make_client = staticmethod(_async_client)
    _make_holds = staticmethod(of_tasks)

    @property
    def lease(self) -> AsyncLease | None:
        """The lease behind it, with `fencing_token`, `held`, `remaining` and `lost()`; `None` when nothing is held."""
        hold = self.local.hold
        return None if hold is None else hold.lease

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """True once the lock is held; False when it is not had at once (`blocking=False`) or within `blocking_timeout`."""
        wait = self._wait(blocking, blocking_timeout, token)
        lock = self._client.lock(self._key, **self._options)
        try:
            return self._got(await lock.acquire(wait))
        except NotAcquired:
            return False
        except OnelockError as error:
            raise translated(error, self.name) from error

    async def locked(self) -> bool:
        """Whether anybody holds it."""
        return await self._look() is not None

    async def owned(self) -> bool:
        """Whether this lock object holds it, as the server sees it."""
        return self._is_mine(await self._look(), self.local.hold)

    async def release(self) -> None:
        """Releases the lock. Raises `LockError` when nothing is held, `LockNotOwnedError` when it was lost meanwhile."""
        hold = self._held("release")
        self.local.ended()
        try:
            outcome = await hold.lease.release()
        except OnelockError as error:
            raise translated(error, self.name) from error
        self._judge(outcome)

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Adds seconds to what is left of the lease; with `replace_ttl`, makes it last that long from now."""
        hold, _ = self._timed("extend")
        ttl = additional_time if replace_ttl else self._longer(await self._look(), hold, additional_time)
        return await self._extend(hold, ttl)

    async def reacquire(self) -> Literal[True]:
        """Makes the lease last its whole `timeout` from now."""
        return await self._extend(*self._timed("reacquire"))

    async def _extend(self, hold: Hold, ttl: float) -> Literal[True]:
        try:
            await hold.lease.extend(ttl)
        except OnelockError as error:
            raise translated(error, self.name) from error
        return True

    async def _look(self) -> Inspection | None:
        try:
            found: Inspection | None = await self._client.inspect(self._key)
        except OnelockError as error:
            raise translated(error, self.name) from error
        return found

    async def __aenter__(self) -> AsyncLock:
        if not await self.acquire():
            raise self._not_acquired()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LockError as failed:
            self._leaving(failed, error)
        except RedisConnectionError:
            if error is None:
                raise

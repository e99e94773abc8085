"""The client for threads."""

from __future__ import annotations

from functools import wraps

from onelock import _clients, _logging
from onelock._credentials import COROUTINE, Provider, function_flags
from onelock.lock import Lock
from onelock.multi_lock import MultiLock
from onelock.rw_lock import RwLock
from onelock.semaphore import Semaphore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import ParamSpec, TypeVar

    from typing_extensions import Unpack

    from onelock._onelock import Diagnosis, Facts, Inspection, LockEntry, LockPage, Owner, Stats
    from onelock._types import ClientOptions, LockOptions, Name, OnJeopardy, OnLost, Seconds, Url

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = ["Client"]

GENERATOR, ASYNC_GENERATOR = 0x20, 0x200


class Client:
    """A client of a lock store, for threads. One for the whole program is enough.

    Making it opens no socket and starts no thread; it connects when it is first used, in a forked child anew.
    `Client.connect` also checks that the server answers. Any number of threads may share one. `with client:`, or `close()`,
    releases what is still held; so does the end of the program.

    `url` is the address of the store; without it, that in the environment variable `ONELOCK_URL`:

    | address | what |
    |---|---|
    | `redis://[user[:password]@]host[:port][/db]` | one Redis or Valkey server; `valkey://` means the same |
    | `rediss://...`, `valkeys://...` | the same over TLS |
    | `unix:///path/to/socket` | one server through a socket in the file system; `?db=1` chooses the database |
    | `redis+sentinel://s1:26379,s2:26379/GROUP[/db]` | the master of a group, found through any of its Sentinels |
    | `redis+cluster://h1:6379,h2:6379` | a Redis or Valkey cluster; one node is enough, it tells the others |
    | `redlock://h1:6379,h2:6379,h3:6379[/db]` | Redlock: several independent servers, of which a majority holds the lock |
    | `file:///dir` | one machine without a server: a directory, in which each lock is a file that the kernel locks |
    | `postgres://user[:password]@host[:port][/database]` | PostgreSQL 12 or newer: each lock is a row of a table |
    | `memcached://[user:password@]host[:port]` | memcached 1.6.12 or newer, best effort only: each lock is an item |
    | `etcd://[user:password@]h1:2379,h2:2379[/NAMESPACE]` | etcd 3.4 or newer: each lock is a queue of keys |
    | `memory://` | inside the client, for unit tests; `memory://NAME` is shared within the process |
    | (empty) | the address in `$ONELOCK_URL` |

    A list of addresses is Redlock over these servers: of Redis, and databases (`postgres://`), also side by side.

    Options, all by keyword; durations are seconds or `timedelta`:

    | option | default | meaning |
    |---|---|---|
    | `ttl` | 30 | length of a lease: how long others wait after a crash of the holder (10 ms to one year) |
    | `auto_renew` | True | whether leases are renewed in the background, every third of the ttl, until they are released |
    | `min_hold` | 0 | how long a lock stays taken at least, even if it is released earlier (at most the ttl) |
    | `max_hold` | no limit | the longest time a lease may be held; then renewal stops and the lease is lost (at least 1 ms) |
    | `lock_delay` | 0 | how much longer than the lease the key lives: others wait that much longer after a crash |
    | `min_validity` | 0 | how much of a lease must be left when its grant arrives (less than the ttl) |
    | `fencing` | True | whether each grant draws a fencing token |
    | `drift_factor` | 0.01 | the share of the ttl by which the clocks of server and holder may run apart (0 to 0.5) |
    | `prefix` | none | put before every name, once (at most 512 bytes) |
    | `min_fencing_grade` | None | the weakest grade of fencing tokens: `None`, `BestEffort`, `ClockBounded` or `Strict` |
    | `label` | none | names this client in `CLIENT LIST` and in inspection (at most 128 bytes, no control characters) |
    | `inspectable` | False | whether a hold stores label, process, host and time for inspection |
    | `accepted_warnings` | none | names of warnings about the server that are not logged, such as `persistence replicas` |
    | `connect_timeout` | 2 | time limit of making a connection, name resolution and TLS included (at least 1 ms) |
    | `request_timeout` | 1 | time limit of one request (at least 1 ms) |
    | `close_timeout` | 1 | time limit of closing the client (at least 1 ms) |
    | `unreachable_limit` | 30 | how long an acquire without a time limit retries an unreachable server (at least 1 ms) |
    | `credentials` | what the address says | a function that gives user name and password of each new connection |
    | `ca_file` | the system's | file with the certificates of the trusted authorities, PEM, for TLS |
    | `cert_file`, `key_file` | none | files with this client's certificate and private key, PEM |
    | `tls_insecure` | False | whether any certificate is accepted; for experiments only |
    | `notify` | auto | how a cluster's releases are announced: `auto`, `classic`, `sharded` or `both` |
    | `min_replicas` | 0 | how many replicas must confirm a grant, with `WAIT`; a grant that fewer confirm is undone |
    | `replica_timeout` | 1 | time limit of the confirmation by replicas (at least 1 ms) |
    | `sentinel_username` | their default user | user name for the Sentinels; the one in the address is the master's |
    | `sentinel_password` | none | password for the Sentinels; the one in the address is the master's |
    | `sentinel_tls` | False | whether connections to Sentinels use TLS, with the same certificate files |
    | `node_timeout` | 0.2 | Redlock: time limit of one request to one server (at least 1 ms, at most the `request_timeout`) |
    | `quarantine` | twice the ttl, at least 60 s | Redlock: how long a server that restarted without its data does not vote |

    `credentials` is for services whose passwords are tokens that expire. The function returns `(username, password)`, or
    the password of the server's default user:

        from pathlib import Path
        from onelock import Client

        def token():
            return "billing", Path("/run/secrets/token").read_text().strip()

        client = Client("rediss://cache.example.org", credentials=token)

    It is called for every new connection to a server (also a reconnection, each node of a cluster, each server of Redlock;
    Sentinels have `sentinel_password`), not for open ones. It runs on threads of its own, several at a time, and must
    return within the rest of `connect_timeout`. When it raises or is late, the call raises `ServerUnavailable` with the
    reason, and the next connection calls it again. Credentials in the address as well are `InvalidArgument`.

    Raises `InvalidArgument` for a bad address or option, `Unsupported` for a store that is not built in and
    for an option that the store lacks.
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(self, url: Url | None = None, **options: Unpack[ClientOptions]) -> None:
        provider = options.get("credentials")
        self._native = _clients.make(url, options, None if provider is None else Provider(provider))

    @classmethod
    def connect(cls, url: Url | None = None, **options: Unpack[ClientOptions]) -> Client:
        """A client that is connected and checked. Returns within `connect_timeout + request_timeout`.

        Settings of the server that can break locks are logged. Raises what `Client` raises, the error of the server
        (`ServerUnavailable`, `AuthenticationFailed`, `NotPermitted`, ...), and `Unsupported` when its fencing grade is
        below `min_fencing_grade`.
        """
        client = cls(url, **options)
        client.check()
        return client

    def lock(
        self,
        name: Name,
        *,
        timeout: Seconds | None = None,
        owner: Owner | None = None,
        on_lost: OnLost | None = None,
        on_jeopardy: OnJeopardy | None = None,
        **options: Unpack[LockOptions],
    ) -> Lock:
        """The lock of this name: one holder at a time, among all clients with the same server, prefix and name.

        No I/O. It is not reentrant: a holder that acquires it again waits for its own release. On the server it is a string
        that any `SET NX PX` client respects. `timeout` is how long `acquire` and `with` wait by default. `ttl`,
        `auto_renew`, `min_hold`, `max_hold`, `lock_delay`, `min_validity` and `fencing` have the client's values where they
        are left out. With `timeout=0` and a `min_hold` above what clocks differ by, only one of many machines runs each
        tick of a job: `examples/only_one.py`. `on_lost(lease, reason)` and `on_jeopardy(lease)` are set on every lease of
        it.

        (redis-py calls the ttl `timeout`, and the time-out `blocking_timeout`.)
        """
        _logging.refresh()
        native = self._native.lock(False, "lock", name, **options)
        return Lock(native, timeout, owner, on_lost, on_jeopardy)

    def reentrant_lock(
        self,
        name: Name,
        *,
        timeout: Seconds | None = None,
        owner: Owner | None = None,
        on_lost: OnLost | None = None,
        on_jeopardy: OnJeopardy | None = None,
        **options: Unpack[LockOptions],
    ) -> Lock:
        """The reentrant lock of this name: its owner may acquire it again. No I/O.

        The owner is the argument `owner`, or that of the enclosing `owner_scope`; otherwise the thread, within its context
        (`contextvars`): two calls into a thread pool (FastAPI, Django, `asyncio.to_thread`) are two owners, even if the
        pool uses one thread for both. A name belongs to one kind of lock. On the server it is a hash that Redisson's
        `RLock` shares. Otherwise as `lock`.
        """
        _logging.refresh()
        native = self._native.lock(False, "reentrant_lock", name, **options)
        return Lock(native, timeout, owner, on_lost, on_jeopardy)

    def fair_lock(
        self,
        name: Name,
        *,
        timeout: Seconds | None = None,
        on_lost: OnLost | None = None,
        on_jeopardy: OnJeopardy | None = None,
        **options: Unpack[LockOptions],
    ) -> Lock:
        """The fair lock of this name: first come, first served among the processes that wait. No I/O.

        Whoever releases it makes the first in the queue the holder. Each client has one place there, and its own waiters take
        turns. A waiter that is killed or stands still loses its turn within a second. A single try never goes before
        somebody who waits. It is not reentrant, and slower than `lock`, which is free to whoever comes first; use it where
        nobody may starve. Not on several servers (`redlock://`): `UnsupportedError`. Otherwise as `lock`.
        """
        _logging.refresh()
        native = self._native.lock(False, "fair_lock", name, **options)
        return Lock(native, timeout, None, on_lost, on_jeopardy)

    def multi_lock(
        self,
        *names: Name,
        timeout: Seconds | None = None,
        on_lost: OnLost | None = None,
        on_jeopardy: OnJeopardy | None = None,
        **options: Unpack[LockOptions],
    ) -> MultiLock:
        """The locks of these names, held all together or not at all. No I/O.

            with client.multi_lock("account:1", "account:2", timeout=5) as lease:
                transfer(fences=lease.fencing_tokens)

        `options` are those of each lock. For locks of other kinds, clients or options there is `MultiLock`, which says more.
        """
        locks = [self.lock(name, **options) for name in names]
        return MultiLock(*locks, timeout=timeout, on_lost=on_lost, on_jeopardy=on_jeopardy)

    def rw_lock(
        self,
        name: Name,
        *,
        timeout: Seconds | None = None,
        owner: Owner | None = None,
        on_lost: OnLost | None = None,
        on_jeopardy: OnJeopardy | None = None,
        **options: Unpack[LockOptions],
    ) -> RwLock:
        """The read/write lock of this name: many readers at a time, or one writer, from `read()` and `write()`. No I/O.

        A waiting writer keeps new readers out, and after a writer the readers that waited go first: neither side starves. An
        owner that writes may read and write again; owners are as in `reentrant_lock`. On the server it is a hash that
        Redisson's `RReadWriteLock` shares. Not on several servers (`redlock://`): `Unsupported`. Otherwise as `lock`.
        """
        _logging.refresh()
        return RwLock(
            lambda kind: self._native.lock(False, kind, name, **options), timeout, owner, on_lost, on_jeopardy
        )

    def semaphore(
        self,
        name: Name,
        permits: int | None = None,
        *,
        timeout: Seconds | None = None,
        on_lost: OnLost | None = None,
        on_jeopardy: OnJeopardy | None = None,
        **options: Unpack[LockOptions],
    ) -> Semaphore:
        """The semaphore of this name: at most `permits` holders at a time, 1 to 1024, in all programs together. No I/O.

        The number must be the same everywhere, or acquiring raises `PermitsMismatch`; `None` stands for whatever is set.
        Every permit is a lease of its own. There is no fencing token, since several hold at once. Who waits is served first
        come, first served, between programs too: a request for many permits is not passed by small ones. On the server it
        is what Redisson's `RPermitExpirableSemaphore` has, whose clients do not queue. Redlock has none. Otherwise as
        `lock`.
        """
        _logging.refresh()
        native = self._native.lock(False, "semaphore", name, permits=permits, **options)
        return Semaphore(native, timeout, None, on_lost, on_jeopardy)

    def locked(
        self,
        name: Name | Callable[..., Name],
        *,
        reentrant: bool = False,
        timeout: Seconds | None = None,
        owner: Owner | None = None,
        on_lost: OnLost | None = None,
        on_jeopardy: OnJeopardy | None = None,
        **options: Unpack[LockOptions],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator: the function runs while the lock is held, as in `with client.lock(name, ...)`.

            @client.locked("nightly", timeout=0)
            def nightly(): ...

            @client.locked(lambda order: f"orders:{order.id}")
            def charge(order): ...

        `name` may be a function that computes the name from the arguments of the call.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            flags = function_flags(function)
            if flags & (COROUTINE | ASYNC_GENERATOR):
                raise TypeError(f"{function!r} is async: decorate it with the `locked` of an AsyncClient")
            if flags & GENERATOR:
                raise TypeError(f"{function!r} is a generator: use `with` inside it")

            @wraps(function)
            def locked(*args: P.args, **kwargs: P.kwargs) -> R:
                make = self.reentrant_lock if reentrant else self.lock
                full = name if isinstance(name, (str, bytes)) else name(*args, **kwargs)
                with make(full, timeout=timeout, owner=owner, on_lost=on_lost, on_jeopardy=on_jeopardy, **options):
                    return function(*args, **kwargs)

            return locked

        return decorate

    def inspect(self, name: Name) -> Inspection | None:
        """The state of the lock of this name, of any kind, and who waits for it; `None` when it is free. One round
        trip, and one more where it is held, of a semaphore two.

        It is meant for dashboards: the answer may be outdated when it arrives. Raises `WrongKind` when the key is not a
        lock.
        """
        return self._native.inspect(name)

    def list(self, pattern: Name = "*", *, limit: int = 100, cursor: str | None = None) -> LockPage:
        """The locks whose names match `pattern`, about `limit` of them at a time, whoever holds them.

        The pattern is the server's own: `*`, `?`, `[abc]`, `[^a-z]`, and a backslash before a character that stands for
        itself. `cursor` is `None` for the first page and the `next` of the page before for each further one; `listing`
        does that.

        What counts as a lock: one of this library, one of Redisson, and a string of at most 128 bytes with a time to live,
        as any `SET NX PX` client writes it; `inspection.origin` says which. A cached value may look like the last, so
        choose the pattern.

        For people and dashboards. A lock that stands from the first page to the last is told, perhaps twice; one that
        comes or goes meanwhile may be missed. The server looks at 100 keys at most in one step, whatever it holds.
        """
        return self._native.list(pattern, limit, cursor)

    def listing(self, pattern: Name = "*") -> Iterator[LockEntry]:
        """All locks whose names match `pattern`, one after the other: the pages of `list`."""
        page = self.list(pattern)
        yield from page.entries
        while page.next is not None:
            page = self.list(pattern, cursor=page.next)
            yield from page.entries

    def force_release(self, name: Name, *, foreign: bool = False) -> bool:
        """Releases the lock of this name without its holder, and wakes a waiter. True when it was held.

        It deletes a lock of this library, one of Redisson, or a string with a time to live; otherwise it raises `WrongKind`
        and leaves the key untouched. With `foreign=True` it also deletes a string without a time to live, such as the lock
        of a client that uses `SET NX` alone: be sure that the key is a lock.

        The former holder detects it at its next renewal. Until then its lease still counts as held, so two holders may work
        at the same time. The next fencing token is higher, so a resource that checks tokens stays safe. It is meant for
        operators in an emergency.
        """
        return self._native.force_release(name, foreign)

    def check(self) -> Facts:
        """Queries the server: version, fencing grade, and settings that can break locks."""
        _logging.refresh()
        return self._native.check()

    def diagnose(self, name: Name = "") -> Diagnosis:
        """Looks at the servers of this client step by step, and tells which step fails and what to do.

            for finding in client.diagnose("app:").findings:
                print(finding.severity, finding.step, finding.detail, finding.todo)

        The steps: name, TCP, TLS, user, database, role; version, persistence, eviction, replicas; the clock against ours,
        the round trip, a proxy in between; each permission, one by one; the members of a majority, Sentinels, the slots of
        a cluster; the grade of fencing tokens, and why.

        `name` is what the names of locks begin with that this user may lock (`app:`), since permissions are tried on such
        a name; the client's prefix comes before it. Nothing is changed on the server. It takes some seconds at most where
        everything answers. What fails is a finding, not an exception; an exception is only what concerns the client, such
        as `ClientClosed`.
        """
        _logging.refresh()
        return self._native.diagnose(name)

    def stats(self) -> Stats:
        """Counters of this client, and histograms of waiting and holding. No I/O."""
        return self._native.stats()

    def close(self) -> None:
        """Releases what is held, waits for clean-up (at most `close_timeout`), and ends background work.

        Waiting acquires end with `ClientClosed`, and so does every later call but `release`. It may be called again.
        """
        self._native.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client: {self.stats().held} held>"

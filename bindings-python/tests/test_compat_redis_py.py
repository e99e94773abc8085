"""redis-py's lock and ours side by side: every case runs with both, in threads and in asyncio.

Where they differ, the case says so, and the table in `onelock/compat/redis_py.py` too.
"""

# redis-py's annotations are incomplete
# pyright: basic

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.connection
import redis.asyncio.lock
import redis.connection
import redis.exceptions
import redis.lock
from redis.exceptions import LockError, LockNotOwnedError

from conftest import Server, quick_once, until
from onelock.compat import _redis_known as known
from onelock.compat import redis_py as compat
from onelock.compat._redis_settings import settings
from topologies import GROUP, Cluster, Group

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


class Driven:
    """A lock of asyncio, driven from code of threads, so that one text of a case does for both."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lock: Any) -> None:
        self._loop, self._lock = loop, lock

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._lock, name)
        if name not in ("acquire", "release", "extend", "reacquire", "locked", "owned", "__aenter__", "__aexit__"):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._loop.run_until_complete(self._await(value(*args, **kwargs)))

        return call

    async def _await(self, awaitable: Any) -> Any:
        return await awaitable

    def __enter__(self) -> Driven:
        self.__getattr__("__aenter__")()
        return self

    def __exit__(self, *error: Any) -> None:
        self.__getattr__("__aexit__")(*error)


class Side:
    """One of the four implementations, and a client of redis-py's to look with."""

    def __init__(self, what: str, server: Server) -> None:
        self.ours, self.asynchronous = "ours" in what, "asyncio" in what
        self.r: Any = redis.Redis(port=server.port)
        self._loop = asyncio.new_event_loop()
        self._kinds: dict[bool, Any] = {True: redis.asyncio.Redis, False: redis.Redis}
        self.client = self._kinds[self.asynchronous](port=server.port)
        self.decoding = self._kinds[self.asynchronous](port=server.port, decode_responses=True)
        self.port = server.port

    def lock(self, name: str, client: Any = None, **options: Any) -> Any:
        if self.asynchronous:
            kind = compat.AsyncLock if self.ours else redis.asyncio.lock.Lock
            return Driven(self._loop, kind(client or self.client, name, **options))
        return (compat.Lock if self.ours else redis.lock.Lock)(client or self.client, name, **options)

    def close(self) -> None:
        for client in (self.client, self.decoding):
            if self.asynchronous:
                self._loop.run_until_complete(client.aclose())
            else:
                client.close()
        self._loop.close()
        self.r.close()


@pytest.fixture(params=["redis-py", "ours", "redis-py asyncio", "ours asyncio"])
def side(request: pytest.FixtureRequest, server: Server) -> Iterator[Side]:
    side = Side(request.param, server)
    yield side
    side.close()


def took(call: Callable[[], object]) -> tuple[object, float]:
    begun = time.monotonic()
    result = call()
    return result, time.monotonic() - begun


# ---- having and releasing ---------------------------------------------------------------------------------------------


def test_the_token_stands_under_the_name_until_the_release(side: Side, name: str) -> None:
    lock = side.lock(name)
    assert lock.acquire(blocking=False) is True
    assert side.r.get(name) == lock.local.token
    assert lock.release() is None
    assert side.r.get(name) is None
    assert lock.local.token is None


def test_a_lock_without_timeout(side: Side, name: str) -> None:
    with side.lock(name):
        # the difference that is the reason for it: a key that nobody renews ends
        assert 0 < side.r.pttl(name) <= 30_000 if side.ours else side.r.pttl(name) == -1


def test_timeout_is_the_length_of_the_lease(side: Side, name: str) -> None:
    for timeout in (10, 9.5):
        with side.lock(name, timeout=timeout):
            assert timeout * 1000 - 1500 < side.r.pttl(name) <= timeout * 1000


def test_a_timeout_of_none_and_of_0_are_the_same(side: Side, name: str) -> None:
    with side.lock(name, timeout=0):
        assert (side.r.pttl(name) > 20_000) if side.ours else (side.r.pttl(name) == -1)


def test_nobody_renews_a_lock_with_a_timeout(side: Side, name: str) -> None:
    lock = side.lock(name, timeout=0.3)
    assert lock.acquire()
    until(lambda: side.r.get(name) is None)
    assert not lock.owned()


def test_locked_and_owned(side: Side, name: str) -> None:
    one, two = side.lock(name), side.lock(name)
    assert (one.locked(), one.owned()) == (False, False)
    one.acquire()
    assert (one.locked(), one.owned(), two.locked(), two.owned()) == (True, True, True, False)
    one.release()
    two.acquire()
    assert (one.locked(), one.owned(), two.owned()) == (True, False, True)
    # somebody else's
    side.r.set(name, "a")
    assert (one.locked(), one.owned(), two.owned()) == (True, False, False)


def test_a_client_that_decodes(side: Side, name: str) -> None:
    lock = side.lock(name, client=side.decoding)
    assert not lock.owned()
    lock.acquire()
    assert lock.owned()
    assert lock.locked()
    lock.release()
    assert not lock.owned()


def test_one_at_a_time(side: Side, name: str) -> None:
    one, two = side.lock(name), side.lock(name)
    assert one.acquire(blocking=False)
    assert not two.acquire(blocking=False)
    # nor twice by the same
    assert not one.acquire(blocking=False)
    assert one.owned()
    one.release()
    assert two.acquire(blocking=False)
    assert not one.acquire(blocking=False)
    two.release()


def test_arguments_of_acquire_go_before_those_of_the_lock(side: Side, name: str) -> None:
    with side.lock(name):
        lock = side.lock(name, blocking=False)
        assert took(lock.acquire)[1] < 10
        assert lock.acquire(blocking=True, blocking_timeout=0.2) is False
        if not side.asynchronous:
            # only there it has a pause of its own
            assert lock.acquire(0.01, True, 0.1) is False
        patient = side.lock(name, sleep=0.01)
        assert patient.acquire(blocking_timeout=0.05) is False
        assert patient.acquire(blocking=False) is False
        assert patient.acquire(blocking_timeout=0) is False
        assert patient.acquire(blocking_timeout=-1) is False


# ---- waiting ----------------------------------------------------------------------------------------------------------


def test_blocking_timeout(side: Side, name: str) -> None:
    with side.lock(name):
        result, seconds = took(side.lock(name, sleep=0.05, blocking_timeout=0.4).acquire)
        assert result is False
        assert 0.3 < seconds < 10


def test_a_sleep_longer_than_the_blocking_timeout(side: Side, name: str) -> None:
    with side.lock(name):
        result, seconds = took(side.lock(name, sleep=60, blocking_timeout=2).acquire)
        assert result is False
        # a difference: theirs does not even begin to wait
        assert (2 <= seconds < 20) if side.ours else (seconds < 2)


def test_a_waiter_has_it_after_the_release(side: Side, name: str) -> None:
    def turn() -> float:
        holder = side.lock(name)
        holder.acquire()
        got: list[float] = []

        def wait() -> None:
            # a client of its own, as another process has
            waiter = (compat.Lock if side.ours else redis.lock.Lock)(redis.Redis(port=side.port), name, sleep=0.05)
            assert waiter.acquire(blocking_timeout=20)
            got.append(time.monotonic())
            waiter.release()

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.2)
        assert not got
        begun = time.monotonic()
        holder.release()
        thread.join()
        return got[0] - begun

    quick_once(0.5, turn)


# ---- scopes -----------------------------------------------------------------------------------------------------------


def test_scope(side: Side, name: str) -> None:
    with side.lock(name, blocking_timeout=0.2) as lock:
        assert side.r.get(name) == lock.local.token
        assert lock.owned()
    assert side.r.get(name) is None


def test_a_scope_that_is_not_entered_names_the_lock(side: Side, name: str) -> None:
    side.r.set(name, "bar")
    with pytest.raises(LockError) as raised, side.lock(name, blocking_timeout=0.1, sleep=0.01):
        pytest.fail("entered")
    # a difference: theirs forgets it in asyncio
    assert raised.value.lock_name == (name if side.ours or not side.asynchronous else None)
    assert side.r.get(name) == b"bar"


@pytest.mark.parametrize("end", ["expired", "released", "taken"])
def test_a_scope_whose_hold_has_ended(side: Side, name: str, end: str) -> None:
    def scope(raises: bool) -> None:
        with side.lock(name, timeout=0.2, raise_on_release_error=raises) as lock:
            if end == "expired":
                until(lambda: side.r.get(name) is None)
            elif end == "released":
                lock.release()
            else:
                side.r.set(name, "a")

    scope(False)
    side.r.delete(name)
    with pytest.raises(LockError if end == "released" else LockNotOwnedError):
        scope(True)


def test_what_the_body_raises(side: Side, name: str) -> None:
    with pytest.raises(KeyError), side.lock(name, timeout=5):
        raise KeyError
    assert side.r.get(name) is None
    # a difference: theirs lets the failing release hide it
    with pytest.raises(KeyError if side.ours else LockError) as raised, side.lock(name, timeout=5) as lock:
        lock.release()
        raise KeyError
    assert isinstance(raised.value.__cause__ if side.ours else raised.value, LockError)


# ---- releases, extensions ---------------------------------------------------------------------------------------------


def test_release_of_what_is_not_held(side: Side, name: str) -> None:
    with pytest.raises(LockError):
        side.lock(name).release()


def test_release_of_what_somebody_else_has(side: Side, name: str) -> None:
    lock = side.lock(name)
    lock.acquire(blocking=False)
    side.r.set(name, "a")
    with pytest.raises(LockNotOwnedError):
        lock.release()
    assert lock.local.token is None
    assert side.r.get(name) == b"a"


def test_extend_adds(side: Side, name: str) -> None:
    with side.lock(name, timeout=10) as lock:
        assert lock.extend(10) is True
        assert 18_500 < side.r.pttl(name) <= 20_000
        before = side.r.pttl(name)
        assert lock.extend(10.5) is True
        assert before + 9_500 < side.r.pttl(name) <= before + 10_500
        # not less by each time
        for _ in range(10):
            lock.extend(10)
        assert 128_000 < side.r.pttl(name) <= 130_500
        assert lock.owned()


def test_extend_replaces(side: Side, name: str) -> None:
    with side.lock(name, timeout=10) as lock:
        assert lock.extend(20, replace_ttl=True) is True
        assert 18_500 < side.r.pttl(name) <= 20_000
        assert lock.extend(5, replace_ttl=True) is True
        # a difference: nothing of ours ever shortens a lease
        assert (side.r.pttl(name) > 18_000) if side.ours else (side.r.pttl(name) <= 5_000)


def test_reacquire(side: Side, name: str) -> None:
    with side.lock(name, timeout=10) as lock:
        side.r.pexpire(name, 5000)
        assert lock.reacquire() is True
        assert 8_500 < side.r.pttl(name) <= 10_000


@pytest.mark.parametrize("call", ["extend", "reacquire"])
def test_longer_is_refused(side: Side, name: str, call: str) -> None:
    args = [10] if call == "extend" else []
    with pytest.raises(LockError):
        getattr(side.lock(name, timeout=10), call)(*args)
    with side.lock(name) as lock, pytest.raises(LockError):
        getattr(lock, call)(*args)
    lock = side.lock(name, timeout=10)
    lock.acquire()
    side.r.set(name, "a")
    with pytest.raises(LockNotOwnedError):
        getattr(lock, call)(*args)
    if call == "extend":
        with pytest.raises(LockNotOwnedError):
            lock.extend(10, replace_ttl=True)
    assert side.r.pttl(name) == -1


# ---- threads and tokens -----------------------------------------------------------------------------------------------


def in_thread(call: Callable[[], object]) -> object:
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_thread_local(side: Side, name: str) -> None:
    with side.lock(name) as lock:
        error = in_thread(lock.release)
        # a difference: theirs trips over its own thread-local
        assert isinstance(error, LockError if side.ours else AttributeError)
        assert lock.owned()
    shared = side.lock(name, thread_local=False)
    shared.acquire()
    assert in_thread(shared.owned) is True
    assert in_thread(shared.release) is None
    assert side.r.get(name) is None


def test_a_token_of_ones_own(side: Side, name: str) -> None:
    lock = side.lock(name)
    if side.ours:
        with pytest.raises(TypeError, match=r"Lease\.detach"):
            lock.acquire(token="test")
        assert side.r.get(name) is None
    else:
        assert lock.acquire(token="test")
        assert side.r.get(name) == b"test" == lock.local.token
        lock.release()


def test_lock_class(side: Side, name: str) -> None:
    if side.ours and not side.asynchronous:
        with side.client.lock(name, timeout=3, lock_class=compat.Lock) as lock:
            assert type(lock) is compat.Lock
            assert lock.lease is not None
            assert isinstance(lock.lease.fencing_token, int)
            assert "held here" in repr(lock)
        assert lock.lease is None
    elif side.ours:
        lock = side.client.lock(name, timeout=3, lock_class=compat.AsyncLock)
        assert type(lock) is compat.AsyncLock
        with Driven(side._loop, lock):
            assert lock.lease is not None
            assert isinstance(lock.lease.fencing_token, int)


# ---- ends of objects and programs -------------------------------------------------------------------------------------


def test_a_lock_object_that_is_dropped(side: Side, name: str) -> None:
    side.lock(name, timeout=5).acquire()
    # the way of throttles: taken, and never released
    time.sleep(0.2)
    assert side.r.pttl(name) > 4_000
    side.lock(name + "2").acquire()
    if side.ours:
        # a difference: without a time-out there would be no end to it
        until(lambda: side.r.get(name + "2") is None)
    else:
        assert side.r.pttl(name + "2") == -1
        side.r.delete(name + "2")


def test_a_program_that_ends(side: Side, name: str) -> None:
    program = """
        import sys, redis
        if sys.argv[1] == "ours":
            from onelock.compat.redis_py import Lock
        else:
            from redis.lock import Lock
        timed = Lock(redis.Redis(port=int(sys.argv[2])), sys.argv[3], timeout=30)
        untimed = Lock(redis.Redis(port=int(sys.argv[2])), sys.argv[3] + "2")
        assert timed.acquire() and untimed.acquire()
    """
    which = "ours" if side.ours else "theirs"
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program), which, str(side.port), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert "Traceback" not in done.stderr
    assert 20_000 < side.r.pttl(name) <= 30_000
    assert side.r.pttl(name + "2") == (-2 if side.ours else -1)
    side.r.delete(name, name + "2")


def test_a_forked_child(side: Side, name: str) -> None:
    if side.asynchronous:
        return
    with side.lock(name, timeout=20) as lock:
        child = os.fork()
        if child == 0:
            code = 3
            try:
                lock.release()
                code = 0
            except LockNotOwnedError:
                code = 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (1 if side.ours else 0)
        # a difference: what the parent holds is not the child's
        assert lock.owned() is side.ours
        if not side.ours:
            lock.acquire()


# ---- servers ----------------------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there(side: Side, name: str) -> None:
    kind = type(side.client)
    client = kind(port=1, socket_connect_timeout=0.2, socket_timeout=0.2, retry=None)
    for call in ("acquire", "locked", "owned"):
        with pytest.raises(redis.exceptions.ConnectionError):
            getattr(side.lock(name, client=client, blocking=False), call)()


def test_a_user_that_is_refused(side: Side, name: str) -> None:
    client = type(side.client)(port=side.port, username="nobody", password="s3cret")
    with pytest.raises(redis.exceptions.AuthenticationError) as raised:
        side.lock(name, client=client).acquire(blocking=False)
    assert "s3cret" not in str(raised.value)


def test_a_user_with_a_password(side: Side, name: str) -> None:
    side.r.execute_command("ACL", "SETUSER", "u:ser", "reset", "on", ">p@s/s %w", "~*", "&*", "+@all")
    client = type(side.client)(port=side.port, username="u:ser", password="p@s/s %w", db=3)
    with side.lock(name, client=client):
        assert side.r.get(name) is None
        side.r.execute_command("SELECT", 3)
        assert redis.Redis(port=side.port, db=3).get(name) is not None


def test_a_key_of_another_type(side: Side, name: str) -> None:
    side.r.rpush(name, "a")
    lock = side.lock(name)
    if side.ours:
        with pytest.raises(redis.exceptions.ResponseError):
            lock.acquire(blocking=False)
    else:
        assert lock.acquire(blocking=False) is False
    with pytest.raises(redis.exceptions.ResponseError):
        lock.locked()
    side.r.delete(name)


def test_arguments_that_are_refused(side: Side, name: str) -> None:
    if not side.ours:
        return
    with pytest.raises(ValueError, match="ttl"):
        side.lock(name, timeout=0.001).acquire()
    with pytest.raises(TypeError, match=r"redis\.Redis object"):
        compat.Lock(object(), name)
    with pytest.raises(ValueError, match="name"):
        side.lock("").acquire()


def test_a_release_that_is_cancelled(server: Server, name: str) -> None:
    async def ours() -> None:
        client = redis.asyncio.Redis(port=server.port)
        lock = compat.AsyncLock(client, name)
        await lock.acquire()
        release = asyncio.ensure_future(lock.release())
        await asyncio.sleep(0)
        release.cancel()
        with pytest.raises(asyncio.CancelledError):
            await release
        # it goes on by itself
        assert await compat.AsyncLock(client, name).acquire(blocking_timeout=5)
        await client.aclose()

    asyncio.run(ours())


def test_a_late_release_by_one_task_leaves_the_hold_of_another(server: Server, name: str) -> None:
    """redis-py's would delete it."""

    async def work(kind: Any) -> object:
        client = redis.asyncio.Redis(port=server.port)
        lock = kind(client, name, timeout=0.2)
        expired, entered, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def first() -> None:
            assert await lock.acquire()
            while server.command("EXISTS", name):
                await asyncio.sleep(0.01)
            expired.set()
            await entered.wait()
            with suppress(LockNotOwnedError):
                await lock.release()
            # once more changes nothing
            with suppress(LockError):
                await lock.release()
            done.set()

        async def second() -> object:
            await expired.wait()
            lock.timeout, lock._options = 20, {"ttl": 20, "auto_renew": False}
            assert await lock.acquire()
            entered.set()
            await done.wait()
            left = server.command("EXISTS", name)
            with suppress(LockError):
                await lock.release()
            return left

        try:
            return (await asyncio.gather(first(), second()))[1]
        finally:
            await client.aclose()

    assert asyncio.run(work(redis.asyncio.lock.Lock)) == 0
    assert asyncio.run(work(compat.AsyncLock)) == 1


def test_a_late_release_by_one_thread_leaves_the_hold_of_another(server: Server, name: str) -> None:
    lock = compat.Lock(redis.Redis(port=server.port), name, timeout=0.2, thread_local=False)
    assert lock.acquire()
    until(lambda: not server.command("EXISTS", name))
    with ThreadPoolExecutor(1) as other:
        lock._options = {"ttl": 20, "auto_renew": False}
        assert other.submit(lock.acquire).result()
        with pytest.raises(LockNotOwnedError):
            lock.release()
        with pytest.raises(LockError):
            lock.release()
        assert server.command("EXISTS", name) == 1
        other.submit(lock.release).result()
        assert server.command("EXISTS", name) == 0


def test_a_hold_outlives_the_task_that_acquired_it(server: Server, name: str) -> None:
    async def work() -> None:
        client = redis.asyncio.Redis(port=server.port)
        lock = compat.AsyncLock(client, name)
        assert await asyncio.create_task(lock.acquire())
        gc.collect()
        assert server.command("EXISTS", name) == 1
        await lock.release()
        assert server.command("EXISTS", name) == 0
        await client.aclose()

    asyncio.run(work())


# ---- settings ---------------------------------------------------------------------------------------------------------


def test_settings_of_a_client() -> None:
    url, options = settings(redis.Redis(host="::1", db=2, client_name="me", socket_timeout=3, socket_connect_timeout=4))
    assert url == "redis://[::1]:6379/2"
    assert (options["label"], options["request_timeout"], options["connect_timeout"]) == ("me", 3, 4)
    assert (
        settings(redis.Redis(unix_socket_path="/run/a b.sock", db=1, password="p/"))[0]
        == "unix://:p%2F@/run/a%20b.sock?db=1"
    )
    assert settings(redis.Redis.from_url("redis://u:p@h:1/4"))[0] == "redis://u:p@h:1/4"
    assert settings(redis.asyncio.Redis(host="h"))[0] == "redis://h:6379/0"
    url, options = settings(redis.Redis(ssl=True, ssl_ca_certs="ca", ssl_certfile="both", ssl_cert_reqs="none"))
    assert url == "rediss://localhost:6379/0"
    assert (options["ca_file"], options["cert_file"], options["key_file"]) == ("ca", "both", "both")
    assert options["tls_insecure"] is True
    assert settings(redis.Redis(ssl=True))[1]["tls_insecure"] is None


def test_settings_from_a_provider_of_credentials() -> None:
    fixed = redis.UsernamePasswordCredentialProvider("me", "x")
    assert settings(redis.Redis(credential_provider=fixed))[0] == "redis://me:x@localhost:6379/0"

    class Provider(redis.CredentialProvider):
        asked = 0

        def get_credentials(self) -> tuple[str, str]:
            self.asked += 1
            return "me", str(self.asked)

    provider = Provider()
    for client in (redis.Redis(credential_provider=provider), redis.asyncio.Redis(credential_provider=provider)):
        url, options = settings(client)
        assert url == "redis://localhost:6379/0"
        assert provider.asked == 0
        assert [options["credentials"](), options["credentials"]()] == [("me", "1"), ("me", "2")]
        provider.asked = 0

    class Alone(redis.CredentialProvider):
        def get_credentials(self) -> tuple[str]:
            return ("x",)

    assert settings(redis.Redis(credential_provider=Alone()))[1]["credentials"]() == (None, "x")

    class Awaited(Provider):
        async def get_credentials_async(self) -> tuple[str, str]:
            return "me", "awaited"

    asked = settings(redis.asyncio.Redis(credential_provider=Awaited()))[1]["credentials"]
    assert asyncio.run(asked()) == ("me", "awaited")
    assert settings(redis.Redis(credential_provider=Awaited()))[1]["credentials"]() == ("me", "1")
    sentinels: Any = redis.Sentinel
    sentinel = sentinels([("s1", 26379)], sentinel_kwargs={"credential_provider": provider})
    with pytest.raises(TypeError, match="credential_provider for Sentinels"):
        settings(sentinel.master_for("m"))
    sentinel = sentinels([("s1", 26379)])
    assert settings(sentinel.master_for("m", credential_provider=provider))[1]["credentials"]() == ("me", "1")


class Rotating(redis.CredentialProvider):
    """Gives what it is told to, and counts."""

    def __init__(self) -> None:
        self.asked, self.awaited, self.password = 0, 0, "first"

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        return "rotating", self.password

    async def get_credentials_async(self) -> tuple[str, str]:
        self.awaited += 1
        return "rotating", self.password

    def rotate(self, server: Server, password: str) -> None:
        self.password = password
        server.command("ACL", "SETUSER", "rotating", "on", "resetpass", f">{password}", "~*", "&*", "+@all")
        server.command("CLIENT", "KILL", "USER", "rotating")


def test_a_provider_is_asked_for_each_connection(server: Server, name: str) -> None:
    provider = Rotating()
    provider.rotate(server, "first")
    with redis.Redis(port=server.port, credential_provider=provider) as client:
        lock = compat.Lock(client, name, timeout=20)
        assert lock.acquire()
        asked = provider.asked
        assert asked > 0
        provider.rotate(server, "second")
        assert lock.extend(30, replace_ttl=True)
        assert lock.owned()
        assert provider.asked > asked
        lock.release()


def test_a_provider_is_awaited_for_each_connection(server: Server, name: str) -> None:
    provider = Rotating()
    provider.rotate(server, "first")

    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port, credential_provider=provider) as client:
            lock = compat.AsyncLock(client, name, timeout=20)
            assert await lock.acquire()
            awaited = provider.awaited
            assert awaited > 0
            await asyncio.to_thread(provider.rotate, server, "second")
            assert await lock.extend(30, replace_ttl=True)
            assert await lock.owned()
            assert provider.awaited > awaited
            assert provider.asked == 0
            await lock.release()

    asyncio.run(work())


@pytest.mark.parametrize("kind", [redis.Sentinel, redis.asyncio.Sentinel])
def test_settings_of_a_client_of_sentinels(kind: Any) -> None:
    sentinel = kind([("s1", 26379), ("::1", 7)], socket_timeout=3)
    url, options = settings(sentinel.master_for("m/1", password="p@", db=2))
    assert url == "redis+sentinel://:p%40@s1:26379,[::1]:7/m%2F1/2"
    assert options["request_timeout"] == 3
    assert (options["sentinel_username"], options["sentinel_password"], options["sentinel_tls"]) == (None, None, None)

    login = {"username": "w", "password": "x", "ssl": True, "ssl_ca_certs": "ca"}
    secured = kind([("s1", 1)], sentinel_kwargs=login)
    url, options = settings(secured.master_for("m", username="u", password="p"))
    assert url == "redis+sentinel://u:p@s1:1/m/0"
    assert (options["sentinel_username"], options["sentinel_password"]) == ("w", "x")
    assert (options["sentinel_tls"], options["ca_file"]) == (True, "ca")
    url, options = settings(secured.master_for("m", ssl=True, ssl_ca_certs="ca"))
    assert url == "rediss+sentinel://s1:1/m/0"
    assert (options["sentinel_tls"], options["ca_file"]) == (True, "ca")
    url, options = settings(sentinel.master_for("m", ssl=True, ssl_ca_certs="ca"))
    assert url == "rediss+sentinel://s1:26379,[::1]:7/m/0"
    assert (options["sentinel_tls"], options["ca_file"]) == (None, "ca")

    with pytest.raises(TypeError, match="different ssl_ settings"):
        settings(secured.master_for("m", ssl=True, ssl_ca_certs="another"))
    with pytest.raises(TypeError, match="replicas"):
        settings(sentinel.slave_for("m"))
    with pytest.raises(TypeError, match="min_other_sentinels"):
        settings(kind([("s1", 1)], min_other_sentinels=1).master_for("m"))
    with pytest.raises(TypeError, match="force_master_ip"):
        settings(kind([("s1", 1)], force_master_ip="10.0.0.1").master_for("m"))


def test_settings_of_a_client_of_a_cluster(cluster: Cluster) -> None:
    nodes = {f"127.0.0.1:{node.port}" for node in cluster.nodes}
    theirs = redis.RedisCluster("127.0.0.1", cluster.nodes[0].port, client_name="me", socket_timeout=3)
    scheme, _, hosts = settings(theirs)[0].partition("://")
    assert (scheme, set(hosts.split(","))) == ("redis+cluster", nodes)
    assert (settings(theirs)[1]["label"], settings(theirs)[1]["request_timeout"]) == ("me", 3)
    theirs.close()
    remapped = redis.RedisCluster("127.0.0.1", cluster.nodes[0].port, address_remap=lambda address: address)
    with pytest.raises(TypeError, match="address_remap"):
        settings(remapped)
    remapped.close()


def test_settings_of_a_client_of_a_cluster_that_has_not_connected() -> None:
    node = redis.asyncio.cluster.ClusterNode
    given: dict[str, Any] = {"username": "u", "password": "p@", "ssl": True, "ssl_ca_certs": "ca"}
    url, options = settings(redis.asyncio.RedisCluster(startup_nodes=[node("h1", 1), node("::1", 2)], **given))
    assert url == "rediss+cluster://u:p%40@h1:1,[::1]:2"
    assert options["ca_file"] == "ca"


@pytest.mark.parametrize("key", sorted(known.REFUSED - {"unix_socket_path", "socket_type"}))
@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
def test_settings_that_are_not_understood(kind: Any, key: str) -> None:
    if key not in inspect.signature(kind).parameters:
        return
    client = kind(ssl=True)
    client.connection_pool.connection_kwargs[key] = "x"
    with pytest.raises(TypeError, match=key):
        settings(client)


def test_more_settings_that_are_not_understood() -> None:
    sentinel: Any = redis.Sentinel
    with pytest.raises(TypeError, match="ssl_check_hostname"):
        settings(redis.Redis(ssl=True, ssl_check_hostname=False))
    # nothing is checked at all there
    assert settings(redis.Redis(ssl=True, ssl_check_hostname=False, ssl_cert_reqs="none"))[1]["tls_insecure"]
    assert settings(redis.Redis(ssl_check_hostname=False))[0] == "redis://localhost:6379/0"
    with pytest.raises(TypeError, match="ssl_check_hostname"):
        settings(redis.asyncio.RedisCluster(host="h", ssl=True, ssl_check_hostname=False))
    with pytest.raises(TypeError, match="ssl_check_hostname"):
        settings(sentinel([("s1", 1)]).master_for("m", ssl=True, ssl_check_hostname=False))
    with pytest.raises(TypeError, match="ssl_check_hostname"):
        settings(sentinel([("s1", 1)], sentinel_kwargs={"ssl": True, "ssl_check_hostname": False}).master_for("m"))
    with pytest.raises(TypeError, match="redis_connect_func"):
        settings(redis.Redis(redis_connect_func=print))
    pool = redis.ConnectionPool(host="h", socket_type=2)
    with pytest.raises(TypeError, match="socket_type"):
        settings(redis.Redis(connection_pool=pool))
    pool = redis.ConnectionPool(host="h", something_new=0)
    with pytest.raises(TypeError, match="something_new"):
        settings(redis.Redis(connection_pool=pool))


def test_every_setting_of_redis_py_is_known() -> None:
    """When this fails, redis-py has a new one: say in `_redis_known` what it means for a lock."""
    kinds = [
        *(kind for of in (known._CLIENTS, known._CLUSTERS, known._POOLS, known._CONNECTIONS) for kind in of),
        redis.connection.AbstractConnection,
        redis.asyncio.connection.AbstractConnection,
    ]
    # of clients, pools and clusters, and not handed to connections
    others = {
        "self", "args", "kwargs", "connection_kwargs", "single_connection_client", "auto_close_connection_pool",
        "cache_factory", "service_name", "sentinel_manager", "startup_nodes", "cluster_error_retry_attempts",
        "require_full_coverage", "reinitialize_steps", "read_from_replicas", "load_balancing_strategy",
        "dynamic_startup_nodes", "url", "address_remap", "policy_resolver",
    }  # fmt: skip
    known_ones = known.TAKEN | known.REFUSED | known.IRRELEVANT | others
    for kind in kinds:
        for parameter in inspect.signature(kind.__init__).parameters:
            assert parameter in known_ones, f"{kind.__module__}.{kind.__qualname__}({parameter})"


class FakeConnection(redis.connection.Connection):
    """As fakeredis has it: goes nowhere."""


class FakeRedis(redis.Redis):
    """As fakeredis has it."""

    @classmethod
    def from_url(cls, url: str, **kwargs: Any) -> Any:
        pool = redis.ConnectionPool.from_url(url, connection_class=FakeConnection)
        return cls(connection_pool=pool)


class FakePool(redis.ConnectionPool):
    """Somebody's own."""


@pytest.mark.parametrize("make", [compat.Lock, compat.AsyncLock])
def test_a_client_that_is_not_known_is_refused_by_name(url: str, make: Any) -> None:
    with pytest.raises(TypeError, match="FakeRedis"):
        make(FakeRedis.from_url(url), "a")
    with pytest.raises(TypeError, match="FakeConnection"):
        make(redis.Redis(connection_pool=redis.ConnectionPool.from_url(url, connection_class=FakeConnection)), "a")
    with pytest.raises(TypeError, match="FakePool"):
        make(redis.Redis(connection_pool=FakePool.from_url(url)), "a")
    with pytest.raises(TypeError, match="Pipeline"):
        make(redis.Redis.from_url(url).pipeline(), "a")


# ---- several servers --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path)
    yield group
    group.stop()


class Many:
    """A client of redis-py for several servers, of either kind, and both kinds of locks with it."""

    def __init__(self, asynchronous: bool, make: Callable[[bool], Any]) -> None:
        self.asynchronous = asynchronous
        self._loop = asyncio.new_event_loop()
        self.client = make(asynchronous)

    def lock(self, name: str, ours: bool, **options: Any) -> Any:
        if self.asynchronous:
            kind = compat.AsyncLock if ours else redis.asyncio.lock.Lock
            return Driven(self._loop, self.client.lock(name, lock_class=kind, **options))
        return self.client.lock(name, lock_class=compat.Lock if ours else redis.lock.Lock, **options)

    def close(self) -> None:
        # those that ask the Sentinels are not closed with it
        manager = getattr(getattr(self.client, "connection_pool", None), "sentinel_manager", None)
        for client in [self.client, *(manager.sentinels if manager else [])]:
            if self.asynchronous:
                self._loop.run_until_complete(client.aclose())
            else:
                client.close()
        self._loop.close()


@pytest.fixture(params=["threads", "asyncio"])
def of_group(request: pytest.FixtureRequest, group: Group) -> Iterator[Many]:
    def make(asynchronous: bool) -> Any:
        kind: Any = redis.asyncio.Sentinel if asynchronous else redis.Sentinel
        sentinels = [("127.0.0.1", sentinel.port) for sentinel in group.sentinels]
        sentinel = kind(sentinels, sentinel_kwargs={"password": group.SENTINEL_PASSWORD})
        return sentinel.master_for(GROUP, password=group.PASSWORD)

    many = Many(request.param == "asyncio", make)
    yield many
    many.close()


@pytest.fixture(params=["threads", "asyncio"])
def of_cluster(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Many]:
    def make(asynchronous: bool) -> Any:
        kind: Any = redis.asyncio.RedisCluster if asynchronous else redis.RedisCluster
        return kind("127.0.0.1", cluster.nodes[0].port)

    many = Many(request.param == "asyncio", make)
    yield many
    many.close()


def exclude(many: Many, name: str, keeper: Callable[[], Server]) -> None:
    """Each kind of lock keeps out the other, and stands where redis-py looks for it."""
    ours, theirs = many.lock(name, True), many.lock(name, False)
    with ours:
        assert keeper().command("GET", name) == ours.local.token.decode()
        assert not theirs.acquire(blocking=False)
        assert theirs.locked()
        assert not theirs.owned()
        assert ours.owned()
        assert isinstance(ours.lease.fencing_token, int)
    with theirs:
        assert keeper().command("GET", name) == theirs.local.token.decode()
        assert not ours.acquire(blocking=False)
        assert ours.locked()
        assert not ours.owned()
    assert not ours.locked()


def test_a_cluster(of_cluster: Many, cluster: Cluster, name: str) -> None:
    keepers: set[int] = set()
    # names of every node
    for number in range(12):
        one = f"{name}:{number}"
        exclude(of_cluster, one, partial(cluster.keeper, one))
        keepers.add(cluster.keeper(one).port)
    assert keepers == {node.port for node in cluster.nodes}
    timed = of_cluster.lock(name, True, timeout=10)
    with timed:
        assert timed.extend(10)
        assert timed.reacquire()
        assert 18_000 < int(str(cluster.keeper(name).command("PTTL", name))) <= 20_000


def test_a_client_of_a_cluster_has_one_of_ours(cluster: Cluster, name: str) -> None:
    client = redis.RedisCluster("127.0.0.1", cluster.nodes[0].port)
    one, two = compat.Lock(client, name), compat.Lock(client, name + "2")
    assert one._client is two._client
    client.close()


def test_a_group_and_its_failover(of_group: Many, group: Group, name: str) -> None:
    exclude(of_group, name, lambda: group.master)
    lock = of_group.lock(name, True, blocking_timeout=30)
    with lock:
        token = lock.local.token.decode()
        # what is not yet there at the failover is lost
        until(lambda: all(server.command("GET", name) == token for server in group.servers))
        master = group.fail_over()
        assert lock.owned()
        assert master.command("GET", name) == token
    assert group.master.command("GET", name) is None
    # redis-py's own fails once for every connection that it has to the old one
    with lock:
        assert group.master.command("GET", name) == lock.local.token.decode()


def test_clients_go_with_their_pools(server: Server, name: str) -> None:
    import gc

    client = redis.Redis(port=server.port)
    with compat.Lock(client, name), compat.Lock(client, name + "2"):
        assert len([pool for pool in compat._clients_of if pool is client.connection_pool]) == 1
    before = len(compat._clients_of)
    client.close()
    del client
    gc.collect()
    assert len(compat._clients_of) < before

"""The connection that an event loop reads itself: encrypted, at a failover, over a fork."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

import onelock
from conftest import Secured, Server, is_free, until
from onelock import AsyncClient, Client, Release
from topologies import Group


class Seen:
    """A connection that a loop was told to watch."""

    def __init__(self, fd: int) -> None:
        with socket.socket(fileno=os.dup(fd)) as copy:
            self.local: int = copy.getsockname()[1]
            self.remote: int = copy.getpeername()[1]
        self.fd, self.calls, self.watched = fd, 0, True


class Watching:
    """A loop that tells which connections of ours it watches, and how often it was called for them."""

    seen: list[Seen]

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
        if not args or type(args[0]).__name__ != "Connection":
            return super().add_reader(fd, callback, *args)  # type: ignore[misc]
        seen = Seen(fd)
        self.seen.append(seen)

        def counted() -> None:
            seen.calls += 1
            callback(*args)

        return super().add_reader(fd, counted)  # type: ignore[misc]

    def remove_reader(self, fd: Any) -> Any:
        for seen in self.seen:
            if seen.fd == fd:
                seen.watched = False
        return super().remove_reader(fd)  # type: ignore[misc]

    @property
    def watched(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.watched]


# what type checkers know of the two does not go together
Selecting: Any = type("Selecting", (Watching, asyncio.SelectorEventLoop), {})
Uv: Any = type("Uv", (Watching, uvloop.Loop), {})
Loop = Any


@pytest.fixture(params=[Selecting, Uv])
def loop(request: pytest.FixtureRequest) -> Iterator[Loop]:
    loop: Loop = request.param()
    loop.seen = []
    loop.set_debug(True)
    problems: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: problems.append(context))
    yield loop
    loop.close()
    gc.collect()
    assert not problems


def run(loop: Loop, work: Coroutine[Any, Any, Any], limit: float = 60) -> Any:
    return loop.run_until_complete(asyncio.wait_for(work, limit))


async def moored(loop: Loop, client: AsyncClient, name: str) -> Seen:
    """The one connection of this loop, once it is there and in use."""
    end = loop.time() + 20
    while True:
        assert loop.time() < end, "the loop has no connection of its own"
        async with client.lock(name):
            pass
        if len(loop.watched) == 1:
            calls = loop.watched[0].calls
            async with client.lock(name):
                pass
            # both requests went over it
            seen: list[Seen] = loop.watched
            if seen and seen[0].calls >= calls + 2:
                return seen[0]


def facts(server: Server, seen: Seen) -> dict[str, str] | None:
    """What the server says of a connection; nothing when it is closed."""
    for line in str(server.command("CLIENT", "LIST")).splitlines():
        fields = dict(field.split("=", 1) for field in line.split(" ") if "=" in field)
        if fields["addr"] == f"127.0.0.1:{seen.local}":
            return fields
    return None


async def contend(client: AsyncClient, name: str, tasks: int = 20, rounds: int = 5) -> None:
    """Many tasks and one lock."""
    lock, inside = client.lock(name, timeout=50), 0

    async def one() -> None:
        nonlocal inside
        for _ in range(rounds):
            async with lock:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1

    await asyncio.gather(*[one() for _ in range(tasks)])


# ---- TLS --------------------------------------------------------------------------------------------------------------


def test_tls(loop: Loop, secured: Secured, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(secured.tls_url, ca_file=str(secured.ca)) as client:
            seen = await moored(loop, client, name)
            assert seen.remote == secured.tls_port
            calls = seen.calls
            tokens: list[int] = []
            for _ in range(200):
                async with client.lock(name) as lease:
                    assert lease.fencing_token is not None
                    tokens.append(lease.fencing_token)
            assert tokens == sorted(set(tokens))
            assert seen.calls >= calls + 400
            await contend(client, name)
            assert loop.watched == [seen]

    run(loop, work())
    assert is_free(secured.url, name)


def test_tls_of_a_stranger(loop: Loop, secured: Secured, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(secured.tls_url) as client:
            with pytest.raises(onelock.ServerUnavailable, match="certificate"):
                await client.lock(name).acquire(1)
            assert loop.seen == []

    run(loop, work())


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_connection_that_the_server_closes(loop: Loop, secured: Secured, name: str, tls: bool) -> None:
    async def work() -> None:
        url, options = (secured.tls_url, {"ca_file": str(secured.ca)}) if tls else (secured.url, {})
        async with AsyncClient(url, **options) as client:  # type: ignore[arg-type]
            for _ in range(3):
                seen = await moored(loop, client, name)
                async with client.lock(name) as lease:
                    assert secured.command("CLIENT", "KILL", "ADDR", f"127.0.0.1:{seen.local}") == 1
                    # the loop has not heard of it yet, and a release is tried once; clean-up does the rest
                    assert await lease.release() in (Release.UNCONFIRMED, Release.RELEASED)
                await (await client.lock(name).acquire(10)).release()
                # the loop lets go of it, and has another one later
                while seen.watched:
                    await asyncio.sleep(0.001)
                assert facts(secured, seen) is None

    run(loop, work())


# ---- Sentinels --------------------------------------------------------------------------------------------------------


def test_a_failover(loop: Loop, tmp_path: Path, name: str) -> None:
    group = Group(tmp_path)

    async def work() -> None:
        async with AsyncClient(group.url) as client:
            before = await moored(loop, client, name)
            old = group.master
            assert before.remote == old.port
            held = await client.lock(f"{name}:held", ttl=60).acquire()
            token = old.command("GET", f"{name}:held")
            until(lambda: all(server.command("GET", f"{name}:held") == token for server in group.servers))

            done, rounds = False, 0

            async def busy() -> None:
                """Goes on all the while; what a failover costs is time."""
                nonlocal rounds
                while not done:
                    lease = await client.lock(f"{name}:busy", ttl=2).acquire(60)
                    # lost with the old master, perhaps
                    await lease.release()
                    rounds += 1

            task = asyncio.ensure_future(busy())
            await asyncio.to_thread(group.fail_over)
            done = True
            await task
            assert rounds > 10
            new = group.master
            assert new is not old

            after = await moored(loop, client, name)
            assert after.remote == new.port
            assert not before.watched
            assert held.held
            seen = await client.inspect(f"{name}:held")
            assert seen is not None
            assert seen.fencing_token == held.fencing_token
            assert await held.release() is Release.RELEASED
            assert new.command("GET", f"{name}:held") is None
            await contend(client, name)

    try:
        run(loop, work(), 150)
    finally:
        group.stop()


# ---- forks ------------------------------------------------------------------------------------------------------------


class Child:
    """A forked child that runs `work` and then waits to be told to end."""

    def __init__(self, work: Callable[[], object]) -> None:
        done, tell = os.pipe()
        wait, self._end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._end)
            status = 1
            try:
                work()
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os.write(tell, b"%d" % status)
                # it keeps what it inherited until then
                os.read(wait, 1)
                os._exit(status)
        os.close(tell)
        os.close(wait)
        self._done = done

    async def done(self) -> int:
        """What came of its work; it still lives."""
        status = await asyncio.to_thread(os.read, self._done, 1)
        return int(status or b"9")

    def end(self) -> None:
        os.close(self._end)
        os.close(self._done)
        os.waitpid(self.pid, 0)


@asynccontextmanager
async def forked(work: Callable[[], object]) -> AsyncGenerator[Child, None]:
    child = Child(work)
    try:
        yield child
    finally:
        child.end()


Given = tuple[Server, str, dict[str, Any]]


@pytest.fixture(params=["plain", "tls"])
def given(request: pytest.FixtureRequest, server: Server, secured: Secured) -> Given:
    """A server, its address, and options for clients."""
    if request.param == "plain":
        return server, server.url, {}
    return secured, secured.tls_url, {"ca_file": str(secured.ca)}


def sent(server: Server, seen: Seen) -> str:
    """What the server says about what has come over a connection, in all."""
    found = facts(server, seen)
    assert found is not None, "the connection is closed"
    # Redis 7.0 counts nothing; but every command makes another one the last, and what was not read stands in `qbuf`
    return " ".join(found.get(field, "") for field in ("tot-net-in", "tot-cmds", "cmd", "qbuf"))


async def goes_on(loop: Loop, client: AsyncClient, name: str, seen: Seen) -> None:
    """The parent still has and uses the very same connection."""
    calls = seen.calls
    for _ in range(20):
        async with client.lock(name):
            pass
    assert loop.watched == [seen]
    assert seen.calls >= calls + 40


def test_a_child_that_ends_at_once(loop: Loop, given: Given, name: str) -> None:
    server, url, options = given

    async def work() -> None:
        async with AsyncClient(url, **options) as client:
            seen = await moored(loop, client, name)
            async with client.lock(f"{name}:held") as lease:
                before = sent(server, seen)
                async with forked(lambda: None) as child:
                    assert await child.done() == 0
                    assert sent(server, seen) == before
                    await goes_on(loop, client, name, seen)
                assert lease.held
                await goes_on(loop, client, name, seen)

    run(loop, work())


@pytest.mark.parametrize("own", [True, False], ids=["a client of its own", "the client of the parent"])
def test_a_child_with_a_loop_of_its_own(loop: Loop, given: Given, name: str, own: bool) -> None:
    server, url, options = given
    kind = cast("Any", type(loop))

    async def work() -> None:
        async with AsyncClient(url, **options) as client:
            seen = await moored(loop, client, name)
            async with client.lock(f"{name}:held") as lease:
                before = sent(server, seen)

                def in_child() -> None:
                    fresh = kind()
                    fresh.seen = []
                    theirs = AsyncClient(url, **options) if own else client

                    async def use() -> None:
                        mine = await moored(fresh, theirs, f"{name}:child")
                        assert mine.local != seen.local
                        await contend(theirs, f"{name}:child")
                        assert await theirs.lock(f"{name}:held").try_acquire() is None
                        assert not lease.held
                        await theirs.close()
                        assert not fresh.watched

                    run(fresh, use())
                    fresh.close()

                async with forked(in_child) as child:
                    assert await child.done() == 0
                    assert sent(server, seen) == before
                    await goes_on(loop, client, name, seen)
                assert lease.held
                await goes_on(loop, client, name, seen)

    run(loop, work())


def test_a_child_that_lets_go_of_what_it_inherited(loop: Loop, given: Given, name: str) -> None:
    """Its loop, the connection and the client go, in the child only."""
    server, url, options = given
    clients = [AsyncClient(url, **options)]

    async def use() -> Seen:
        return await moored(loop, clients[0], name)

    # the fork is between two runs: then the child may do away with the loop
    seen = run(loop, use())
    before = sent(server, seen)
    loops: list[Any] = [loop]

    def in_child() -> None:
        inherited = loops.pop()
        # what closing it does, but for what it does to the epoll set, which it shares with its parent
        if isinstance(inherited, Selecting):
            inherited._selector._fd_to_key.clear()
        clients.clear()
        del inherited
        gc.collect()
        with Client(url, **options) as client, client.lock(f"{name}:child"):
            pass

    child = Child(in_child)

    async def after() -> None:
        try:
            assert await child.done() == 0
            assert sent(server, seen) == before
            await goes_on(loop, clients[0], name, seen)
        finally:
            child.end()
        await goes_on(loop, clients[0], name, seen)
        await clients[0].close()

    run(loop, after())


def test_a_connection_is_closed_although_a_child_still_has_it(loop: Loop, given: Given, name: str) -> None:
    server, url, options = given

    async def work() -> None:
        async with AsyncClient(url, **options) as client:
            seen = await moored(loop, client, name)
            async with forked(lambda: None) as child:
                assert await child.done() == 0
                assert server.command("CLIENT", "KILL", "ADDR", f"127.0.0.1:{seen.local}") == 1
                while seen.watched:
                    await asyncio.sleep(0.001)
                calls, after = seen.calls, await moored(loop, client, name)
                assert after.local != seen.local
                assert seen.calls == calls
                # one that we close is closed for the server too
                await client.close()
                while after.watched:
                    await asyncio.sleep(0.001)
                until(lambda: facts(server, after) is None)
                if isinstance(loop, Selecting):
                    await idle(loop)

    run(loop, work())


async def idle(loop: Loop) -> None:
    """The loop sleeps: it is not woken for what nobody watches."""
    selector: Any = loop._selector
    select: Any = selector.select
    turns = 0

    def counted(timeout: float | None = None) -> Any:
        nonlocal turns
        turns += 1
        return select(timeout)

    selector.select = counted
    await asyncio.sleep(0.3)
    del selector.select
    assert turns < 30

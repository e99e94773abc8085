"""A function gives the credentials of each new connection."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from conftest import Server, until
from onelock import (
    AsyncClient,
    AuthenticationFailed,
    Client,
    InvalidArgument,
    ServerUnavailable,
)

LIMIT = 30.0


class Vault:
    """What is given as a password, or why there is none."""

    def __init__(self, password: str) -> None:
        self.password: str | Exception = password
        self.asked = 0
        self.threads: set[str] = set()

    def __call__(self) -> tuple[str, str]:
        self.asked += 1
        self.threads.add(threading.current_thread().name)
        if isinstance(self.password, Exception):
            raise self.password
        return "app", self.password


class LoopVault(Vault):
    """The same, awaited."""

    loops: set[asyncio.AbstractEventLoop]

    async def give(self) -> tuple[str, str]:
        self.loops = {*getattr(self, "loops", ()), asyncio.get_running_loop()}
        await asyncio.sleep(0)
        return self()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own: its connections are counted."""
    server = Server(tmp_path_factory.mktemp("guarded"))
    yield server
    server.stop()


def rotate(server: Server, password: str, *, cut: bool = True) -> None:
    server.command("ACL", "SETUSER", "app", "on", "resetpass", f">{password}", "~*", "&*", "+@all")
    if cut:
        server.command("CLIENT", "KILL", "USER", "app")


def users(server: Server) -> set[str]:
    lines = str(server.command("CLIENT", "LIST")).splitlines()
    ours = [dict(part.split("=", 1) for part in line.split() if "=" in part) for line in lines]
    return {line["user"] for line in ours if line.get("lib-name") == "onelock"}


def test_each_connection_asks_anew(guarded: Server, name: str) -> None:
    rotate(guarded, "first")
    vault = Vault("first")
    with Client(guarded.url, credentials=vault, label="counted") as client:
        assert vault.asked == 0
        with client.lock(name, ttl=6) as lease:
            assert vault.asked > 0
            assert users(guarded) == {"app"}
            for password in ("second", "third"):
                asked, renewals = vault.asked, client.stats().renewals
                vault.password = password
                rotate(guarded, password)

                def renewed(asked: int = asked, renewals: int = renewals) -> bool:
                    # a connection that had asked and was not yet the user's has been spared
                    if vault.asked == asked:
                        guarded.command("CLIENT", "KILL", "USER", "app")
                    return client.stats().renewals > renewals and vault.asked > asked

                until(renewed, LIMIT)
                lease.extend(6)
                assert lease.held
        asked = vault.asked
        for _ in range(20):
            with client.lock(name):
                pass
        assert vault.asked <= asked + 1
        # what it is called on is none of Python's threads, and never the one that renews
        assert all(thread.startswith("Dummy") for thread in vault.threads)


def test_as_many_questions_as_connections(tmp_path: Path, name: str) -> None:
    server = Server(tmp_path)
    try:
        rotate(server, "first", cut=False)
        base = int(server.info("stats")["total_connections_received"])
        vault = Vault("first")
        with Client(server.url, credentials=vault) as client:

            def use() -> None:
                for _ in range(3):
                    with client.lock(f"{name}:{threading.get_ident()}", timeout=LIMIT):
                        pass

            threads = [threading.Thread(target=use) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

            # each look is a connection of its own
            looks = 0
            while True:
                looks += 1
                seen = int(server.info("stats")["total_connections_received"]) - base - looks
                if seen == vault.asked:
                    break
                assert looks < 500, (seen, vault.asked)
                time.sleep(0.01)
    finally:
        server.stop()


def test_a_failure_says_why_and_passes(guarded: Server, name: str) -> None:
    rotate(guarded, "first")
    vault = Vault("first")
    with Client(guarded.url, credentials=vault, connect_timeout=1, request_timeout=1) as client:
        vault.password = OSError("no token today")
        with pytest.raises(
            ServerUnavailable, match="the credentials provider failed: OSError: no token today"
        ) as caught:
            client.check()
        assert caught.value.retryable
        vault.password = "hunter2"
        with pytest.raises(AuthenticationFailed) as refused:
            client.check()
        assert "hunter2" not in str(refused.value) + repr(refused.value)
        vault.password = "first"
        client.lock(name).acquire(timeout=LIMIT).release()
        # a waiting acquire is granted when the provider recovers
        vault.password = OSError("away")
        rotate(guarded, "second")
        timer = threading.Timer(0.5, lambda: setattr(vault, "password", "second"))
        timer.start()
        client.lock(f"{name}:2").acquire(timeout=LIMIT).release()


@pytest.mark.parametrize("given", ["first", ("first",), (None, "first"), ["default", "first"]])
def test_what_can_be_given(server: Server, given: Any) -> None:
    # the default user of this server takes any password
    with Client(server.url, credentials=lambda: given) as client:
        client.check()


@pytest.mark.parametrize("given", [None, 5, b"first", (), ("a", b"first"), (5, "first"), ("a", "first", "x"), {}])
def test_what_cannot_be_given(server: Server, given: Any) -> None:
    with Client(server.url, credentials=lambda: given) as client:
        with pytest.raises(ServerUnavailable, match="must give a password, or a user name and a password") as caught:
            client.check()
        assert "first" not in str(caught.value)


def test_what_is_refused_when_a_client_is_made(server: Server) -> None:
    vault = Vault("first")
    with pytest.raises(InvalidArgument, match="user name or password, and the option credentials"):
        Client(f"redis://app:hunter2@127.0.0.1:{server.port}", credentials=vault)
    with pytest.raises(TypeError, match="must be a function"):
        Client(server.url, credentials="hunter2")  # type: ignore[arg-type]

    async def later() -> str:
        return "first"

    with pytest.raises(TypeError, match="only an AsyncClient awaits"):
        Client(server.url, credentials=later)  # type: ignore[arg-type]
    client = Client(server.url, credentials=lambda: later())  # type: ignore[arg-type, return-value]
    with client, pytest.raises(ServerUnavailable, match="only an AsyncClient awaits"), pytest.warns(RuntimeWarning):
        client.check()
    with Client("memory://", credentials=vault) as client:
        client.check()
    assert vault.asked == 0


def test_a_slow_function_is_bounded_and_stops_nobody_else(guarded: Server, name: str) -> None:
    rotate(guarded, "first")
    gate = threading.Event()

    def slow() -> tuple[str, str]:
        gate.wait(LIMIT)
        return "app", "first"

    with (
        Client(guarded.url) as other,
        Client(guarded.url, credentials=slow, connect_timeout=0.5, request_timeout=0.3) as client,
    ):
        lease = other.lock(name, ttl=1.8).acquire()
        begun = time.monotonic()
        with pytest.raises(ServerUnavailable, match="the credentials provider did not answer in time"):
            client.lock(f"{name}:2").acquire(timeout=0)
        assert time.monotonic() - begun < 10
        renewals = other.stats().renewals
        until(lambda: other.stats().renewals > renewals + 3)
        assert lease.held
        lease.release()
        gate.set()
        client.lock(f"{name}:2").acquire(timeout=LIMIT).release()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    make = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        loop = make()
        try:
            return loop.run_until_complete(asyncio.wait_for(work, 60))
        finally:
            loop.close()

    return run


@pytest.mark.parametrize("awaited", [True, False])
def test_asyncio(guarded: Server, name: str, run: Callable[..., Any], awaited: bool) -> None:
    rotate(guarded, "first")
    vault = LoopVault("first")

    async def work() -> None:
        client = AsyncClient(guarded.url, credentials=vault.give if awaited else vault)
        async with client, client.lock(name, ttl=6) as lease:
            for password in ("second", "third"):
                asked, renewals = vault.asked, client.stats().renewals
                vault.password = password
                await asyncio.to_thread(rotate, guarded, password)
                end = time.monotonic() + LIMIT
                while client.stats().renewals == renewals:
                    assert time.monotonic() < end
                    await asyncio.sleep(0.01)
                await lease.extend(6)
                assert lease.held
                assert vault.asked > asked
        if awaited:
            assert vault.loops == {asyncio.get_running_loop()}

    run(work())


def test_asyncio_failures(guarded: Server, name: str, run: Callable[..., Any]) -> None:
    rotate(guarded, "first")
    vault = LoopVault("first")

    async def work() -> None:
        async with AsyncClient(guarded.url, credentials=vault.give, connect_timeout=1) as client:
            vault.password = OSError("no token today")
            with pytest.raises(ServerUnavailable, match="the credentials provider failed: OSError: no token today"):
                await client.check()
            vault.password = "first"
            await (await client.lock(name).acquire(timeout=LIMIT)).release()

        async def never() -> str:
            await asyncio.Event().wait()
            return ""

        async with AsyncClient(guarded.url, credentials=never, connect_timeout=0.5, request_timeout=0.3) as client:
            begun = time.monotonic()
            with pytest.raises(ServerUnavailable, match="the credentials provider"):
                await client.lock(name).acquire(timeout=0)
            assert time.monotonic() - begun < 10
        # nothing is left that waits in the loop
        end = time.monotonic() + LIMIT
        while len(asyncio.all_tasks()) > 2:
            assert time.monotonic() < end, asyncio.all_tasks()
            await asyncio.sleep(0.01)

    run(work())


def test_a_client_whose_loop_has_ended_asks_in_another(guarded: Server, name: str) -> None:
    rotate(guarded, "first")
    vault = LoopVault("first")
    client = AsyncClient(guarded.url, credentials=vault.give)
    lock = client.lock(name)

    async def use() -> None:
        async with lock:
            pass

    asyncio.run(use())
    rotate(guarded, "first")
    asyncio.run(use())
    asyncio.run(client.close())
    assert len(vault.loops) == 2


def test_the_example_in_the_documentation() -> None:
    assert Client.__doc__
    example = Client.__doc__.split("default user:\n\n")[1].split("    It is called for every")[0]
    found: dict[str, Any] = {}
    exec(textwrap.dedent(example), found)
    # nothing listens there
    with pytest.raises(FileNotFoundError):
        found["token"]()
    found["client"].close()


PROGRAM = """
    import os, sys, threading, time
    from onelock import Client
    url = sys.argv[1]
"""


def program(body: str, *arguments: str) -> subprocess.Popen[str]:
    code = textwrap.dedent(PROGRAM) + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_ctrl_c_while_a_connection_waits_for_the_answer(guarded: Server) -> None:
    child = program(
        """
        def slow():
            os.write(1, b"asked\\n")
            time.sleep(30)
            return "app", "first"
        try:
            Client(url, credentials=slow, connect_timeout=30).lock("a").acquire()
        except KeyboardInterrupt:
            print("stopped", flush=True)
            os._exit(0)
        """,
        guarded.url,
    )
    with child:
        assert child.stdout
        assert child.stdout.readline() == "asked\n"
        begun = time.monotonic()
        child.send_signal(signal.SIGINT)
        # the look at the server, in the background, asks too
        rest, errors = child.communicate(timeout=60)
        took = time.monotonic() - begun
        assert (rest.removeprefix("asked\n"), errors, child.wait(LIMIT)) == ("stopped\n", "", 0)
        assert took < 15


def test_the_program_ends_although_a_function_does_not(guarded: Server) -> None:
    child = program(
        """
        asked = threading.Event()
        def stuck():
            asked.set()
            time.sleep(3600)
        client = Client(url, credentials=stuck, connect_timeout=20)
        threading.Thread(target=lambda: client.lock("a").acquire(), daemon=True).start()
        asked.wait()
        print("end", flush=True)
        """,
        guarded.url,
    )
    out, complaints = child.communicate(timeout=LIMIT)
    assert (child.returncode, out) == (0, "end\n")
    # on a busy machine the second that the end waits for may be over before the call has been given up
    assert complaints == "" or complaints.endswith(
        "closed before everything was released; the rest ends with its ttl\n"
    )
    assert len(complaints.splitlines()) <= 1


def test_a_child_asks_for_itself(guarded: Server, name: str) -> None:
    rotate(guarded, "first")
    child = program(
        """
        asked = []
        def credentials():
            asked.append(os.getpid())
            return "app", "first"
        client = Client(url, credentials=credentials)
        lease = client.lock("parent").acquire()
        pid = os.fork()
        if pid == 0:
            asked.clear()
            with client.lock("child"):
                os._exit(0 if set(asked) == {os.getpid()} else 3)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), lease.held, set(asked) == {os.getpid()}, flush=True)
        """,
        guarded.url,
    )
    out, complaints = child.communicate(timeout=LIMIT)
    assert (out, complaints, child.returncode) == ("0 True True\n", "", 0)

"""What goes on around the library: the interpreter lock, signals, forks, threads, the end of the interpreter, logging."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

import onelock
from conftest import Server, is_free, until
from onelock import Client, LeaseForked, Release


def python(url: str, code: str, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that must end by itself."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(code), url, *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, **more},
    )


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What it wrote to standard error."""
    return done.stderr.splitlines()


# ---- the interpreter lock ---------------------------------------------------------------------------------------------


def test_renewal_goes_on_while_the_interpreter_is_locked(client: Client, name: str) -> None:
    with client.lock(name, ttl=3) as lease:
        before = client.stats().renewals
        # a call into C that does not let go of the interpreter, for longer than the ttl
        ctypes.PyDLL(None).usleep(4_500_000)
        assert lease.held
        assert client.stats().renewals >= before + 3


def test_a_wait_does_not_hold_the_interpreter(client: Client, server: Server, name: str) -> None:
    # a single request to a server that does not answer
    lock = client.lock(name)
    lock.acquire().release()
    server.process.send_signal(signal.SIGSTOP)
    try:
        steps, done = 0, threading.Event()

        def work() -> None:
            with pytest.raises(onelock.ServerUnavailable):
                lock.acquire(0)
            done.set()

        thread = threading.Thread(target=work)
        thread.start()
        while not done.wait(0.001):
            steps += 1
        assert steps > 100
        thread.join()
    finally:
        server.process.send_signal(signal.SIGCONT)


# ---- signals ----------------------------------------------------------------------------------------------------------


class Knock(Exception):
    """Raised by a handler."""


@pytest.fixture
def knocking() -> Iterator[list[float]]:
    """A signal whose handler raises, and when it was sent."""
    sent: list[float] = []

    def handle(_: int, __: FrameType | None) -> None:
        raise Knock

    before = signal.signal(signal.SIGUSR1, handle)
    yield sent
    signal.signal(signal.SIGUSR1, before or signal.SIG_DFL)


def knock(sent: list[float], ready: threading.Event) -> None:
    ready.wait()
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGUSR1)


def test_ctrl_c_ends_a_wait_at_once(client: Client, url: str, name: str) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with client.lock(name):
            sent: list[float] = []

            def interrupt() -> None:
                until(lambda: client.stats().waiting == 1)
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

            for _ in range(3):
                sent.clear()
                thread = threading.Thread(target=interrupt)
                thread.start()
                with pytest.raises(KeyboardInterrupt):
                    client.lock(name).acquire()
                took = time.monotonic() - sent[0]
                thread.join()
                assert took < 0.1 or os.getloadavg()[0] > 2, took
                until(lambda: client.stats().waiting == 0)
    finally:
        signal.signal(signal.SIGINT, before)
    until(lambda: is_free(url, name))


def test_a_signal_ends_a_request_to_a_silent_server(server: Server, name: str, knocking: list[float]) -> None:
    # clean-up goes on for a ttl, since the request may still arrive
    with Client(server.url, request_timeout=20, ttl=2) as client:
        lock = client.lock(name)
        lock.acquire().release()
        sent = client.stats().commands_sent
        server.process.send_signal(signal.SIGSTOP)
        try:

            def interrupt() -> None:
                until(lambda: client.stats().commands_sent > sent)
                time.sleep(0.05)
                os.kill(os.getpid(), signal.SIGUSR1)

            thread = threading.Thread(target=interrupt)
            thread.start()
            start = time.monotonic()
            with pytest.raises(Knock):
                lock.acquire()
            assert time.monotonic() - start < 15
            thread.join()
        finally:
            server.process.send_signal(signal.SIGCONT)
        # the server executes the request now, and its undo after it
        until(lambda: is_free(server.url, name))


def test_a_handler_that_does_not_raise_runs_while_waiting(client: Client, name: str) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        with client.lock(name):
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            with pytest.raises(onelock.LockTimeout):
                client.lock(name).acquire(0.4)
            assert seen == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_may_use_locks_too(client: Client, name: str) -> None:
    seen: list[bool] = []

    def handle(_: int, __: FrameType | None) -> None:
        with client.lock(f"{name}:other", timeout=5) as lease:
            seen.append(lease.held)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with client.lock(name):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(onelock.LockTimeout):
                client.lock(name).acquire(0.4)
            assert seen == [True]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_signals_in_a_storm_leave_nothing_held(client: Client, url: str, name: str, knocking: list[float]) -> None:
    """A handler raises at any point of acquire, scope and release."""
    stop, armed = threading.Event(), [False]

    def handle(_: int, __: FrameType | None) -> None:
        # once each time: not while the last one is handled, where nothing would catch it
        if armed[0]:
            armed[0] = False
            raise Knock

    signal.signal(signal.SIGUSR1, handle)

    def storm() -> None:
        while not stop.is_set():
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.002)

    lock, caught = client.lock(name), 0
    end = time.monotonic() + 2
    thread = threading.Thread(target=storm)
    while True:
        try:
            if thread.ident is None:
                thread.start()
            armed[0] = True
            while time.monotonic() < end:
                with lock as lease:
                    assert lease.held
            # from here on it raises no more
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            break
        except Knock:
            caught += 1
    stop.set()
    thread.join()
    assert caught > 50
    until(lambda: client.stats().held + client.stats().cleaning == 0)
    assert is_free(url, name)


test_signals_in_a_storm_leave_nothing_held = pytest.mark.filterwarnings("ignore::ResourceWarning")(
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")(
        test_signals_in_a_storm_leave_nothing_held
    )
)


# ---- forks ------------------------------------------------------------------------------------------------------------


def in_child(work: object) -> int:
    """Runs `work` in a forked child; its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()  # type: ignore[operator]
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_lease_does_not_cross_a_fork(client: Client, url: str, name: str) -> None:
    lock = client.lock(name)
    with lock as lease:

        def child() -> None:
            assert not lease.held
            assert lease.remaining == 0
            with pytest.raises(LeaseForked):
                lease.release()
            with pytest.raises(LeaseForked):
                lease.extend(5)
            assert lock.try_acquire() is None, "the parent holds it"
            with client.lock(f"{name}:child") as own:
                assert own.held

        assert in_child(child) == 0
        assert lease.held
        assert not is_free(url, name)
    assert client.inspect(name) is None


def test_a_scope_that_a_child_leaves_is_silent(client: Client, url: str, name: str) -> None:
    lock = client.lock(name)
    pid = 0
    with lock as lease:
        pid = os.fork()
    if pid == 0:
        os._exit(0 if not lease.held else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert lease.release() is Release.ALREADY_RELEASED
    with lock:
        assert not is_free(url, name)


def test_children_of_a_busy_parent(client: Client, name: str) -> None:
    """Forks while other threads acquire, release and wait."""
    stop = threading.Event()

    def busy(number: int) -> None:
        while not stop.is_set():
            with client.lock(f"{name}:{number % 2}", timeout=5):
                pass

    threads = [threading.Thread(target=busy, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()

    def child() -> None:
        for number in range(20):
            with client.lock(f"{name}:{number % 2}", timeout=10) as lease:
                assert lease.held

    try:
        for _ in range(8):
            assert in_child(child) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _pool_work(url: str, name: str, path: str) -> bool:
    with Client(url) as client, client.lock(name, timeout=30) as lease:
        with open(path) as file:
            count = int(file.read() or 0)
        with open(path, "w") as file:
            file.write(str(count + 1))
        return lease.held


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(client: Client, url: str, name: str, tmp_path: os.PathLike[str], method: str) -> None:
    path = os.path.join(tmp_path, "count")
    with open(path, "w"):
        pass
    client.lock(name).acquire().release()
    with multiprocessing.get_context(method).Pool(3) as pool:
        assert all(pool.starmap(_pool_work, [(url, name, path)] * 12))
    with open(path) as file:
        assert file.read() == "12"


def test_a_process_of_multiprocessing_gives_back_at_its_end(url: str, name: str) -> None:
    done = python(
        url,
        """
        import multiprocessing, sys
        from onelock import Client
        client = Client(sys.argv[1])
        kept = []
        def work():
            kept.append(client.lock(sys.argv[2]).acquire())
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start(); process.join()
        assert process.exitcode == 0
        """,
        name,
    )
    assert (done.returncode, said(done)) == (0, [])
    assert is_free(url, name)


# ---- the end of the interpreter ---------------------------------------------------------------------------------------


def test_what_is_held_is_released_at_the_end(url: str, name: str) -> None:
    done = python(
        url,
        """
        import sys
        from onelock import Client
        client = Client(sys.argv[1])
        lease = client.lock(sys.argv[2]).acquire()
        assert lease.held
        """,
        name,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr
    assert is_free(url, name)


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_a_lease_that_outlives_its_client_is_released_at_the_end(url: str, name: str, face: str) -> None:
    done = python(
        url,
        """
        import asyncio, ctypes, sys
        from onelock import AsyncClient, Client
        async def acquire():
            return await AsyncClient(sys.argv[1]).lock(sys.argv[2]).acquire()
        lease = asyncio.run(acquire()) if sys.argv[3] == "asyncio" else Client(sys.argv[1]).lock(sys.argv[2]).acquire()
        # nothing lets go of it before the process ends
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(lease))
        assert lease.held
        """,
        name,
        face,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr
    assert is_free(url, name)


def test_a_daemon_thread_that_waits_does_not_disturb_the_end(url: str, name: str) -> None:
    with Client(url) as client, client.lock(name):
        start = time.monotonic()
        done = python(
            url,
            """
            import sys, threading, time
            from onelock import Client
            client = Client(sys.argv[1])
            for _ in range(5):
                threading.Thread(target=client.lock(sys.argv[2]).acquire, daemon=True).start()
            while client.stats().waiting < 5: time.sleep(0.001)
            """,
            name,
        )
        assert (done.returncode, said(done)) == (0, [])
        assert time.monotonic() - start < 10


def test_an_end_in_the_middle_of_asyncio(url: str, name: str) -> None:
    done = python(
        url,
        """
        import asyncio, sys
        from onelock import AsyncClient
        async def main():
            client = AsyncClient(sys.argv[1])
            lease = await client.lock(sys.argv[2]).acquire()
            asyncio.ensure_future(client.lock(sys.argv[2]).acquire())
            asyncio.ensure_future(lease.lost())
            await asyncio.sleep(0.05)
            sys.exit(3)
        asyncio.run(main())
        """,
        name,
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr, done.stderr
    assert is_free(url, name)


def test_the_end_does_not_wait_for_a_server_that_is_gone(server: Server, name: str) -> None:
    code = """
    import os, signal, sys
    from onelock import Client
    client = Client(sys.argv[1], request_timeout=5, close_timeout=30)
    lease = client.lock(sys.argv[2]).acquire()
    os.kill(int(sys.argv[3]), signal.SIGSTOP)
    """
    start = time.monotonic()
    try:
        done = python(server.url, code, name, str(server.process.pid))
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert time.monotonic() - start < 25


# ---- logging, imports -------------------------------------------------------------------------------------------------


def test_logging(url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "onelock")
    with Client(url) as client:
        lease = client.lock(name, ttl=1.2).acquire()
        client.force_release(name)
        until(lambda: lease.loss)
        until(lambda: any("lost" in record.message and name in record.message for record in caplog.records))
        lease.release()
    found = [record for record in caplog.records if "(persistence)" in record.message]
    assert all(record.levelno == logging.INFO and record.message.startswith("onelock: ") for record in found)
    levels = {record.levelno for record in caplog.records if record.name == "onelock"}
    assert logging.WARNING in levels
    assert logging.DEBUG in levels


def test_the_level_is_followed(url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with Client(url) as client:
        caplog.set_level(logging.ERROR, "onelock")
        client.lock(name).acquire().release()
        client.force_release(name)
        before = [record for record in caplog.records if record.levelno < logging.ERROR]
        assert not before
        caplog.set_level(logging.DEBUG, "onelock")
        client.lock(name).acquire().release()
        client.check()
        until(lambda: any(record.levelno == logging.DEBUG for record in caplog.records))


def test_nothing_is_imported_before_it_is_needed() -> None:
    done = python(
        "",
        """
        import sys
        before = set(sys.modules)
        import onelock
        loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
        unwanted = {"asyncio", "logging", "typing", "inspect", "dataclasses", "datetime", "socket", "ssl", "multiprocessing"}
        assert not loaded & unwanted, loaded & unwanted
        assert callable(onelock.AsyncClient)
        assert "asyncio" in sys.modules
        assert "AsyncClient" in dir(onelock)
        """,
    )
    assert (done.returncode, said(done)) == (0, [])


def test_importing_is_quick() -> None:
    def best(code: str) -> float:
        """The time of a processor that it takes: what else the machine does counts little."""
        took: list[float] = []
        for _ in range(9):
            process = subprocess.Popen([sys.executable, "-c", code])
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0
            took.append(used.ru_utime + used.ru_stime)
        return min(took)

    assert best("import onelock") - best("pass") < 0.03

"""Locks in etcd: blocking callers, event loops, signals, forks and the end of a process, as on Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import onelock
from conftest import ROOT, is_free, until
from onelock import AsyncClient, Client, LeaseForked, Release


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """One server for all; each test has names of its own."""
    words = [str(ROOT / "tools" / "with-etcd.sh"), "sh", "-c", "echo $ONELOCK_URL; exec cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        # without input it ends
        server.communicate()


@pytest.fixture
def url(address: str) -> str:
    return address


def test_a_blocking_wait_lets_other_threads_run_and_is_woken(client: Client, url: str, name: str) -> None:
    with Client(url) as other:
        lease = other.lock(name).acquire()
        done: list[onelock.Lease] = []
        thread = threading.Thread(target=lambda: done.append(client.lock(name).acquire(60)))
        thread.start()
        until(lambda: client.stats().waiting == 1)
        assert not done
        token = lease.fencing_token
        assert lease.release() is Release.RELEASED
        thread.join(60)
        assert token is not None
        assert (done[0].fencing_token or 0) > token
        done[0].release()


def test_ctrl_c_ends_a_wait_and_leaves_no_place(client: Client, url: str, name: str) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with client.lock(name):

            def interrupt() -> None:
                until(lambda: client.stats().waiting == 1)
                os.kill(os.getpid(), signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                client.lock(name).acquire()
            thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    until(lambda: client.stats().waiting == 0 and is_free(url, name))


def test_the_loop_runs_while_a_task_waits_and_a_cancelled_one_leaves_nothing(url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client, AsyncClient(url) as other:
            lease = await other.lock(name).acquire()
            gives_up = asyncio.create_task(client.lock(name).acquire())
            waits = asyncio.create_task(client.lock(name).acquire())
            ticks = 0
            while client.stats().waiting < 2 or ticks < 50:
                await asyncio.sleep(0.001)
                ticks += 1
            gives_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gives_up
            assert await lease.release() is Release.RELEASED
            async with await waits as mine:
                assert mine.held
            assert await other.lock(name).try_acquire() is not None

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_child_has_no_lease_of_its_parent(client: Client, url: str, name: str) -> None:
    lock = client.lock(name)
    with lock as lease:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                assert not lease.held
                with pytest.raises(LeaseForked):
                    lease.release()
                assert lock.try_acquire() is None, "the parent holds it"
                with client.lock(f"{name}:child") as own:
                    assert own.held
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert lease.held
        assert not is_free(url, name)
    assert is_free(url, name)
    assert is_free(url, f"{name}:child")


def test_the_end_of_a_process_releases(url: str, name: str) -> None:
    program = "import onelock, sys; lease = onelock.Client(sys.argv[1]).lock(sys.argv[2], ttl=3600).acquire()"
    for end in ["", "; raise ValueError"]:
        done = subprocess.run(
            [sys.executable, "-c", program + end, url, name], capture_output=True, timeout=60, check=False
        )
        assert (done.returncode == 0) is (end == ""), done.stderr
        assert is_free(url, name)

"""Locks in files, as a server with several worker processes uses them: the client is made before the fork."""

import asyncio
import os
import pathlib
import signal
from collections.abc import Callable, Iterator

import pytest

import onelock

WORKERS = 4
ROUNDS = 50


def in_children(work: Callable[[], None], count: int = WORKERS) -> list[int]:
    """Forks so many children and returns their numbers; each ends with status 0 when `work` did."""
    children: list[int] = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    return children


def count_on(counter: pathlib.Path) -> None:
    number = int(counter.read_text())
    counter.write_text(str(number + 1))


@pytest.fixture
def client(tmp_path: pathlib.Path) -> Iterator[onelock.Client]:
    with onelock.Client(f"file://{tmp_path}") as client:
        yield client


def test_workers_that_were_forked_count_to_the_same_number(client: onelock.Client, tmp_path: pathlib.Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    lock = client.lock("count")
    # the parent holds another lock meanwhile, which none of the children touches
    with client.lock("parent") as lease:

        def work() -> None:
            assert not lease.held
            assert client.lock("parent").try_acquire() is None
            for _ in range(ROUNDS):
                with lock:
                    count_on(counter)

        for child in in_children(work):
            assert os.waitpid(child, 0)[1] == 0
        assert lease.held
        assert client.lock("parent").try_acquire() is None
    assert counter.read_text() == str(WORKERS * ROUNDS)


def test_a_worker_that_is_killed_blocks_nobody(client: onelock.Client) -> None:
    read, write = os.pipe()

    def work() -> None:
        with client.lock("x", ttl=3600):
            os.write(write, b".")
            signal.pause()

    (child,) = in_children(work, 1)
    assert os.read(read, 1) == b"."
    assert client.lock("x").try_acquire() is None
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with client.lock("x", timeout=20) as lease:
        assert lease.held
    os.close(read)
    os.close(write)


def test_asyncio_and_another_process_take_turns(tmp_path: pathlib.Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")

    def work() -> None:
        with onelock.Client(f"file://{tmp_path}") as client:
            for _ in range(ROUNDS):
                with client.lock("count"):
                    count_on(counter)

    async def tasks() -> None:
        async with onelock.AsyncClient(f"file://{tmp_path}") as client:

            async def task() -> None:
                for _ in range(ROUNDS):
                    async with client.lock("count"):
                        count_on(counter)

            await asyncio.gather(*(task() for _ in range(3)))

    children = in_children(work, 2)
    asyncio.run(tasks())
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert counter.read_text() == str(5 * ROUNDS)


def test_what_files_lack_and_bad_addresses_say_so(client: onelock.Client, tmp_path: pathlib.Path) -> None:
    with pytest.raises(onelock.Unsupported, match="file:// has no fair_lock; it has lock, reentrant_lock"):
        client.fair_lock("x").acquire()
    with client.lock("x") as lease, pytest.raises(onelock.Unsupported, match="file:// has no attach"):
        lease.detach()
    for address in ["file://relative", "file:///", f"file://{tmp_path}?sink=1"]:
        with pytest.raises(ValueError, match="for example file:///var/lock/app"):
            onelock.Client(address)

"""Who re-enters, and who leaves: pools of threads, contexts, generators; with a FastAPI application."""

# FastAPI's annotations are read at run time, and the applications are made inside of tests
# pyright: basic

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import Depends, FastAPI

import onelock
from conftest import is_free, until
from onelock import Client, LockNotHeld, LockTimeout, Owner, owner_scope


class Room:
    """Who is inside at once."""

    def __init__(self) -> None:
        self.inside = self.most = self.visits = 0
        self._lock = threading.Lock()

    def come(self) -> None:
        with self._lock:
            self.inside += 1
            self.visits += 1
            self.most = max(self.most, self.inside)

    def go(self) -> None:
        with self._lock:
            self.inside -= 1

    def visit(self) -> None:
        self.come()
        # long enough for another request to come in if it may
        time.sleep(0.01)
        self.go()


async def get(app: FastAPI, path: str = "/") -> int:
    """The status of the answer."""
    status: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "server": ("test", 80),
        "client": ("test", 1),
    }
    await app(scope, receive, send)
    return status[0]


@pytest.mark.parametrize("shared", [True, False], ids=["one lock object", "a lock object each"])
def test_a_dependency_with_yield_lets_one_request_in(client: Client, url: str, name: str, shared: bool) -> None:
    """FastAPI enters and leaves a `def` dependency in calls into a pool: on any of its threads."""
    app, room = FastAPI(), Room()
    one = client.reentrant_lock(name, timeout=20)

    def locked() -> Iterator[None]:
        with one if shared else client.reentrant_lock(name, timeout=20) as lease:
            yield
            assert lease.held, "somebody else ended it"

    @app.get("/")
    async def work(_: None = Depends(locked)) -> None:
        # meanwhile the pool's thread that entered is free for the next request
        room.come()
        await asyncio.sleep(0.02)
        room.go()

    async def requests() -> list[int]:
        tasks: list[asyncio.Task[int]] = []
        for _ in range(16):
            # while another one is inside, if that goes
            while tasks and room.inside == 0 and not all(task.done() for task in tasks):
                await asyncio.sleep(0)
            tasks.append(asyncio.create_task(get(app)))
        return await asyncio.gather(*tasks)

    assert asyncio.run(requests()) == [200] * 16
    assert (room.most, room.visits) == (1, 16)
    assert is_free(url, name)


def test_the_owner_of_a_request(client: Client, url: str, name: str) -> None:
    """`owner_scope` in a middleware: dependency, endpoint and what they call re-enter; two requests do not."""
    app, room = FastAPI(), Room()
    counts: list[int] = []

    def locked() -> Iterator[None]:
        with client.reentrant_lock(name, timeout=20):
            yield

    @app.middleware("http")
    async def one_owner_per_request(request: Any, call_next: Callable[[Any], Any]) -> Any:
        with owner_scope():
            return await call_next(request)

    @app.get("/")
    def work(_: None = Depends(locked)) -> None:
        with client.reentrant_lock(name, timeout=20) as lease:
            counts.append(lease.hold_count)
            room.visit()

    async def requests() -> list[int]:
        return await asyncio.gather(*(get(app) for _ in range(8)))

    assert asyncio.run(requests()) == [200] * 8
    assert (room.most, room.visits) == (1, 8)
    assert counts == [2] * 8
    assert is_free(url, name)


def test_a_thread_of_a_pool_is_not_the_same_for_two_callers(client: Client, name: str) -> None:
    lock = client.reentrant_lock(name, timeout=0)
    with ThreadPoolExecutor(1) as pool:
        one, other = contextvars.copy_context(), contextvars.copy_context()
        lease = pool.submit(one.run, lock.acquire).result()
        with pytest.raises(onelock.LockBusy):
            pool.submit(other.run, lock.acquire).result()
        # who goes on in the same context is the same
        again = pool.submit(one.run, lock.acquire).result()
        assert again.hold_count == 2
        again.release()
        lease.release()


def test_a_context_that_was_copied_is_another_owner_in_another_thread(client: Client, name: str) -> None:
    async def work() -> None:
        with client.reentrant_lock(name), pytest.raises(LockTimeout):
            await asyncio.to_thread(client.reentrant_lock(name).acquire, 0.05)

    asyncio.run(work())


def test_scopes_of_owners(client: Client, name: str) -> None:
    lock = client.reentrant_lock(name, timeout=0)

    def enter() -> int:
        with lock as lease:
            return lease.hold_count

    def elsewhere(call: Callable[[], int]) -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(contextvars.copy_context().run, call).result()

    with owner_scope() as owner, lock:
        assert enter() == 2
        assert elsewhere(enter) == 2
        with client.reentrant_lock(name, owner=owner) as lease:
            assert lease.hold_count == 2
        with owner_scope(), pytest.raises(onelock.LockBusy):
            enter()
        assert enter() == 2
        with pytest.raises(onelock.LockBusy):
            client.reentrant_lock(name, owner=Owner()).acquire(0)
    with owner_scope(Owner("job 7")), lock, owner_scope(Owner("job 7")):
        assert enter() == 2


def test_the_owner_of_a_scope_is_that_of_tasks_too(url: str, name: str) -> None:
    async def work() -> None:
        async with onelock.AsyncClient(url) as client:
            lock = client.reentrant_lock(name, timeout=0)

            async def enter() -> int:
                async with lock as lease:
                    return lease.hold_count

            async with lock:
                with pytest.raises(onelock.LockBusy):
                    await asyncio.create_task(enter())
            with owner_scope():
                async with lock:
                    assert await asyncio.create_task(enter()) == 2

    asyncio.run(work())


def scope(lock: Any) -> Iterator[Any]:
    with lock as lease:
        yield lease


def test_a_scope_ends_its_own_lease_wherever_it_is_left(client: Client, name: str) -> None:
    """Two scopes of one lock object are open at once, since the first one was lost."""
    lock = client.lock(name, ttl=1.2)
    first, second = scope(lock), scope(lock)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        lost = one.submit(next, first).result()
        client.force_release(name)
        until(lambda: lost.loss)
        held = other.submit(next, second).result()
        # on the thread that entered the other one
        with pytest.raises(onelock.LockLost):
            other.submit(next, first).result()
        assert held.held
        assert one.submit(next, second, "ended").result() == "ended"
        assert not held.held


def test_an_exit_stack_ends_its_own(client: Client, name: str) -> None:
    lock = client.lock(name, ttl=1.2)
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    lost = first.enter_context(lock)
    client.force_release(name)
    until(lambda: lost.loss)
    held = second.enter_context(lock)
    with pytest.raises(onelock.LockLost):
        first.close()
    assert held.held
    second.close()
    assert not held.held


def test_a_scope_that_cannot_be_told_releases_nothing(client: Client, name: str) -> None:
    lock = client.lock(name, ttl=1.2)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other, ThreadPoolExecutor(1) as third:
        lost = one.submit(lock.__enter__).result()
        client.force_release(name)
        until(lambda: lost.loss)
        held = other.submit(lock.__enter__).result()
        with pytest.raises(LockNotHeld, match="entered by another caller"):
            third.submit(lock.__exit__, None, None, None).result()
        assert held.held
        # both where they were entered
        other.submit(lock.__exit__, None, None, None).result()
        assert not held.held
        with pytest.raises(onelock.LockLost):
            one.submit(lock.__exit__, None, None, None).result()

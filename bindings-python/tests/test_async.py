"""Locks and leases in asyncio, on the loop of the standard library and on uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

import onelock
from conftest import Server, is_free, until
from onelock import (
    AsyncClient,
    AsyncLease,
    AsyncLock,
    LockBusy,
    LockLost,
    LockTimeout,
    LossReason,
    Owner,
    Release,
    _pumps,
)

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop


@pytest.fixture
def run(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Run:
    """Runs a coroutine on a loop of its own, which must end without anything left over."""

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        problems: list[dict[str, Any]] = []
        loop = new_loop()
        loop.set_debug(True)
        loop.set_exception_handler(lambda _, context: problems.append(context))
        try:
            return loop.run_until_complete(asyncio.wait_for(work, 30))
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            gc.collect()
            assert not problems

    return run


def test_acquire_and_release(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with await AsyncClient.connect(url) as client:
            lease = await client.lock(name).acquire()
            assert isinstance(lease, AsyncLease)
            assert lease.held
            assert lease.name == name
            assert 29 < lease.remaining < 30
            assert await client.lock(name).is_locked()
            seen = await client.inspect(name)
            assert seen is not None
            assert seen.fencing_token == lease.fencing_token
            await lease.extend(60)
            assert lease.remaining > 50
            assert await lease.release() is Release.RELEASED
            assert not lease.held
            assert await lease.release() is Release.ALREADY_RELEASED
            assert "not held" in repr(lease)
            assert (await client.check()).server
            steps = {finding.step for finding in (await client.diagnose(name)).findings}
            assert steps >= {"tcp", "role", "round trip", "permission", "fencing"}
            assert client.stats().released == 1
            assert not await client.force_release(name)

    run(work())


def test_busy_timeout_and_try(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            lock = client.lock(name)
            async with lock:
                assert await lock.try_acquire() is None
                with pytest.raises(LockBusy):
                    await lock.acquire(0)
                with pytest.raises(LockTimeout):
                    await lock.acquire(timeout=0.05)
                with pytest.raises(LockTimeout):
                    async with client.lock(name, timeout=0.05):
                        pytest.fail("two holders")
                waiting = asyncio.ensure_future(lock.acquire(10))
                while client.stats().waiting == 0:
                    await asyncio.sleep(0.001)
            async with await waiting:
                pass
            got = await lock.try_acquire()
            assert got is not None
            await got.release()

    run(work())


def test_bad_arguments(run: Run, url: str) -> None:
    async def work() -> None:
        client = AsyncClient("redis://127.0.0.1:1/", connect_timeout=0.2)
        with pytest.raises(onelock.InvalidArgument):
            await client.lock("").acquire()
        with pytest.raises(onelock.InvalidArgument):
            await client.lock("a", ttl=0.001).acquire()
        with pytest.raises(onelock.InvalidArgument):
            await client.lock("a").acquire(-1)
        with pytest.raises(TypeError):
            await client.lock("a").acquire("5")  # type: ignore[arg-type]
        with pytest.raises(onelock.ServerUnavailable):
            await client.lock("a").acquire(0.1)
        with pytest.raises(onelock.InvalidArgument):
            await AsyncClient(url).lock("a").attach("x")

    run(work())


def test_a_decorated_function_can_become_a_task(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:

            @client.locked(name)
            async def twice(number: int) -> int:
                return 2 * number

            # the type checkers look at this, too
            task: asyncio.Task[int] = asyncio.create_task(twice(21))
            assert await task == 42

    run(work())


def test_many_tasks(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            lock, inside = client.lock(name, timeout=30), 0
            tokens: list[int] = []

            async def one() -> None:
                nonlocal inside
                for _ in range(5):
                    async with lock as lease:
                        inside += 1
                        assert inside == 1
                        await asyncio.sleep(0)
                        assert lease.fencing_token is not None
                        tokens.append(lease.fencing_token)
                        inside -= 1

            await asyncio.gather(*[one() for _ in range(40)])
            assert tokens == sorted(set(tokens))
            leases = await asyncio.gather(*[client.lock(f"{name}:{n}").acquire() for n in range(200)])
            assert client.stats().held == 200
            await asyncio.gather(*[lease.release() for lease in leases])

    run(work())


def test_reentrant_lock_belongs_to_the_task(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            lock = client.reentrant_lock(name)
            async with lock as outer:
                await asyncio.sleep(0)
                async with lock as inner:
                    assert inner.hold_count == outer.hold_count == 2
                    assert await asyncio.ensure_future(lock.try_acquire()) is None
            request = Owner()
            shared = client.reentrant_lock(name, owner=request)
            async with shared:
                inner = await asyncio.ensure_future(shared.acquire(0))
                assert inner.hold_count == 2
                await inner.release()
            assert await client.inspect(name) is None

    run(work())


def test_a_loss_ends_the_body(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with AsyncClient(url) as client:
            with pytest.raises(LockLost) as caught:
                async with client.lock(name, ttl=1.2):
                    await client.force_release(name)
                    await asyncio.sleep(30)
            assert caught.value.reason is LossReason.TAKEN
            assert isinstance(caught.value.__cause__, asyncio.CancelledError)
            assert getattr(task, "cancelling", lambda: 0)() == 0
            # the task is as good as before
            await asyncio.sleep(0)
            with pytest.raises(LockLost):
                async with await client.lock(name, ttl=1.2).acquire():
                    await client.force_release(name)
                    await asyncio.sleep(30)

    run(work())


def test_a_body_may_go_on_after_a_loss(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            done = False
            with pytest.raises(LockLost):
                async with client.lock(name, ttl=1.2, cancel_on_loss=False) as lease:
                    await client.force_release(name)
                    assert await lease.lost() is LossReason.TAKEN
                    await asyncio.sleep(0.05)
                    done = True
            assert done
            # a body that swallows the cancellation
            with pytest.raises(LockLost):
                async with client.lock(name, ttl=1.2):
                    await client.force_release(name)
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(30)
            await asyncio.sleep(0)

    run(work())


def test_the_bodys_error_goes_through(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            with pytest.raises(ZeroDivisionError) as caught:
                async with client.lock(name):
                    _ = 1 / 0
            assert caught.value.__cause__ is None
            assert await client.inspect(name) is None
            with pytest.raises(ZeroDivisionError) as caught:
                async with client.lock(name, ttl=1.2):
                    await client.force_release(name)
                    try:
                        await asyncio.sleep(30)
                    except asyncio.CancelledError:
                        _ = 1 / 0
            assert isinstance(caught.value.__cause__, LockLost)

    run(work())


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_the_callers_cancellation_stays_one(run: Run, url: str, name: str, first: str) -> None:
    async def body(client: AsyncClient, inside: asyncio.Event) -> None:
        async with client.lock(name, ttl=1.2) as lease:
            inside.set()
            try:
                await asyncio.sleep(30)
            finally:
                # both cancellations have come by now
                assert lease is not None

    async def work() -> None:
        async with AsyncClient(url) as client:
            inside = asyncio.Event()
            task = asyncio.ensure_future(body(client, inside))
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
            assert await client.inspect(name) is None

            inside.clear()
            task = asyncio.ensure_future(body(client, inside))
            await inside.wait()
            # both in one turn of the loop
            await client.force_release(name)
            pump, _ = _pumps.current()
            if first == "theirs":
                task.cancel()
            time.sleep(0.4)
            _pumps.deliver(pump.drain())
            if first == "ours":
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()

    run(work())


def test_timeouts_around_a_scope(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:

            async def slow() -> None:
                async with client.lock(name):
                    await asyncio.sleep(30)

            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(slow(), 0.1)
            assert await client.inspect(name) is None

    run(work())


def test_cancelled_before_it_is_sent(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            for _ in range(50):
                task = asyncio.ensure_future(client.lock(name).acquire())
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await _nothing_left(client, url, name)

    run(work())


def test_cancelled_in_flight(run: Run, server: Server, name: str) -> None:
    async def work() -> None:
        async with await AsyncClient.connect(server.url, request_timeout=5) as client:
            # the server has the request, and nobody has its answer
            server.process.send_signal(19)
            try:
                task = asyncio.ensure_future(client.lock(name).acquire())
                while client.stats().commands_sent == 0:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            finally:
                server.process.send_signal(18)
            await _nothing_left(client, server.url, name)

    run(work())


def test_cancelled_in_flight_beside_a_blocked_loop(run: Run, server: Server, name: str) -> None:
    async def work() -> None:
        async with await AsyncClient.connect(server.url, request_timeout=30) as client:
            lock = client.lock(name)
            for _ in range(3):
                await (await lock.acquire()).release()
            sent = client.stats().commands_sent
            # the server has the request, and nobody has its answer
            server.process.send_signal(19)
            try:
                task = asyncio.ensure_future(lock.acquire())
                while client.stats().commands_sent == sent:
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            finally:
                server.process.send_signal(18)
            # the loop does not come by until it is granted and released: over its own connection, or the shared one
            until(lambda: client.stats().commands_sent >= sent + 2)
            until(lambda: (client.stats().held, client.stats().cleaning) == (0, 0) and is_free(server.url, name))
            assert client.stats().renewals == 0
            await _nothing_left(client, server.url, name)

    run(work())


def test_cancelled_while_waiting(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            async with client.lock(name):
                tasks = [asyncio.ensure_future(client.lock(name).acquire()) for _ in range(10)]
                while client.stats().waiting < 10:
                    await asyncio.sleep(0.001)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                assert all(task.cancelled() for task in tasks)
                # out of the line while it is still held
                until(lambda: client.stats().waiting == 0)
            await _nothing_left(client, url, name)

    run(work())


def test_cancelled_between_grant_and_delivery(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            # granted, and the loop has not looked yet
            task = asyncio.ensure_future(client.lock(name).acquire())
            await asyncio.sleep(0)
            until(lambda: client.stats().held == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await _nothing_left(client, url, name)
            # in the future, and the task has not run yet
            task = asyncio.ensure_future(client.lock(name).acquire())
            await asyncio.sleep(0)
            until(lambda: client.stats().held == 1)
            pump, _ = _pumps.current()

            # the lease counts as held a moment before its result is in the queue
            def delivered() -> bool:
                _pumps.deliver(pump.drain())
                return pump.pending()[0] == 0

            until(delivered)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await _nothing_left(client, url, name)

    run(work())


async def _nothing_left(client: AsyncClient, url: str, name: str) -> None:
    pump, _ = _pumps.current()
    end = time.monotonic() + 30
    while (
        client.stats().held + client.stats().waiting + client.stats().cleaning
        or pump.pending() != (0, 0)
        or not is_free(url, name)
    ):
        assert time.monotonic() < end, (client.stats(), pump.pending())
        await asyncio.sleep(0.005)


def test_a_released_lease_stays_released_when_the_release_is_cancelled(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            lease = await client.lock(name).acquire()
            task = asyncio.ensure_future(lease.release())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await _nothing_left(client, url, name)
            assert not lease.held

    run(work())


def test_callbacks_run_on_the_loop(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            heard: list[object] = []

            async def on_lost(lease: AsyncLease, reason: LossReason) -> None:
                await asyncio.sleep(0)
                heard.append((lease, reason, threading.current_thread()))

            lease = await client.lock(name, ttl=1.2, on_lost=on_lost).acquire()
            lease.on_lost(lambda *event: heard.append(event))
            await client.force_release(name)
            assert await lease.lost() is LossReason.TAKEN
            while len(heard) < 2:
                await asyncio.sleep(0.001)
            assert (lease, LossReason.TAKEN) in heard
            assert (lease, LossReason.TAKEN, threading.current_thread()) in heard
            await lease.release()

    run(work())


def test_a_failing_callback_harms_nothing(run: Run, url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:

            async def failing(*_: object) -> None:
                raise KeyError("inside")

            lease = await client.lock(name, ttl=0.05, auto_renew=False).acquire()
            lease.on_lost(failing)
            lease.on_lost(lambda *_: 1 / 0)
            while "KeyError" not in caplog.text or "ZeroDivisionError" not in caplog.text:
                await asyncio.sleep(0.005)
            await lease.release()

    run(work())


def test_jeopardy(run: Run, server: Server, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(server.url, request_timeout=0.2) as client:
            heard: list[AsyncLease] = []
            lease = await client.lock(name, ttl=6, on_jeopardy=heard.append).acquire()
            server.process.send_signal(19)
            try:
                while not heard:
                    await asyncio.sleep(0.005)
            finally:
                server.process.send_signal(18)
            assert heard[0] is lease
            assert lease.held
            await lease.release()

    run(work())


def test_a_blocked_loop_loses_no_lease(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client, client.lock(name, ttl=3) as lease:
            time.sleep(4)
            assert lease.held

    run(work())


def test_decorator(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:

            @client.locked(lambda number: f"{name}:{number}", timeout=0)
            async def once(number: int) -> bool:
                return await client.lock(f"{name}:{number}").is_locked()

            assert await once(7)
            assert once.__name__ == "once"
            async with client.lock(f"{name}:7"):
                with pytest.raises(LockBusy):
                    await once(7)
            with pytest.raises(TypeError, match="async def"):
                client.locked(name)(lambda: None)  # type: ignore[arg-type,return-value]

    run(work())


def test_handing_over(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            proof = (await client.lock(name).acquire()).detach()
            received = [client.lock(name).attach(proof) for _ in range(3)]
            results = await asyncio.gather(*received, return_exceptions=True)
            leases = [result for result in results if not isinstance(result, BaseException)]
            assert len(leases) == 1
            assert all(isinstance(result, LockLost) for result in results if result not in leases)
            assert leases[0].held
            assert leases[0].token != proof
            await leases[0].release()

    run(work())


def test_closing(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        client = AsyncClient(url)
        lease = await client.lock(name).acquire()
        waiting = asyncio.ensure_future(client.lock(name).acquire())
        while client.stats().waiting == 0:
            await asyncio.sleep(0.001)
        await client.close()
        with pytest.raises(onelock.ClientClosed):
            await waiting
        with pytest.raises(onelock.ClientClosed):
            await client.lock(name).acquire()
        assert not lease.held
        assert is_free(url, name)

    run(work())


def test_a_coroutine_that_is_destroyed_gives_back(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:

            async def scope() -> None:
                async with client.lock(name):
                    await asyncio.get_running_loop().create_future()

            task = asyncio.ensure_future(scope())
            while client.stats().held == 0:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            coroutine = scope()
            del coroutine
            task.get_coro().close()
            await _nothing_left(client, url, name)
            task.cancel()
            await asyncio.wait({task})
            with contextlib.suppress(BaseException):
                task.result()

    with contextlib.suppress(RuntimeWarning):
        run(work())


test_a_coroutine_that_is_destroyed_gives_back = pytest.mark.filterwarnings("ignore::RuntimeWarning")(
    test_a_coroutine_that_is_destroyed_gives_back
)


def test_a_closed_loop_gives_back_what_was_under_way(
    new_loop: Callable[[], asyncio.AbstractEventLoop], url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "asyncio")
    holder = onelock.Client(url)
    lease = holder.lock(name).acquire()
    client = AsyncClient(url)
    lock: AsyncLock = client.lock(name)
    loop = new_loop()
    coroutine = lock.acquire()
    task = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0.05))
    until(lambda: client.stats().waiting == 1)
    # nobody cancels the task, and somebody keeps it
    loop.close()
    until(lambda: client.stats().waiting == 0)
    lease.release()
    until(lambda: is_free(url, name))

    # granted to a loop that never looks again
    loop = new_loop()
    lease = holder.lock(name).acquire()
    task2 = loop.create_task(lock.acquire())
    loop.run_until_complete(asyncio.sleep(0.05))
    until(lambda: client.stats().waiting == 1)
    lease.release()
    until(lambda: client.stats().held == 1)
    loop.close()
    until(lambda: is_free(url, name))
    holder.close()
    # asyncio itself complains about tasks that were left
    for left in (task, task2):
        vars(type(left))["_log_destroy_pending"].__set__(left, False)


def test_a_client_serves_several_loops(url: str, name: str) -> None:
    client = AsyncClient(url)
    lock = client.lock(name, timeout=30)
    order: list[int] = []

    async def work(number: int) -> None:
        for _ in range(10):
            async with lock:
                order.append(number)

    threads = [threading.Thread(target=lambda number=number: asyncio.run(work(number))) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(order) == [0] * 10 + [1] * 10 + [2] * 10 + [3] * 10
    asyncio.run(client.close())


def test_pumps_go_with_their_loops(url: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            await client.check()

    gc.collect()
    before = len(_pumps._pumps)
    for _ in range(5):
        asyncio.run(work())
    gc.collect()
    assert len(_pumps._pumps) <= before + 1


def test_a_dropped_lease_is_released_with_a_warning(run: Run, url: str, name: str) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            lease = await client.lock(name).acquire()
            lease.on_lost(lambda *_: None)
            # the loop has its future until the next turn
            await asyncio.sleep(0)
            with pytest.warns(ResourceWarning, match=name):
                del lease
                gc.collect()
            await _nothing_left(client, url, name)

    run(work())


def test_a_storm_of_cancellations_leaves_nothing(run: Run, url: str, name: str) -> None:
    """Tasks take, hold, time out and are cancelled at any instant."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)

    async def work() -> None:
        async with AsyncClient(url) as client:
            locks = [client.lock(f"{name}:{number}") for number in range(3)]
            held, got = [0, 0, 0], 0

            async def one() -> None:
                nonlocal got
                number = dice.randrange(3)
                async with locks[number]:
                    held[number] += 1
                    assert held[number] == 1
                    got += 1
                    try:
                        await asyncio.sleep(dice.choice([0, 0, 0.001]))
                    finally:
                        held[number] -= 1

            end = time.monotonic() + 1.5
            tasks: set[asyncio.Task[None]] = set()
            while time.monotonic() < end:
                tasks |= {asyncio.ensure_future(one()) for _ in range(dice.randrange(6))}
                await asyncio.sleep(dice.choice([0, 0, 0.0005, 0.002]))
                for task in dice.sample(sorted(tasks, key=id), len(tasks) // 2):
                    task.cancel()
                tasks = {task for task in tasks if not task.done()}
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert not [error for error in results if error and not isinstance(error, asyncio.CancelledError)]
            assert got > 20
            for lock in locks:
                assert isinstance(lock.name, str)
                await _nothing_left(client, url, lock.name)

    run(work())

"""What programs are made of: prefork servers and workers, event loops and monkey patches. Each in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import Server, free_port, gunicorn_config, ready_workers, until


def python(server: Server, program: str, *arguments: str, limit: float = 60) -> str:
    """Runs a program of its own; what it prints. One that hangs has failed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        env={**os.environ, "ONELOCK_URL": server.url},
        capture_output=True,
        text=True,
        timeout=limit,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


# ---- gunicorn: a client used before the fork, and leases across it -------------------------------------------------------

SERVED = """
import os
from onelock import Client

# held by the master, through a client that the workers use as well
client = Client(prefix="gunicorn:")
masters = client.lock("master").acquire()
number = 0
kept = []


def app(environ, start_response):
    global number
    number += 1
    if not kept:
        # for as long as the worker lives
        kept.append(client.lock(f"worker:{os.getpid()}").acquire())
    with client.lock("shared", timeout=10) as lease:
        mine = client.lock("master", timeout=0)
        told = f"{os.getpid()} {masters.held} {mine.is_locked()} {lease.held}"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [told.encode()]
"""


def test_gunicorn_workers_have_clients_of_their_own(server: Server, tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(SERVED)
    port = free_port()
    words = [
        "--config",
        str(gunicorn_config(tmp_path)),
        "--preload",
        "--bind",
        f"127.0.0.1:{port}",
        "--workers",
        "3",
        "served:app",
    ]
    environment = {**os.environ, "ONELOCK_URL": server.url}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", *words], cwd=tmp_path, env=environment, stderr=log
        )

    def get() -> list[str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
                return str(answer.read().decode()).split()
        except OSError:
            return []

    try:
        until(get, limit=30)
        seen: list[list[str]] = []

        def ask() -> bool:
            """At the same time, so that more than one worker is needed."""
            with ThreadPoolExecutor(8) as pool:
                seen.extend(answer for answer in pool.map(lambda _: get(), range(24)) if answer)
            return len({pid for pid, *_ in seen}) > 1

        until(ask, limit=30)
        # the master's lease is not the workers', stays locked, and theirs work
        assert {tuple(rest) for _, *rest in seen} == {("False", "True", "True")}
        # a worker that ends releases nothing of the master's; a new one works
        os.kill(int(seen[0][0]), 15)
        until(lambda: (found := get()) and found[0] not in {pid for pid, *_ in seen}, limit=30)
        assert server.command("EXISTS", "gunicorn:master") == 1
        until(lambda: ready_workers(tmp_path) == 4, limit=30)
    finally:
        process.terminate()
        code = process.wait(20)
    said = (tmp_path / "log").read_text()
    assert code == 0, said
    assert "Traceback" not in said
    assert server.command("KEYS", "gunicorn:*") == []


# ---- Celery ---------------------------------------------------------------------------------------------------------------

CELERY = """
import os, sys, time
from celery import Celery
from celery.signals import worker_process_shutdown
from onelock import Client

app = Celery("jobs", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.worker_hijack_root_logger = False
app.conf.broker_connection_retry_on_startup = True
# shared with the workers that are forked
client = Client(prefix="celery:")
client.lock("at start").acquire().release()


kept = []


@worker_process_shutdown.connect
def released(**_):
    # these processes end without the interpreter's own end
    client.close()


@app.task
def add_one(file):
    if not kept:
        # for as long as the worker lives
        kept.append(client.lock(f"worker:{os.getpid()}").acquire())
    with client.lock("counter", timeout=30):
        with open(file) as counter:
            value = int(counter.read())
        time.sleep(0.01)
        with open(file, "w") as counter:
            counter.write(str(value + 1))
    return os.getpid()
"""


def test_celery_prefork_workers_exclude_each_other(server: Server, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(CELERY)
    counter = tmp_path / "counter"
    counter.write_text("0")
    environment = {**os.environ, "ONELOCK_URL": server.url, "BROKER": server.url + "5", "C_FORCE_ROOT": "1"}
    words = ["-A", "jobs", "worker", "--pool", "prefork", "--concurrency", "4", "--loglevel", "WARNING"]
    words += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", *words], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
    try:
        caller = """
            import sys
            from jobs import add_one
            results = [add_one.delay(sys.argv[1]) for _ in range(40)]
            print(len({result.get(timeout=50) for result in results}))
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(caller), str(counter)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=80,
        )
        assert done.returncode == 0, done.stderr + (tmp_path / "log").read_text()
        assert int(done.stdout) > 1
        assert counter.read_text() == "40"
    finally:
        worker.terminate()
        code = worker.wait(30)
    said = (tmp_path / "log").read_text()
    assert code == 0, said
    assert "Traceback" not in said
    assert server.command("KEYS", "celery:*") == []


# ---- multiprocessing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(server: Server, tmp_path: Path, method: str) -> None:
    """Pools of processes, started in each way, count to 40 together."""
    (tmp_path / "work.py").write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys, time
            from onelock import Client

            client = Client(prefix="mp:")

            def add_one(file):
                with client.lock("counter", timeout=30):
                    value = int(open(file).read())
                    time.sleep(0.002)
                    open(file, "w").write(str(value + 1))

            if __name__ == "__main__":
                with client.lock("parent") as lease:
                    with multiprocessing.get_context(sys.argv[1]).Pool(4) as pool:
                        pool.map(add_one, [sys.argv[2]] * 40, chunksize=1)
                        pool.close()
                        pool.join()
                    assert lease.held
            """
        )
    )
    counter = tmp_path / "counter"
    counter.write_text("0")
    subprocess.run(
        [sys.executable, "work.py", method, str(counter)],
        cwd=tmp_path,
        env={**os.environ, "ONELOCK_URL": server.url},
        timeout=90,
        check=True,
    )
    assert counter.read_text() == "40"
    assert server.command("KEYS", "mp:*") == []


# ---- event loops ----------------------------------------------------------------------------------------------------------


def test_uvloop(server: Server) -> None:
    program = """
        import asyncio, uvloop
        from onelock import AsyncClient, LockLost

        async def main():
            assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
            async with AsyncClient(ttl=1.5, prefix="uv:") as client:
                inside = 0
                async def one():
                    nonlocal inside
                    async with client.lock("shared", timeout=30):
                        inside += 1
                        assert inside == 1
                        await asyncio.sleep(0.001)
                        inside -= 1
                await asyncio.gather(*[one() for _ in range(50)])
                # cancelled while it waits
                async with client.lock("held"):
                    for _ in range(10):
                        try:
                            await asyncio.wait_for(client.lock("held").acquire(), 0.02)
                        except asyncio.TimeoutError:
                            pass
                # told of a loss
                try:
                    async with client.lock("lost"):
                        await client.force_release("lost")
                        await asyncio.sleep(30)
                except LockLost as error:
                    print("lost:", error.reason)
                assert client.stats().waiting == 0
                # closed with the loop, not before
                await client.lock("kept").acquire()

        uvloop.run(main())
    """
    assert python(server, program).split() == ["lost:", "taken"]
    until(lambda: server.command("KEYS", "uv:*") == [])


# ---- monkey patches -------------------------------------------------------------------------------------------------------

# A call of ours that waits holds up the thread with all its greenlets: it may not wait for another greenlet of the
# thread. So contention inside one thread goes through the thread pool, or through try_acquire and a sleep.
GEVENT = """
    import gevent.monkey
    gevent.monkey.patch_all()
    import gevent, sys, time
    from onelock import Client, LockTimeout
    spawn, sleep, joinall = gevent.spawn, gevent.sleep, gevent.joinall
    def in_thread(call, *args):
        return gevent.get_hub().threadpool.apply(call, args)
"""
EVENTLET = """
    import warnings
    warnings.simplefilter("ignore")
    import eventlet
    eventlet.monkey_patch()
    import sys, time
    from eventlet import tpool
    from onelock import Client, LockTimeout
    spawn, sleep, in_thread = eventlet.spawn, eventlet.sleep, tpool.execute
    def joinall(greenlets, raise_error=True):
        for greenlet in greenlets:
            greenlet.wait()
"""
PATCHED = """
    with Client(prefix="green:", ttl=1.5) as client:
        # a bounded wait for another greenlet of this thread ends in time
        def hold():
            with client.lock("held"):
                sleep(0.5)
        holder = spawn(hold)
        sleep(0.05)
        begun = time.monotonic()
        try:
            client.lock("held").acquire(timeout=0.1)
            print("two holders")
        except LockTimeout:
            assert time.monotonic() - begun < 10
        joinall([holder], raise_error=True)

        # renewal needs no greenlet
        with client.lock("renewed") as lease:
            begun = time.monotonic()
            while time.monotonic() - begun < 3:
                pass
            assert lease.held

        # greenlets that take turns, without holding each other up
        inside, most, done = 0, 0, 0
        def turn(acquire):
            global inside, most, done
            lease = acquire()
            inside += 1
            most = max(most, inside)
            sleep(0.002)
            inside -= 1
            done += 1
            lease.release()
        def by_trying():
            while not (lease := client.lock("turns").try_acquire()):
                sleep(0.003)
            return lease
        def in_the_pool():
            return in_thread(client.lock("turns").acquire, 30)
        joinall([spawn(turn, by_trying) for _ in range(10)], raise_error=True)
        joinall([spawn(turn, in_the_pool) for _ in range(10)], raise_error=True)
        assert (most, done) == (1, 20), (most, done)

        # greenlets are owners of their own
        lock = client.reentrant_lock("again")
        def enter():
            with lock, lock as lease:
                assert lease.hold_count == 2
                other = []
                greenlet = spawn(lambda: other.append(lock.try_acquire()))
                joinall([greenlet], raise_error=True)
                assert other == [None]
        joinall([spawn(enter)], raise_error=True)

        # losses are told on a thread of their own
        heard = []
        lease = client.lock("lost", on_lost=lambda lease, reason: heard.append(str(reason))).acquire()
        client.force_release("lost")
        end = time.monotonic() + 20
        while not heard and time.monotonic() < end:
            sleep(0.01)
        assert heard == ["taken"], heard
        lease.release()
        left = client.lock("left").acquire()
    assert not left.held
    print("fine")
"""


@pytest.mark.parametrize("patch", [GEVENT, EVENTLET], ids=["gevent", "eventlet"])
def test_monkey_patched_programs(server: Server, patch: str) -> None:
    program = textwrap.dedent(patch) + textwrap.dedent(PATCHED)
    assert python(server, program) == "fine\n"
    assert server.command("KEYS", "green:*") == []


@pytest.mark.parametrize("patch", [GEVENT, EVENTLET], ids=["gevent", "eventlet"])
def test_a_monkey_patched_program_that_ends_while_it_holds(server: Server, patch: str) -> None:
    begun = time.monotonic()
    end = """
        lease = Client(prefix="green:").lock("kept").acquire()
        print("fine")
    """
    assert python(server, textwrap.dedent(patch) + textwrap.dedent(end)) == "fine\n"
    assert time.monotonic() - begun < 20
    assert server.command("KEYS", "green:*") == []

"""One of several processes that have a lock in turn: turns.py KIND PORT NAME NOTES INDEX MODE HOLD_US. See main.py."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import socket
import sys
import threading
import time

HOLDER, RELEASED, COUNT, CAPACITY, PORTS, FIRST, MANY = 0, 1, 2, 3, 8, 64, 500

# a lock that is fair, or one that is not
method = "fair_lock" if os.environ.get("BENCH_LOCK") == "fair" else "lock"
kind, port, name, path, index, mode, hold_us = sys.argv[1:]
me, hold = int(index), int(hold_us) / 1e6
# what it says about the server's configuration is not wanted here
logging.getLogger("onelock").setLevel("ERROR")
with open(path, "r+b") as file:
    notes = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
news = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
news.bind(("127.0.0.1", 0))
notes[PORTS + me] = news.getsockname()[1]


def granted(who: int) -> bool:
    """The lock was got. False when enough has been measured."""
    at = time.monotonic_ns()
    before, count = notes[HOLDER], notes[COUNT]
    goes_on = count < notes[CAPACITY]
    if goes_on:
        first = FIRST + count * 3
        notes[first], notes[first + 1], notes[first + 2] = at - notes[RELEASED], who, at
        notes[COUNT] = count + 1
    notes[HOLDER] = who
    if before >= 0 and before != who:
        news.sendto(b"!", ("127.0.0.1", notes[PORTS + before]))
    return goes_on


def releasing() -> None:
    notes[RELEASED] = time.monotonic_ns()


def ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def turn(acquire, who: int) -> bool:
    lease = acquire()
    goes_on = granted(who)
    if hold:
        time.sleep(hold)
    releasing()
    lease.release()
    return goes_on


async def aturn(lock, who: int) -> bool:
    lease = await lock.acquire()
    goes_on = granted(who)
    if hold:
        await asyncio.sleep(hold)
    releasing()
    await lease.release()
    return goes_on


async def asyncio_main() -> None:
    from onelock import AsyncClient

    lock = getattr(AsyncClient(f"redis://127.0.0.1:{port}/"), method)(name)
    ready()
    if mode == "inside":

        async def work(number: int) -> None:
            while await aturn(lock, -1 - number):
                pass

        await asyncio.gather(*[work(number) for number in range(MANY)])
        return
    loop = asyncio.get_running_loop()
    news.setblocking(False)
    while await aturn(lock, me):
        if mode == "turns":
            await loop.sock_recv(news, 8)


def main() -> None:
    if kind == "asyncio":
        return asyncio.run(asyncio_main())
    if kind == "python":
        from onelock import Client

        acquire = getattr(Client(f"redis://127.0.0.1:{port}/"), method)(name).acquire
    else:
        import redis
        import redis_lock

        connection = redis.Redis(port=int(port), socket_timeout=None)

        def acquire():
            lock = redis_lock.Lock(connection, name, expire=30)
            lock.acquire()
            return lock
    ready()
    if mode == "inside":

        def work(number: int) -> None:
            while turn(acquire, -1 - number):
                pass

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(MANY)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return None
    while turn(acquire, me):
        if mode == "turns":
            news.recv(8)
    return None


main()
# until it is killed
time.sleep(600)

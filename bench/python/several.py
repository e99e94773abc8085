"""The sides of Redlock in Python, as a child of the program that measures them: several.py PORTS LOCK LOCK LOCK

Takes orders as c/hiredis-loop.c does, one a line, and answers each with one line, p50_ns mean_ns:

    onelock N   N times: acquire and release of the first lock
    asyncio N   the same of the second one, with the asynchronous client
    pottery N   the same of the third one, with pottery
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
import time

from pottery import Redlock
from redis import Redis

from onelock import AsyncClient, Client

TTL = 30
ports = [int(port) for port in sys.argv[1].split(",")]
FIRST, SECOND, THIRD = sys.argv[2:]
ADDRESS = f"redlock://{','.join(f'127.0.0.1:{port}' for port in ports)}?quarantine_ms=0"
# what it says about the servers' configuration is not wanted here
logging.getLogger("onelock").setLevel("ERROR")


def side(cycle):
    def block(count: int) -> list[int]:
        took = []
        for _ in range(count):
            start = time.perf_counter_ns()
            cycle()
            took.append(time.perf_counter_ns() - start)
        return took

    return block


def onelock_side():
    lock = Client(ADDRESS).lock(FIRST, ttl=TTL)
    return side(lambda: lock.acquire().release())


def asyncio_side():
    loop = asyncio.new_event_loop()

    async def made():
        return AsyncClient(ADDRESS).lock(SECOND, ttl=TTL)

    lock = loop.run_until_complete(made())

    async def block(count: int) -> list[int]:
        took = []
        for _ in range(count):
            start = time.perf_counter_ns()
            lease = await lock.acquire()
            await lease.release()
            took.append(time.perf_counter_ns() - start)
        return took

    return lambda count: loop.run_until_complete(block(count))


def pottery_side():
    lock = Redlock(key=THIRD, masters={Redis(port=port) for port in ports}, auto_release_time=TTL)

    def cycle() -> None:
        assert lock.acquire()
        lock.release()

    return side(cycle)


blocks = {"onelock": onelock_side(), "asyncio": asyncio_side(), "pottery": pottery_side()}
for order in sys.stdin:
    name, number = order.split()
    result = blocks[name](int(number))
    print(int(statistics.median(result)), int(statistics.mean(result)), flush=True)

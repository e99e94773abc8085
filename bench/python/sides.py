"""Who is measured: each side makes a cycle, one acquire and one release of a lock of this name."""

from __future__ import annotations

import redis
import redis.asyncio
import redis_lock
from redlock import Redlock

from onelock import AsyncClient, Client

TTL = 30


def onelock_side(port: int):
    client = Client(f"redis://127.0.0.1:{port}/")
    locks = {}

    def cycle(name: str) -> None:
        lock = locks.get(name) or locks.setdefault(name, client.lock(name, ttl=TTL))
        lock.acquire().release()

    return cycle


def redis_py_side(port: int):
    """With the parser in C (hiredis), which it uses when it is installed."""
    client = redis.Redis(port=port)

    def cycle(name: str) -> None:
        lock = client.lock(name, timeout=TTL)
        lock.acquire()
        lock.release()

    return cycle


def redlock_py_side(port: int):
    locks = Redlock([{"host": "127.0.0.1", "port": port, "db": 0}])

    def cycle(name: str) -> None:
        lock = locks.lock(name, TTL * 1000)
        assert lock
        locks.unlock(lock)

    return cycle


def python_redis_lock_side(port: int):
    client = redis.Redis(port=port)

    def cycle(name: str) -> None:
        lock = redis_lock.Lock(client, name, expire=TTL)
        lock.acquire()
        lock.release()

    return cycle


SYNC = {
    "onelock": onelock_side,
    "redis-py": redis_py_side,
    "redlock-py": redlock_py_side,
    "python-redis-lock": python_redis_lock_side,
}


def onelock_async_side(port: int):
    client = AsyncClient(f"redis://127.0.0.1:{port}/")
    locks = {}

    async def cycle(name: str) -> None:
        lock = locks.get(name) or locks.setdefault(name, client.lock(name, ttl=TTL))
        lease = await lock.acquire()
        await lease.release()

    return cycle


def redis_asyncio_side(port: int):
    client = redis.asyncio.Redis(port=port)

    async def cycle(name: str) -> None:
        lock = client.lock(name, timeout=TTL)
        await lock.acquire()
        await lock.release()

    return cycle


ASYNC = {"onelock": onelock_async_side, "redis-py asyncio": redis_asyncio_side}

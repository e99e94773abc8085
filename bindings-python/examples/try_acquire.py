"""Takes a lock if it is free, and goes on without it if it is not; then in asyncio. The address is in $ONELOCK_URL."""

import asyncio

from onelock import AsyncClient, Client


def with_threads() -> None:
    with Client() as client:
        lock = client.lock("example:try_acquire")
        if lease := lock.try_acquire():
            with lease:
                print("got it")
                print("somebody else:", lock.try_acquire())
        print("free again:", not lock.is_locked())


async def with_tasks() -> None:
    async with AsyncClient() as client:
        lock = client.lock("example:try_acquire")
        if lease := await lock.try_acquire():
            async with lease:
                print("asyncio: got it")
                print("asyncio: somebody else:", await lock.try_acquire())


with_threads()
asyncio.run(with_tasks())

"""What to do when a lease is lost: stop the work, and let the resource refuse what comes too late.

The address is in $ONELOCK_URL.
"""

import asyncio

from onelock import AsyncClient, FenceGate, LockLost

NAME = "example:lost_lease"


async def main() -> None:
    # the resource's half: it refuses a token lower than the highest it has seen. A database keeps the number in a column
    resource = FenceGate()
    old_token = 0
    async with AsyncClient(ttl=1) as client:
        try:
            async with client.lock(NAME) as lease:
                old_token = lease.fencing_token or 0
                print("first: writes:", resource.admit(old_token))
                # somebody takes the lock away; a restart of the server or an eviction would look the same
                await client.force_release(NAME)
                # the body is cancelled at its `await` when the loss is found, a third of the ttl later
                await asyncio.sleep(30)
                print("first: finished")
        except LockLost as error:
            print("first: stopped, the lock was", error.reason)

        async with client.lock(NAME) as lease:
            print("second: writes:", resource.admit(lease.fencing_token or 0))
            print("first: writes late:", resource.admit(old_token))


asyncio.run(main())

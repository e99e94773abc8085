"""A cache that many read and that one refreshes.

Readers share the lock, and whoever finds the value too old takes it alone, looks again, and refreshes it once for all. The
address is in $ONELOCK_URL.
"""

import time
from concurrent.futures import ThreadPoolExecutor

from onelock import Client

# what all machines read: really a file or a row
cache: dict[str, int] = {}
refreshes: list[float] = []


def refresh() -> None:
    time.sleep(0.05)
    refreshes.append(time.monotonic())
    cache["value"] = 41 + len(refreshes)


def read(client: Client) -> int:
    lock = client.rw_lock("example:cache")
    with lock.read():  # many at a time
        if "value" in cache:
            return cache["value"]
    with lock.write(timeout=30) as lease:
        if "value" not in cache:  # another one may have refreshed it while this one waited
            refresh()
        lease.downgrade()  # others may read from here on, and no writer comes in between
        return cache["value"]


def main() -> None:
    # two machines, in truth processes
    with Client() as one, Client() as other, ThreadPoolExecutor(20) as threads:
        values = list(threads.map(read, [one, other] * 10))
    assert values == [42] * 20
    print(f"{len(values)} readers, refreshed {len(refreshes)} time")


if __name__ == "__main__":
    main()

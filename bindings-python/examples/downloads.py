"""At most three downloads at a time, on all machines together: each takes one of three permits.

The address is in $ONELOCK_URL.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from onelock import Client

AT_ONCE = 3
counting = threading.Lock()
connected: set[int] = set()
most = 0


def download(client: Client, number: int) -> None:
    global most
    # every program names the same number of permits
    with client.semaphore("partner:downloads", AT_ONCE):
        with counting:
            connected.add(number)
            most = max(most, len(connected))
        time.sleep(0.03)
        with counting:
            connected.remove(number)


def main() -> None:
    # two machines, in truth processes
    with Client() as one, Client() as other, ThreadPoolExecutor(12) as threads:
        done = len(list(threads.map(download, [one, other] * 6, range(12))))
    assert most <= AT_ONCE
    print(f"{done} downloads, {most} at a time at most")


if __name__ == "__main__":
    main()

"""A fair job queue: three machines take jobs from one list, and each gets its turn in the order in which they ask.

With a plain `lock`, the machine that is quickest to ask again could take them all. The address is in $ONELOCK_URL.
"""

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from onelock import Client

# really a table or a queue that all machines read
jobs = deque(range(1, 31))


def take(client: Client) -> int | None:
    """Takes the next job, under the lock; `None` when there is none."""
    with client.fair_lock("example:jobs", timeout=30) as lease:
        job = jobs.popleft() if jobs else None
        # the list is marked and written meanwhile, with lease.fencing_token
        time.sleep(0.01)
        assert lease.held
        return job


def machine(_number: int) -> list[int]:
    """One machine: in truth a process of its own, with a client of its own."""
    taken: list[int] = []
    with Client() as client:
        while (job := take(client)) is not None:
            taken.append(job)
    return taken


def main() -> None:
    with ThreadPoolExecutor(3) as threads:
        taken = list(threads.map(machine, range(3)))
    done = sorted(job for one in taken for job in one)
    assert done == list(range(1, 31)), "each job was taken once"
    print(f"{len(done)} jobs, each taken once; no machine took more than {max(map(len, taken))}")


if __name__ == "__main__":
    main()

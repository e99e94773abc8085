"""A job that every machine has on its timetable, and that only one of them runs each time, although their clocks differ.

The address of the lock server is in $ONELOCK_URL.
"""

import time
from contextlib import suppress
from threading import Thread

from onelock import Client, NotAcquired

TICK = 0.5
"""How often the job is due, in seconds. Really an hour or a day."""
APART = 10
"""Seconds, more than the machines' clocks differ by. At most the ttl, which is 30 s where nothing else is said."""

runs: list[str] = []


def run_of(tick: int) -> str:
    """Each run has a lock of its own."""
    return f"example:report:{tick}"


def machine(name: str, late: float) -> None:
    """One machine, whose clock is late by so much; in truth each is a process of its own."""
    with Client() as client:

        @client.locked(run_of, timeout=0, min_hold=APART)
        def report(tick: int) -> None:
            # it takes no time at all, and yet the machine whose clock is late finds it done
            print(f"{name} runs tick {tick}")
            runs.append(f"tick {tick}")

        for tick in (1, 2, 3):
            time.sleep(max(0, start + tick * TICK + late - time.monotonic()))
            with suppress(NotAcquired):  # another machine runs it, or has run it
                report(tick)


start = time.monotonic()
machines = [Thread(target=machine, args=(f"machine {i}", i * 0.05)) for i in range(3)]
for thread in machines:
    thread.start()
for thread in machines:
    thread.join()
print("each tick ran once:", runs == ["tick 1", "tick 2", "tick 3"])

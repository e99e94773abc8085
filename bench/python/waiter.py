"""One of several processes that wait for the same lock: waiter.py KIND PORT NAME NOTES.

NOTES is a file that all of them share, and only who holds the lock writes to it: when it was released last, who has it,
how often it changed hands, and how long that took each time, in nanoseconds. Goes on until it is killed.
"""

from __future__ import annotations

import logging
import mmap
import os
import random
import sys
import time

kind, port, name, notes = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
# long enough for the one before to stand in line again
HOLD_S = (0.002, 0.02)
# what it says about the server's configuration is not wanted here
logging.getLogger("onelock").setLevel("ERROR")

if kind == "onelock":
    from onelock import Client

    description = Client(f"redis://127.0.0.1:{port}/").lock(name)
    acquire = description.acquire
elif kind == "python-redis-lock":
    import redis
    import redis_lock

    connection = redis.Redis(port=port)

    def acquire():
        lock = redis_lock.Lock(connection, name, expire=30)
        lock.acquire()
        return lock

else:
    import redis

    connection = redis.Redis(port=port)

    def acquire():
        lock = connection.lock(name, timeout=30)
        lock.acquire()
        return lock


with open(notes, "r+b") as file:
    shared = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
RELEASED, HOLDER, COUNT, FIRST = range(4)
me = os.getpid()
print("ready", flush=True)
sys.stdin.readline()
while True:
    lock = acquire()
    now = time.monotonic_ns()
    if shared[RELEASED] and FIRST + shared[COUNT] < len(shared):
        shared[FIRST + shared[COUNT]] = now - shared[RELEASED]
        shared[COUNT] += 1
    shared[HOLDER] = me
    time.sleep(random.uniform(*HOLD_S))
    shared[RELEASED] = time.monotonic_ns()
    lock.release()
    # not a newcomer who takes it away from those who wait: comes back when one of them has it
    while shared[HOLDER] == me:
        time.sleep(0.0005)

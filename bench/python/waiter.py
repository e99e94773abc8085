"""One of several processes that wait for the same lock: waiter.py KIND PORT CLOCK COUNT.

CLOCK is a file of sixteen bytes that all of them share. Who releases writes down when, and who he is; who gets the lock
next reads it.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import sys
import time

kind, port, clock, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
NAME = "bench:handover"
# what it says about the server's configuration is not wanted here
logging.getLogger("onelock").setLevel("ERROR")

if kind == "onelock":
    from onelock import Client

    description = Client(f"redis://127.0.0.1:{port}/").lock(NAME)
    acquire = description.acquire
elif kind == "python-redis-lock":
    import redis
    import redis_lock

    connection = redis.Redis(port=port)

    def acquire():
        lock = redis_lock.Lock(connection, NAME, expire=30)
        lock.acquire()
        return lock

else:
    import redis

    connection = redis.Redis(port=port)

    def acquire():
        lock = connection.lock(NAME, timeout=30)
        lock.acquire()
        return lock


with open(clock, "r+b") as file:
    shared = mmap.mmap(file.fileno(), 16)
took = []
print("ready", flush=True)
sys.stdin.readline()
for _ in range(count):
    lock = acquire()
    now = time.monotonic_ns()
    released, by = struct.unpack("qq", shared[:])
    if by not in (0, os.getpid()):
        took.append(now - released)
    time.sleep(0.002)
    shared[:] = struct.pack("qq", time.monotonic_ns(), os.getpid())
    lock.release()
    # the others are waiting; who has just had it stands in line again later
    time.sleep(0.005)
print(*took, flush=True)

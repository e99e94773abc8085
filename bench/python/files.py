"""A cycle of one lock in a file with the package and with Python's filelock, in turn in one process. Prints the ratio."""

import statistics
import sys
import tempfile
import time

import filelock

import onelock

ROUNDS, CYCLES = (5, 200) if "--quick" in sys.argv else (40, 2000)


def median_us(cycle):
    took = []
    for _ in range(CYCLES):
        begun = time.perf_counter_ns()
        cycle()
        took.append(time.perf_counter_ns() - begun)
    return statistics.median(took) / 1000


with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, onelock.Client(f"file://{folder}") as client:
    lock, peer = client.lock("bench"), filelock.FileLock(f"{folder}/peer.lock")

    def ours():
        lock.acquire().release()

    def theirs():
        peer.acquire()
        peer.release()

    median_us(ours), median_us(theirs)
    rounds = [(median_us(ours), median_us(theirs)) for _ in range(ROUNDS)]

ratios = sorted(own / other for own, other in rounds)
low, middle, high = (ratios[len(ratios) * part // 4] for part in (1, 2, 3))
own, other = (statistics.median(side) for side in zip(*rounds, strict=True))
print(f"files in Python: onelock {own:.1f} us, filelock {other:.1f} us, ratio {middle:.2f} ({low:.2f} to {high:.2f})")

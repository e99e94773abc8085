"""Holds a file with Python's filelock and does as it is told, a line at a time: `acquire`, `try`, `release`, `count FILE N`."""

import sys

import filelock

lock = filelock.FileLock(sys.argv[1])
for line in sys.stdin:
    words = line.split()
    answer = "ok"
    if words[0] == "acquire":
        lock.acquire(poll_interval=0.002)
    elif words[0] == "try":
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            answer = "busy"
    elif words[0] == "release":
        lock.release()
    elif words[0] == "count":
        for _ in range(int(words[2])):
            with lock.acquire(poll_interval=0.002):
                with open(words[1], "r+", encoding="ascii") as counter:
                    number = int(counter.read() or "0")
                    counter.seek(0)
                    counter.write(str(number + 1))
    print(answer, flush=True)

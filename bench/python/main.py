"""Measures the Python package against its peers, in turn, against one server; prints one table.

How to read it: bench/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import logging
import mmap
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import redis
from sides import ASYNC, SYNC

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "core" / "src" / "store" / "redis" / "command" / "scripts"
NAME = "bench:python:00"
CPU = 0
TASKS, THREADS, WAITERS = 64, 16, 8


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


class Server:
    def __init__(self, program: str, folder: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--logfile", "log", "--dir", folder]
        self.process = subprocess.Popen([program, *words])
        client = redis.Redis(port=self.port)
        while True:
            try:
                client.ping()
                break
            except redis.ConnectionError:
                assert self.process.poll() is None, "the server did not start"
                time.sleep(0.01)
        for script in ("acquire_lock.lua", "release.lua"):
            client.script_load((SCRIPTS / script).read_text())


class Floor:
    """The C program: the same scripts over one hiredis connection."""

    def __init__(self, program: str, port: int) -> None:
        sha = [hashlib.sha1((SCRIPTS / name).read_bytes()).hexdigest() for name in ("acquire_lock.lua", "release.lua")]
        names = [NAME, f"onelock_fence:{{{NAME}}}", f"onelock_channel:{{{NAME}}}"]
        words = [program, str(port), *names, "30000", str(7 * 24 * 3600 * 1000), *sha, sha[0]]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def block(self, cycles: int) -> float:
        print("scripts", cycles, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline().split()[0]) / 1000


def pin(pid: int, cpus: set[int]) -> None:
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            os.sched_setaffinity(int(task), cpus)
        except ProcessLookupError:
            continue


def check_same(port: int) -> None:
    """The library sends exactly the two requests that the floor sends."""
    cycle = SYNC["onelock"](port)
    cycle(NAME)
    with redis.Redis(port=port).monitor() as monitor:
        cycle(NAME)
        heard: list[list[str]] = []
        while len(heard) < 2:
            command = monitor.next_command()
            # what a script does inside the server is shown too
            if command["client_type"] != "lua":
                heard.append(command["command"].split(" "))
    assert [words[0].upper() for words in heard] == ["EVALSHA", "EVALSHA"], heard
    assert heard[0][2:5] == ["2", NAME, f"onelock_fence:{{{NAME}}}"], heard
    assert heard[0][6:] == ["30000", str(7 * 24 * 3600 * 1000)], heard
    assert heard[1][2:5] == ["1", NAME, "m"], heard


def block(cycle, cycles: int) -> float:
    took = []
    for _ in range(cycles):
        start = time.perf_counter_ns()
        cycle(NAME)
        took.append(time.perf_counter_ns() - start)
    return statistics.median(took) / 1000


async def async_block(cycle, cycles: int) -> float:
    took = []
    for _ in range(cycles):
        start = time.perf_counter_ns()
        await cycle(NAME)
        took.append(time.perf_counter_ns() - start)
    return statistics.median(took) / 1000


def alternate(sides: dict, rounds: int) -> dict[str, list[float]]:
    """Every side once a round, in an order that turns; the first round warms up."""
    names = list(sides)
    result: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            value = sides[name]()
            if turn:
                result[name].append(value)
    return result


def ratio(ours: list[float], theirs: list[float]) -> str:
    low, middle, high = quartiles([a / b for a, b in zip(ours, theirs, strict=True)])
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def row(what: str, figure: str, target: str, value: str) -> None:
    print(f"| {what} | {figure} | {value} | {target} |", flush=True)


def sequential(port: int, floor: Floor, loop, rounds: int, cycles: int) -> None:
    sides = {"floor": lambda: floor.block(cycles)}
    for name, make in SYNC.items():
        sides[name] = lambda cycle=make(port): block(cycle, cycles)
    for name, make in ASYNC.items():

        async def made(make=make):
            return make(port)

        cycle = loop.run_until_complete(made())
        sides[f"async {name}"] = lambda cycle=cycle: loop.run_until_complete(async_block(cycle, cycles))
    took = alternate(sides, rounds)
    middle = {name: statistics.median(values) for name, values in took.items()}
    print(f"hiredis, the same two scripts: p50 {middle['floor']:.1f} us\n")
    print("| one caller, p50 of a cycle against hiredis | us | ratio (quartiles) | target |\n|---|---|---|---|")
    targets = {"onelock": "1.3 at most", "async onelock": "2.6 at most"}
    for name, values in took.items():
        if name != "floor":
            row(name, f"{middle[name]:.1f}", targets.get(name, ""), ratio(values, took["floor"]))
    print()


def tasks(port: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    """64 tasks with a lock each: cycles a second."""

    async def burst(cycle) -> float:
        done, end = 0, time.perf_counter() + seconds

        async def work(number: int) -> None:
            nonlocal done
            while time.perf_counter() < end:
                await cycle(f"bench:task:{number}")
                done += 1

        start = time.perf_counter()
        await asyncio.gather(*[work(number) for number in range(TASKS)])
        return done / (time.perf_counter() - start)

    loop = asyncio.new_event_loop()
    sides = {}
    for name, make in ASYNC.items():

        async def made(make=make):
            return make(port)

        cycle = loop.run_until_complete(made())
        sides[name] = lambda cycle=cycle: loop.run_until_complete(burst(cycle))
    return alternate(sides, rounds)


def threads(port: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    """16 threads with a lock each and one client: cycles a second."""

    def burst(cycle) -> float:
        counts, end = [0] * THREADS, time.perf_counter() + seconds

        def work(number: int) -> None:
            while time.perf_counter() < end:
                cycle(f"bench:thread:{number}")
                counts[number] += 1

        workers = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(counts) / (time.perf_counter() - start)

    sides = {name: lambda cycle=SYNC[name](port): burst(cycle) for name in ("onelock", "redis-py")}
    return alternate(sides, rounds)


def handover(port: int, rounds: int, count: int) -> dict[str, list[float]]:
    """One process holds a lock and 8 wait for it: from the call of release to the return of the next acquire, p50 in us."""
    runs = itertools.count()

    def once(kind: str) -> float:
        name = f"bench:handover:{next(runs)}"
        with tempfile.NamedTemporaryFile() as notes:
            notes.write(bytes(8 * (3 + count)))
            notes.flush()
            waiters = [
                subprocess.Popen(
                    [sys.executable, str(HERE / "waiter.py"), kind, str(port), name, notes.name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for _ in range(1 + WAITERS)
            ]
            for waiter in waiters:
                assert waiter.stdout.readline() == "ready\n"
            for waiter in waiters:
                print(file=waiter.stdin, flush=True)
            deadline = time.monotonic() + 60
            shared = memoryview(mmap.mmap(notes.fileno(), 0)).cast("q")
            while shared[2] < count:
                assert time.monotonic() < deadline, f"{kind}: {shared[2]} hand-overs in a minute"
                time.sleep(0.1)
            for waiter in waiters:
                waiter.kill()
                waiter.communicate()
            return statistics.median(shared[3:]) / 1000

    return alternate({kind: lambda kind=kind: once(kind) for kind in ("onelock", "python-redis-lock", "redis-py")}, rounds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--floor", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("parts", nargs="*", default=["throughput", "handover", "sequential"])
    options = parser.parse_args()
    # what it says about the server's configuration is not wanted here
    logging.getLogger("onelock").setLevel("ERROR")
    quick = options.quick
    with tempfile.TemporaryDirectory() as folder:
        server = Server(options.server, folder)
        try:
            check_same(server.port)
            print(f"Python {sys.version.split()[0]}, {Path(options.server).name}, load {os.getloadavg()[0]:.1f}\n")
            if "throughput" in options.parts or "handover" in options.parts:
                print("| several callers | ours and theirs | ratio (quartiles) | target |\n|---|---|---|---|")
            if "throughput" in options.parts:
                rate = tasks(server.port, 4 if quick else 20, 0.1 if quick else 0.4)
                ours, theirs = rate["onelock"], rate["redis-py asyncio"]
                figure = f"{statistics.median(ours):.0f}/s, redis-py asyncio {statistics.median(theirs):.0f}/s"
                row(f"{TASKS} asyncio tasks", figure, "7 at least", ratio(ours, theirs))
                rate = threads(server.port, 4 if quick else 20, 0.1 if quick else 0.4)
                ours, theirs = rate["onelock"], rate["redis-py"]
                figure = f"{statistics.median(ours):.0f}/s, redis-py {statistics.median(theirs):.0f}/s"
                row(f"{THREADS} threads", figure, "8 at least", ratio(ours, theirs))
            if "handover" in options.parts:
                took = handover(server.port, 2 if quick else 5, 20 if quick else 200)
                middle = {name: statistics.median(values) for name, values in took.items()}
                for name, target in (("python-redis-lock", "0.5 at most"), ("redis-py", "0.02 at most")):
                    figure = f"{middle['onelock']:.0f} us, {name} {middle[name]:.0f} us"
                    row(f"{WAITERS} processes wait, hand-over", figure, target, ratio(took["onelock"], took[name]))
            print()
            if "sequential" in options.parts:
                # everything on one processor: nothing depends on how fast processors wake each other
                floor = Floor(options.floor, server.port)
                for pid in (os.getpid(), server.process.pid, floor.process.pid):
                    pin(pid, {CPU})
                loop = asyncio.new_event_loop()
                sequential(server.port, floor, loop, 4 if quick else 30, 100 if quick else 500)
        finally:
            server.process.kill()
            server.process.wait()
    # locks and loops of the peers complain when they are destroyed
    sys.stdout.flush()
    os._exit(0)


main()

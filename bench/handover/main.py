"""Measures how processes, threads and tasks hand one lock to each other; prints one table for each part.

How to read it: bench/README.md. The processes that take part (turns.py, turns.mjs, turns.c, ../src/bin/turns.rs) are
started with

    KIND PORT NAME NOTES INDEX MODE HOLD_US

MODE is `turns`: acquire, hold, release, and ask again only when another one has had it; `again`: ask again at once;
`inside`: 500 tasks or threads of one client, all in one process, ask again at once. They say "ready", and begin when a
line comes in. Of a lock that is fair if $BENCH_LOCK is. NOTES is a file of 64-bit words, little endian, to which only the holder of the lock writes:

    0           who holds it or held it last: a process, or -1 - number for a task or thread; -1000 at first
    1           when it was released last (before the call), in nanoseconds
    2           how many grants are written down
    3           how many there is room for
    8 + INDEX   a UDP port of this process: whoever gets the lock after it sends a byte there
    64 ...      for each grant: time since the release; who; when
"""

from __future__ import annotations

import argparse
import mmap
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis

HERE = Path(__file__).resolve().parent
RELEASED, COUNT, CAPACITY, FIRST = 1, 2, 3, 64
PEERS = ("python-redis-lock", "BLPOP")
FACES = ("Rust async", "Rust blocking", "C", "Python", "asyncio", "Node")


class Server:
    def __init__(self, program: str, folder: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--logfile", "log", "--dir", folder]
        self.process = subprocess.Popen([program, *words])
        self.client = redis.Redis(port=self.port)
        while True:
            try:
                self.client.ping()
                break
            except redis.ConnectionError:
                assert self.process.poll() is None, "the server did not start"
                time.sleep(0.01)

    def commands(self) -> int:
        """What clients have sent so far; what scripts call inside the server is not counted."""
        stats = self.client.info("commandstats")
        return sum(stats.get(f"cmdstat_{word}", {}).get("calls", 0) for word in ("evalsha", "eval", "subscribe", "unsubscribe"))


class Build:
    """Where the sides of a build are: a folder with turns, turns-c, libonelock.so, the Python package, the Node package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def command(self, face: str) -> tuple[list[str], dict[str, str]]:
        folder = self.folder
        python = [sys.executable, str(HERE / "turns.py")]
        words = {
            "Rust async": [str(folder / "turns"), "async"],
            "Rust blocking": [str(folder / "turns"), "blocking"],
            "BLPOP": [str(folder / "turns"), "blpop"],
            "C": [str(folder / "turns-c")],
            "Python": [*python, "python"],
            "asyncio": [*python, "asyncio"],
            "python-redis-lock": [*python, "python-redis-lock"],
            "Node": ["node", str(HERE / "turns.mjs"), "node"],
        }[face]
        return words, {
            "LD_LIBRARY_PATH": str(folder),
            "PYTHONPATH": str(folder / "python"),
            "ONELOCK_PACKAGE": str(folder / "node" / "dist" / "index.mjs"),
        }


class Run:
    """What one run of one side gave."""

    def __init__(self, grants: list[tuple[int, int, int]], commands: float) -> None:
        skip = min(50, len(grants) // 10)
        grants = grants[skip:]
        gaps = sorted(gap for gap, _, _ in grants)
        self.p50 = gaps[len(gaps) // 2] / 1e6
        self.p99 = gaps[len(gaps) * 99 // 100] / 1e6
        begun, ended = grants[0][2], grants[-1][2]
        self.rate = (len(grants) - 1) / ((ended - begun) / 1e9)
        self.retaken = sum(a[1] == b[1] for a, b in zip(grants, grants[1:])) / (len(grants) - 1)
        last: dict[int, int] = {}
        longest = 0
        for _, who, at in grants:
            longest = max(longest, at - last.get(who, begun))
            last[who] = at
        self.parties = len(last)
        self.longest = max([longest, *(ended - at for at in last.values())]) / 1e6
        self.commands = commands


def measure(
    server: Server, build: Build, face: str, mode: str, lock: str, parties: int, count: int, hold_us: int, name: str
) -> Run:
    processes = 1 if mode == "inside" else parties
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as file:
        file.write(bytes(8 * (FIRST + 3 * count)))
        file.seek(0)
        file.write(struct.pack("<4q", -1000, time.monotonic_ns(), 0, count))
        file.flush()
        notes = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        words, environment = build.command(face)
        started = [
            subprocess.Popen(
                [*words, str(server.port), name, file.name, str(index), mode, str(hold_us)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment, "BENCH_LOCK": lock},
            )
            for index in range(processes)
        ]
        try:
            for process in started:
                assert process.stdout.readline() == "ready\n", f"{face}: did not start"
            for process in started:
                print("go", file=process.stdin, flush=True)
            deadline = time.monotonic() + 120
            begun = None
            while notes[COUNT] < count:
                assert time.monotonic() < deadline, f"{face}, {mode}: {notes[COUNT]} of {count} hand-overs in two minutes"
                if begun is None and notes[COUNT] >= count // 10:
                    begun = notes[COUNT], server.commands()
                time.sleep(0.02)
            # as many as came between the two looks; a few more or less do not count
            ended, commands = notes[COUNT], server.commands()
        finally:
            for process in started:
                process.kill()
                process.communicate()
        of_each = (commands - begun[1]) / max(1, ended - begun[0]) if begun else float("nan")
        grants = [tuple(notes[FIRST + 3 * at : FIRST + 3 * at + 3]) for at in range(count)]
    return Run(grants, of_each)


def quartiles(values: list[float], digits: int = 2) -> str:
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def ratio(ours: list[float], theirs: list[float]) -> str:
    return quartiles([a / b for a, b in zip(ours, theirs, strict=True)])


def part(title: str, mode: str, lock: str, parties: int, hold_us: int, counts: int, rounds: int, server: Server, sides: dict) -> None:
    runs: dict[str, list[Run]] = {side: [] for side in sides}
    order = list(sides)
    for turn in range(rounds):
        for side in order[turn % len(order) :] + order[: turn % len(order)]:
            build, face = sides[side]
            runs[side].append(measure(server, build, face, mode, lock, parties, counts, hold_us, f"bench:{lock}:{mode}:{turn}:{side}"))
    head = "| side | p50 ms | p99 / p50 | / python-redis-lock | / BLPOP | / base | longest wait ms | / base | retaken | grants/s | / base | commands |"
    print(f"\n{title}\n\n{head}\n|{'---|' * head.count(' | ')}---|")
    peer, floor = runs.get("python-redis-lock"), runs.get("BLPOP")
    for side in order:
        own = runs[side]
        base = runs.get(f"base: {side}")
        take = lambda of, what: [getattr(run, what) for run in of]  # noqa: E731
        cells = [
            side,
            quartiles(take(own, "p50"), 3),
            quartiles([run.p99 / run.p50 for run in own], 1),
            ratio(take(own, "p50"), take(peer, "p50")) if peer else "",
            ratio(take(own, "p50"), take(floor, "p50")) if floor else "",
            ratio(take(own, "p50"), take(base, "p50")) if base else "",
            quartiles(take(own, "longest"), 0),
            ratio(take(own, "longest"), take(base, "longest")) if base else "",
            quartiles(take(own, "retaken")),
            quartiles(take(own, "rate"), 0),
            ratio(take(own, "rate"), take(base, "rate")) if base else "",
            "" if side in PEERS else quartiles(take(own, "commands")),
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("--base", type=Path, help="the sides of another build, measured in turn with these")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--faces", help="only these, with commas between them")
    parser.add_argument("parts", nargs="*", default=["two", "nine", "inside", "again", "fair-two", "fair-nine", "fair-again"])
    options = parser.parse_args()
    faces = options.faces.split(",") if options.faces else FACES
    rounds = options.rounds or (1 if options.quick else 5)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(options.server, folder)
        try:
            print(f"{Path(options.server).name}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
            for name, title, mode, lock, parties, hold_us, count in (
                ("two", "Two processes in turn, each holds it for 1 ms", "turns", "plain", 2, 1000, 800),
                ("nine", "Nine processes in turn, each holds it for 1 ms: one holds, 8 wait", "turns", "plain", 9, 1000, 800),
                ("inside", "500 tasks or threads of one client, in turn", "inside", "plain", 500, 0, 1500),
                ("again", "Eight processes that ask again at once, each holds it for 1 ms", "again", "plain", 8, 1000, 4000),
                ("fair-two", "A fair lock: two processes in turn, each holds it for 1 ms", "turns", "fair", 2, 1000, 800),
                ("fair-nine", "A fair lock: nine processes in turn, each holds it for 1 ms", "turns", "fair", 9, 1000, 800),
                ("fair-again", "A fair lock: eight processes that ask again at once", "again", "fair", 8, 1000, 2000),
            ):
                if name not in options.parts:
                    continue
                sides: dict[str, tuple[Build, str]] = {}
                if mode != "inside":
                    sides = {peer: (Build(options.build), peer) for peer in PEERS}
                for face in faces:
                    sides[face] = (Build(options.build), face)
                    if options.base:
                        sides[f"base: {face}"] = (Build(options.base), face)
                part(title, mode, lock, parties, hold_us, count // (4 if options.quick else 1), rounds, server, sides)
        finally:
            server.process.kill()
            server.process.wait()


main()

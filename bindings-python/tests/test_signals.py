"""What becomes of what is held when a signal ends the program, and of calls while signals come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import onelock
from conftest import Secured, Server, is_free, until
from onelock import Client, Release


def start(code: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    """Its status, and what it said, after a signal that comes once it has said that it is ready."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, error = process.communicate(timeout=30)
    assert "Traceback" not in error, error
    return process.returncode, out


HOLD = """
import onelock, signal, sys, threading, time
url, name, how = sys.argv[1:]
client = onelock.Client(url, ttl=60)
assert how == "without" or onelock.release_on_signal()
lease = client.lock(name).acquire()
"""
WAYS = {
    "sleeping": "print('ready', flush=True); time.sleep(60)",
    "busy": "print('ready', flush=True)\nwhile True: pass",
    "waiting": """
threading.Timer(0.1, print, ("ready",), {"flush": True}).start()
client.lock(name).acquire()
""",
    "beside a thread": """
threading.Thread(target=client.lock(name).acquire).start()
threading.Thread(target=time.sleep, args=(60,)).start()
while client.stats().waiting == 0: time.sleep(0.001)
print('ready', flush=True); time.sleep(60)
""",
    "in asyncio": """
import asyncio
async def main():
    print('ready', flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
""",
    "raised again by a server": """
# as uvicorn does: it handles the signal itself, and raises it again once it has ended in good order
before, came = signal.getsignal(signal.SIGTERM), threading.Event()
signal.signal(signal.SIGTERM, lambda *_: came.set())
print('ready', flush=True)
while not came.wait(0.01): pass
signal.signal(signal.SIGTERM, before)
signal.raise_signal(signal.SIGTERM)
""",
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_what_is_held_is_released_and_the_signal_ends_the_process(url: str, name: str, way: str) -> None:
    assert end(start(HOLD + WAYS[way], url, name, "with")) == (-signal.SIGTERM, "")
    assert is_free(url, name)


def test_without_it_others_wait_for_the_ttl(url: str, name: str) -> None:
    assert end(start(HOLD + WAYS["sleeping"], url, name, "without")) == (-signal.SIGTERM, "")
    assert not is_free(url, name)


def test_who_handles_the_signal_is_left_alone(url: str, name: str) -> None:
    process = start(
        """
        import onelock, signal, sys, time
        def handle(*_):
            print("handled", flush=True)
            sys.exit(7)
        signal.signal(signal.SIGTERM, handle)
        assert not onelock.release_on_signal()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert not onelock.release_on_signal(signal.SIGUSR1)
        lease = onelock.Client(sys.argv[1], ttl=60).lock(sys.argv[2]).acquire()
        print("ready", flush=True)
        time.sleep(60)
        """,
        url,
        name,
    )
    assert end(process) == (7, "handled\n")
    # at the end of the interpreter
    assert is_free(url, name)


def test_a_forked_child_gives_back_its_own(url: str, name: str) -> None:
    process = start(
        """
        import onelock, os, signal, sys, time
        onelock.release_on_signal()
        client = onelock.Client(sys.argv[1], ttl=60)
        parents = client.lock(sys.argv[2]).acquire()
        child = os.fork()
        if child == 0:
            own = client.lock(sys.argv[2] + ":child").acquire()
            print("ready", flush=True)
            time.sleep(60)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGTERM
        print(parents.held, client.inspect(sys.argv[2]) is not None, client.inspect(sys.argv[2] + ":child"), flush=True)
        """,
        url,
        name,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "True True None\n"), error
    until(lambda: is_free(url, name))


@pytest.fixture(params=["restarted", "not restarted"])
def ticks(request: pytest.FixtureRequest) -> Iterator[list[float]]:
    """When a handler ran, of a signal that comes every 10 ms."""
    ran: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_: ran.append(time.monotonic()))
    signal.siginterrupt(signal.SIGALRM, request.param != "restarted")
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    yield ran
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_calls_end_in_time_however_often_signals_come(
    server: Server, secured: Secured, name: str, ticks: list[float], tls: bool
) -> None:
    at = secured if tls else server
    url, ca = (secured.tls_url, str(secured.ca)) if tls else (server.url, None)
    with Client(url, request_timeout=0.5, ca_file=ca) as client:
        lease = client.lock(name).acquire()
        begun = time.monotonic()
        with pytest.raises(onelock.LockTimeout):
            client.lock(name).acquire(timeout=0.3)
        ended = time.monotonic()
        # far more than it needs, also on a busy machine: calls went on for ever
        assert ended - begun < 20
        assert sum(begun < tick < ended for tick in ticks) >= 3
        at.process.send_signal(signal.SIGSTOP)
        try:
            begun = time.monotonic()
            # no signal can end it: it takes no longer than one request
            assert lease.release() is Release.UNCONFIRMED
            assert time.monotonic() - begun < 20
        finally:
            at.process.send_signal(signal.SIGCONT)
        until(lambda: is_free(at.url, name))

"""The interpreter itself: its end under a loop that still runs, a second one in the process, and what the machine has no
more of."""

from __future__ import annotations

import os

import pytest

from test_process import python

ENDING = r"""
import asyncio, socket, sys, threading, time
from onelock import AsyncClient

url, name, where = sys.argv[1:]
stuck = threading.Event()

def from_here():
    frame = sys._getframe(2)
    while frame is not None:
        if "onelock" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False

def stop_here():
    # lets go of the interpreter until that ends; then this thread ends here
    stuck.set()
    while True:
        time.sleep(0.001)

calls = []

def watched(method, nth=1):
    def call(self, *args, **kwargs):
        # nobody else calls this one
        if method == "remove_reader" or from_here():
            calls.append(method)
            if where == method and calls.count(method) == nth:
                stop_here()
        return getattr(asyncio.SelectorEventLoop, method)(self, *args, **kwargs)
    return call

class Loop(asyncio.SelectorEventLoop):
    # the first one is for the loop's pump, the second for a connection
    add_reader, remove_reader = watched("add_reader", 2), watched("remove_reader")
    call_soon, create_future = watched("call_soon"), watched("create_future")

client = AsyncClient(url, ttl=1.5)

async def main():
    lease = await client.lock(name).acquire()
    # the loop gets a connection of its own when there was something to send
    while calls.count("add_reader") < 2:
        await lease.extend(5)
    if where == "loss":
        lease.on_lost(lambda *_: stop_here())
        await client.force_release(name)
    if where == "held":
        stuck.set()
    if where == "remove_reader":
        host, _, port = url.removeprefix("redis://").rstrip("/").partition(":")
        with socket.create_connection((host, int(port))) as other:
            other.sendall(b"CLIENT KILL TYPE NORMAL SKIPME YES\r\n")
            other.recv(100)
    await asyncio.sleep(100)

def run():
    loop = Loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main())

threading.Thread(target=run, daemon=True).start()
assert stuck.wait(20)
"""


@pytest.mark.parametrize("where", ["add_reader", "remove_reader", "call_soon", "create_future", "loss", "held"])
def test_the_interpreter_ends_while_a_loop_is_in_one_of_our_calls(url: str, name: str, where: str) -> None:
    """A thread that is in Python when the interpreter ends is unwound: nothing native of ours may be below it."""
    done = python(url, ENDING, name, where)
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr
    assert "Traceback" not in done.stderr


DESCRIPTORS = """
import asyncio, gc, os, sys
from onelock import AsyncClient

client = AsyncClient(sys.argv[1])

async def once():
    async with client.lock(sys.argv[2]):
        pass

def count():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

asyncio.run(once())
before = count()
for _ in range(30):
    asyncio.run(once())
grown = count() - before
asyncio.run(client.close())
print(grown, count() - before)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("store", ["server", "memory"])
def test_an_event_loop_leaves_no_descriptor_behind(url: str, name: str, store: str) -> None:
    done = python(url if store == "server" else "memory://", DESCRIPTORS, name)
    assert done.returncode == 0, done.stderr
    grown, after_close = map(int, done.stdout.split())
    # the connection of the last loop or two may still be on its way out
    assert grown <= 3, grown
    assert after_close <= 1, after_close


SECOND = """
import sys
import onelock

code = '''
try:
    import onelock
except ImportError as refused:
    import builtins
    print(refused)
else:
    print("let in")
'''
code = f"import sys; sys.path[:] = {sys.path!r}" + code
try:
    import _interpreters as interpreters
    second = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    second = interpreters.create(isolated=False)
interpreters.run_string(second, code)
interpreters.destroy(second)

# the first one goes on as if nothing had been
import threading
lost = threading.Event()
client = onelock.Client("memory://", ttl=1.2)
lease = client.lock("a").acquire()
lease.on_lost(lambda *_: lost.set())
client.force_release("a")
assert lost.wait(10)
assert client.lock("a").acquire().held
"""


def test_a_second_interpreter_is_refused_and_disturbs_nothing() -> None:
    done = python("", SECOND)
    assert done.returncode == 0, done.stderr
    assert "interpreter" in done.stdout
    assert "WSGIApplicationGroup" in done.stdout


LIMITS = """
import asyncio, os, resource, sys
import onelock
from onelock import AsyncClient, Client, SystemLimit

url, name, what, face = sys.argv[1:]
# what is imported later could not be found by another user
import logging
AsyncClient("memory://").lock("a")
if os.geteuid() == 0:
    # the superuser has no limit of threads
    os.setgid(64123)
    os.setuid(64123)
limit = resource.RLIMIT_NPROC if what == "threads" else resource.RLIMIT_NOFILE
most = resource.getrlimit(limit)[1]

def refused(error):
    assert error.retryable and "limit" in str(error), str(error)

def threads():
    client = Client(url)
    resource.setrlimit(limit, (1, most))
    for _ in range(3):
        try:
            client.lock(name).try_acquire()
        except SystemLimit as error:
            refused(error)
        else:
            raise AssertionError("no limit")
    resource.setrlimit(limit, (most, most))
    with client.lock(name, timeout=20) as lease:
        assert lease.held

async def loop():
    client = AsyncClient(url)
    resource.setrlimit(limit, (1, most))
    for _ in range(3):
        try:
            await client.lock(name).try_acquire()
        except SystemLimit as error:
            refused(error)
        else:
            raise AssertionError("no limit")
    resource.setrlimit(limit, (most, most))
    async with client.lock(name, timeout=20) as lease:
        assert lease.held

threads() if face == "threads" else asyncio.run(loop())
print("well")
"""


@pytest.mark.parametrize("face", ["threads", "asyncio"])
@pytest.mark.parametrize("what", ["threads", "descriptors"])
def test_what_the_machine_has_no_more_of_is_an_error_that_passes(url: str, name: str, what: str, face: str) -> None:
    done = python(url, LIMITS, name, what, face)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
    assert "panic" not in done.stderr

"""pottery's Redlock, on behalf of a test: the operations acquire, try_acquire and release of the driver protocol.

It puts `redlock:` in front of every name, so only names that begin like that can be shared with it.
"""

import json
import sys
import threading
from importlib.metadata import version

from pottery import Redlock
from redis import Redis

PREFIX = "redlock:"
clients = {}
locks = {}
printing = threading.Lock()


def reply(number, **result):
    with printing:
        print(json.dumps({"id": number, **result}), flush=True)


def client(url):
    return clients.get(url) or clients.setdefault(url, Redis.from_url(url))


def act(op, args):
    if op == "hello":
        return f"pottery {version('pottery')}"
    if op == "release":
        locks.pop(args["lease"]).release()
        return None
    name = args["name"]
    if not name.startswith(PREFIX):
        raise ValueError(f"{name} does not begin with {PREFIX}")
    # one address, or those of several independent servers with spaces between
    masters = {client(url) for url in args["url"].split(" ")}
    lock = Redlock(key=name.removeprefix(PREFIX), masters=masters, auto_release_time=args["ttl_ms"] / 1000)
    how = {"blocking": True, "timeout": args["wait_ms"] / 1000} if op == "acquire" else {"blocking": False}
    if lock.acquire(**how):
        locks[args["lease"]] = lock
        return True
    return False


def run(request):
    try:
        reply(request["id"], ok=act(request["op"], request["args"]))
    except Exception as error:
        reply(request["id"], error={"kind": type(error).__name__, "message": str(error)})


for line in sys.stdin:
    threading.Thread(target=run, args=[json.loads(line)], daemon=True).start()

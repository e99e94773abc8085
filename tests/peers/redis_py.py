"""redis-py's Lock, on behalf of a test: the operations acquire, try_acquire and release of the driver protocol."""

import json
import sys
import threading

import redis

locks = {}
printing = threading.Lock()


def reply(number, **result):
    with printing:
        print(json.dumps({"id": number, **result}), flush=True)


def act(op, args):
    if op == "hello":
        return f"redis-py {redis.__version__}"
    if op == "release":
        locks.pop(args["lease"]).release()
        return None
    client = redis.Redis.from_url(args["url"])
    lock = client.lock(args["name"], timeout=args["ttl_ms"] / 1000, thread_local=False)
    wait = args.get("wait_ms", 0) / 1000
    if lock.acquire(blocking=op == "acquire", blocking_timeout=wait if op == "acquire" else None):
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

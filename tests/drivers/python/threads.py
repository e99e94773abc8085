"""`Client`: every request has a thread of its own, and a cancelled one is ended through its `Cancel`."""

from __future__ import annotations

import threading
import time
from typing import Any, TextIO

from protocol import (
    Body,
    DriverError,
    Named,
    Request,
    diagnosis,
    entries,
    hello,
    inspection,
    listen,
    page,
    permits,
    stats,
    view,
)

import onelock


class Driver:
    def __init__(self) -> None:
        self.clients: dict[str, onelock.Client] = Named()
        self.leases: dict[str, onelock.Lease] = Named()
        self.cancels: dict[int, onelock.Cancel] = {}

    def run(self, requests: TextIO) -> None:
        for line in requests:
            request = Request(line)
            # before the thread runs: a cancel may be the next line
            self.cancels[request.id] = onelock.Cancel()
            threading.Thread(target=self.serve, args=(request,), daemon=True).start()

    def serve(self, request: Request) -> None:
        try:
            request.check()
            result = self.act(request)
        except Exception as error:
            request.fail(error)
        else:
            request.answer(result)
        del self.cancels[request.id]

    def act(self, request: Request) -> object:
        op, args = request.op, request.args
        match op:
            case "hello":
                return hello("sync")
            case "client":
                self.clients[args["client"]] = onelock.Client.connect(args["url"], **request.client_options())
            case "close":
                self.clients[args["client"]].close()
            case "stats":
                return stats(self.clients[args["client"]])
            case "acquire":
                cancel, wait = self.cancels[request.id], request.seconds("wait_ms")
                return self.granted(request, self.lock(request).acquire(wait, cancel=cancel, **request.count()))
            case "try_acquire":
                found = self.lock(request).try_acquire(**request.count())
                return None if found is None else self.granted(request, found)
            case "attach":
                return self.granted(request, self.lock(request).attach(args["proof"]))
            case "with":
                return self.scope(request)
            case "is_locked":
                return self.lock(request).is_locked()
            case "permits":
                return permits(self.lock(request).permits())
            case "set_permits":
                return permits(self.lock(request).set_permits(args["permits"]))
            case "inspect":
                return inspection(self.clients[args["client"]].inspect(request.name()))
            case "diagnose":
                return diagnosis(self.clients[args["client"]].diagnose(request.name()))
            case "list":
                client = self.clients[args["client"]]
                if "limit" in args:
                    return page(client.list(request.pattern(), limit=args["limit"], cursor=args.get("cursor")))
                return entries(client.listing(request.pattern()))
            case "force_release":
                return self.clients[args["client"]].force_release(request.name(), foreign=args.get("foreign", False))
            case "cancel":
                pending = self.cancels.get(args["request"])
                if pending is not None:
                    pending.cancel()
            case "check":
                return view(self.leases[args["lease"]])
            case "release":
                return self.leases[args["lease"]].release()
            case "extend":
                lease = self.leases[args["lease"]]
                lease.extend(args["ttl_ms"] / 1000)
                return view(lease)
            case "downgrade":
                lease = self.leases[args["lease"]]
                lease.downgrade()
                return view(lease)
            case "detach":
                return self.leases[args["lease"]].detach()
            case "wait_lost":
                return self.leases[args["lease"]].wait_lost(args["limit_ms"] / 1000)
            case "drop":
                self.leases.pop(args["lease"], None)
            case _:
                raise DriverError(f"there is no operation {op}")
        return None

    def lock(self, request: Request) -> Any:
        locks = request.locks_of(self.clients[request.args["client"]])
        return locks[0] if len(locks) == 1 else onelock.MultiLock(*locks)

    def granted(self, request: Request, lease: onelock.Lease) -> dict[str, Any]:
        listen(lease, request.args["lease"])
        self.leases[request.args["lease"]] = lease
        return view(lease)

    def scope(self, request: Request) -> dict[str, Any]:
        with self.lock(request) as lease:
            listen(lease, request.args["lease"])
            seen = view(lease)
            body = request.args["body"]
            if body == "fail":
                raise Body("the body failed")
            while body == "until_free" and self.lock(request).is_locked():
                time.sleep(0.01)
            while body == "until_lost" and lease.wait_lost(1) is None:
                pass
        return seen

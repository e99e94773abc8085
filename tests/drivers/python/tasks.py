"""`AsyncClient`: every request is a task, and a cancelled one is a cancelled task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
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
        self.clients: dict[str, onelock.AsyncClient] = Named()
        self.leases: dict[str, onelock.AsyncLease] = Named()
        self.pending: dict[int, asyncio.Task[None]] = {}

    async def run(self, requests: TextIO, end: Callable[[], None]) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), requests)
        while line := await reader.readline():
            request = Request(line.decode())
            task = asyncio.create_task(self.serve(request))
            self.pending[request.id] = task
            task.add_done_callback(partial(self.forget, request.id))
        # before the loop cancels what is under way
        end()

    def forget(self, id: int, _: asyncio.Task[None]) -> None:
        del self.pending[id]

    async def serve(self, request: Request) -> None:
        try:
            request.check()
            result = await self.act(request)
        except (Exception, asyncio.CancelledError) as error:
            request.fail(error)
        else:
            request.answer(result)

    async def act(self, request: Request) -> object:
        op, args = request.op, request.args
        match op:
            case "hello":
                return hello("asyncio")
            case "client":
                client = await onelock.AsyncClient.connect(args["url"], **request.client_options())
                self.clients[args["client"]] = client
            case "close":
                await self.clients[args["client"]].close()
            case "stats":
                return stats(self.clients[args["client"]])
            case "acquire":
                wait = request.seconds("wait_ms")
                return self.granted(request, await self.lock(request).acquire(wait, **request.count()))
            case "try_acquire":
                found = await self.lock(request).try_acquire(**request.count())
                return None if found is None else self.granted(request, found)
            case "attach":
                return self.granted(request, await self.lock(request).attach(args["proof"]))
            case "with":
                return await self.scope(request)
            case "is_locked":
                return await self.lock(request).is_locked()
            case "permits":
                return permits(await self.lock(request).permits())
            case "set_permits":
                return permits(await self.lock(request).set_permits(args["permits"]))
            case "inspect":
                return inspection(await self.clients[args["client"]].inspect(request.name()))
            case "diagnose":
                return diagnosis(await self.clients[args["client"]].diagnose(request.name()))
            case "list":
                client = self.clients[args["client"]]
                if "limit" in args:
                    return page(await client.list(request.pattern(), limit=args["limit"], cursor=args.get("cursor")))
                return entries([entry async for entry in client.listing(request.pattern())])
            case "force_release":
                client = self.clients[args["client"]]
                return await client.force_release(request.name(), foreign=args.get("foreign", False))
            case "cancel":
                if args["request"] in self.pending:
                    self.pending[args["request"]].cancel()
            case "check":
                return view(self.leases[args["lease"]])
            case "release":
                return await self.leases[args["lease"]].release()
            case "extend":
                lease = self.leases[args["lease"]]
                await lease.extend(args["ttl_ms"] / 1000)
                return view(lease)
            case "downgrade":
                lease = self.leases[args["lease"]]
                await lease.downgrade()
                return view(lease)
            case "detach":
                return self.leases[args["lease"]].detach()
            case "wait_lost":
                try:
                    return await asyncio.wait_for(self.leases[args["lease"]].lost(), args["limit_ms"] / 1000)
                except asyncio.TimeoutError:
                    return None
            case "drop":
                self.leases.pop(args["lease"], None)
            case _:
                raise DriverError(f"there is no operation {op}")
        return None

    def lock(self, request: Request) -> Any:
        locks = request.locks_of(self.clients[request.args["client"]])
        return locks[0] if len(locks) == 1 else onelock.AsyncMultiLock(*locks)

    def granted(self, request: Request, lease: onelock.AsyncLease) -> dict[str, Any]:
        listen(lease, request.args["lease"])
        self.leases[request.args["lease"]] = lease
        return view(lease)

    async def scope(self, request: Request) -> dict[str, Any]:
        async with self.lock(request) as lease:
            listen(lease, request.args["lease"])
            seen = view(lease)
            body = request.args["body"]
            if body == "fail":
                raise Body("the body failed")
            while body == "until_free" and await self.lock(request).is_locked():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if body == "until_lost":
                await asyncio.Event().wait()
        return seen

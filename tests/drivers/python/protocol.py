"""Requests, replies and events, and what both modes make of them in the same way."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

import onelock

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_LOCK_OPTIONS = ("ttl_ms", "auto_renew", "min_hold_ms", "max_hold_ms", "lock_delay_ms", "min_validity_ms", "fencing")
_CLIENT_OPTIONS = (
    *_LOCK_OPTIONS,
    *("prefix", "drift_factor", "min_fencing_grade", "label", "inspectable"),
    *("connect_timeout_ms", "request_timeout_ms", "close_timeout_ms", "unreachable_limit_ms", "quarantine_ms"),
)
_ARGUMENTS = frozenset(_CLIENT_OPTIONS).union(
    (
        "client",
        "url",
        "kind",
        "name",
        "also",
        "lease",
        "wait_ms",
        "limit_ms",
        "proof",
        "request",
        "body",
        "owner",
        "foreign",
    ),
    ("pattern", "limit", "cursor", "permits", "count"),
)
_output = threading.Lock()

# scenarios break servers on purpose, and look at what calls and events say
logging.getLogger("onelock").setLevel(logging.CRITICAL)


class Body(Exception):
    """What the body of a scope raises."""


class DriverError(Exception):
    """A defect of this driver or of the scenario."""


def now_ns() -> int:
    return time.clock_gettime_ns(_CLOCK)


class Request:
    """One line of the supervisor's."""

    def __init__(self, line: str) -> None:
        self.from_ns = now_ns()
        request = json.loads(line)
        self.id: int = request["id"]
        self.op: str = request["op"]
        self.args: dict[str, Any] = request.get("args") or {}

    def check(self) -> None:
        unknown = self.args.keys() - _ARGUMENTS
        if unknown:
            raise DriverError(f"{self.op} has unknown arguments: {', '.join(sorted(unknown))}")

    def name(self) -> str | bytes:
        return name(self.args["name"])

    def names(self) -> list[str | bytes]:
        """The name, and the second one for both locks at once."""
        return [name(self.args[key]) for key in ("name", "also") if key in self.args]

    def pattern(self) -> str | bytes:
        return name(self.args["pattern"])

    def seconds(self, key: str) -> float | None:
        ms = self.args.get(key)
        return None if ms is None else ms / 1000

    def client_options(self) -> dict[str, Any]:
        return self._options(_CLIENT_OPTIONS)

    def lock_options(self) -> dict[str, Any]:
        options = self._options(_LOCK_OPTIONS)
        if "owner" in self.args:
            options["owner"] = onelock.Owner(self.args["owner"])
        return options

    def lock_of(self, client: Any) -> Any:
        """The lock of a client that the arguments describe."""
        return self.locks_of(client)[0]

    def locks_of(self, client: Any) -> list[Any]:
        """The same, and another one where there is a second name."""
        options = self.lock_options()
        if self.args["kind"] == "semaphore":
            return [client.semaphore(name, self.args.get("permits"), **options) for name in self.names()]
        if self.args["kind"] in ("read_lock", "write_lock"):
            both = [client.rw_lock(name, **options) for name in self.names()]
            return [one.read() if self.args["kind"] == "read_lock" else one.write() for one in both]
        return [getattr(client, self.args["kind"])(name, **options) for name in self.names()]

    def count(self) -> dict[str, int]:
        """How many permits an acquire takes."""
        return {"permits": self.args["count"]} if "count" in self.args else {}

    def _options(self, wanted: tuple[str, ...]) -> dict[str, Any]:
        options = {}
        for key in wanted:
            value = self.args.get(key)
            if value is None:
                continue
            if key.endswith("_ms"):
                options[key[:-3]] = value / 1000
            else:
                options[key] = name(value) if key == "prefix" else value
        return options

    def answer(self, result: object) -> None:
        _write({"id": self.id, "from_ns": self.from_ns, "to_ns": now_ns(), "ok": result})

    def fail(self, error: BaseException) -> None:
        to_ns = now_ns()
        if isinstance(error, onelock.OnelockError):
            kind = error.kind
        elif isinstance(error, Body):
            kind = "Body"
        elif type(error).__name__ == "CancelledError":
            kind = "Cancelled"
        else:
            kind = "Driver"
        message = str(error) if kind != "Driver" else f"{type(error).__name__}: {error}"
        _write({"id": self.id, "from_ns": self.from_ns, "to_ns": to_ns, "error": {"kind": kind, "message": message}})


def permits(found: Any) -> dict[str, int] | None:
    return None if found is None else {"total": found.total, "held": found.held, "free": found.free}


def name(given: str | dict[str, str]) -> str | bytes:
    """A text, or `{"hex": ...}` for bytes that are none."""
    return given if isinstance(given, str) else bytes.fromhex(given["hex"])


class Named(dict[str, Any]):
    """Objects by the names that the supervisor gave them."""

    def __missing__(self, key: str) -> Any:
        raise DriverError(f"there is no {key}")


def view(lease: Any) -> dict[str, Any]:
    """A lease, as every reply about one shows it."""
    at_ns = now_ns()
    held, remaining = lease.held, lease.remaining
    text = lease.name if isinstance(lease.name, str) else lease.name.decode(errors="replace")
    return {
        "at_ns": at_ns,
        "held": held,
        "remaining_ms": remaining * 1000,
        "name": text,
        "kind": lease.kind,
        "token": lease.fencing_token,
        "count": lease.hold_count,
        "loss": lease.loss,
    }


def listen(lease: Any, lease_name: str) -> None:
    """Passes on the events of a hold; a lease that has entered it again leaves that to the outermost one."""
    if lease.hold_count <= 1:
        lease.on_lost(lambda _, reason: _tell(event="lost", lease=lease_name, reason=reason))
        lease.on_jeopardy(lambda _: _tell(event="jeopardy", lease=lease_name))


def inspection(found: onelock.Inspection | None) -> dict[str, Any] | None:
    if found is None:
        return None
    owner = found.owner and {
        "label": found.owner.label,
        "pid": found.owner.pid,
        "host": found.owner.host,
        "since_ms": round(found.owner.since * 1000),
    }
    ttl_left_ms = None if found.ttl_left is None else found.ttl_left * 1000
    waiters = [
        {
            "client": waiter.client
            and {"label": waiter.client.label, "pid": waiter.client.pid, "host": waiter.client.host},
            "since_ms": round(waiter.since * 1000),
        }
        for waiter in found.waiters
    ]
    return {
        "kind": found.kind,
        "origin": found.origin,
        "count": found.hold_count,
        "token": found.fencing_token,
        "ttl_left_ms": ttl_left_ms,
        "owner": owner,
        "foreign_holder": found.foreign_holder,
        "permits": found.permits,
        "free": found.free,
        "waiting": found.waiting,
        "waiters": waiters,
    }


def entries(found: Iterable[onelock.LockEntry]) -> list[dict[str, Any]]:
    """All locks, each once, in the order of their names."""

    def shown(entry: onelock.LockEntry) -> dict[str, Any]:
        name = entry.name if isinstance(entry.name, str) else {"hex": entry.name.hex()}
        return {"name": name, "waiting": entry.waiting, **(inspection(entry.inspection) or {})}

    def raw(name: str | bytes) -> bytes:
        return name.encode() if isinstance(name, str) else name

    by_name = {raw(entry.name): entry for entry in found}
    return [shown(by_name[name]) for name in sorted(by_name)]


def page(found: onelock.LockPage) -> dict[str, Any]:
    return {"entries": entries(found.entries), "next": found.next}


def diagnosis(found: onelock.Diagnosis) -> dict[str, Any]:
    """What a look at the servers found, with the last finding of each step."""
    steps = {
        finding.step: {
            "server": finding.server,
            "severity": finding.severity,
            "detail": finding.detail,
            "todo": finding.todo,
            "error": finding.error,
            "measured": finding.measured,
        }
        for finding in found.findings
    }
    return {"severity": found.severity, "grade": found.grade, "steps": steps}


def stats(client: Any) -> dict[str, int]:
    seen = client.stats()
    return {"held": seen.held, "waiting": seen.waiting, "cleaning": seen.cleaning, "lost": seen.lost}


def hello(mode: str) -> dict[str, Any]:
    return {"protocol": 1, "language": "python", "mode": mode, "pid": os.getpid(), "now_ns": now_ns()}


def _tell(**event: object) -> None:
    _write({**event, "at_ns": now_ns()})


def _write(line: dict[str, Any]) -> None:
    text = json.dumps(line) + "\n"
    with _output:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            # nobody reads any more: the end of the input will end this process
            pass

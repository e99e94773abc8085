"""What the documentation names is what there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import onelock
from onelock import AsyncClient, AsyncLease, AsyncLock, Client, InvalidArgument, Lease, Lock, _types

SPEC = Path(__file__).resolve().parents[2] / "tests" / "spec" / "options.toml"


def options(*, of_locks: bool = False) -> set[str]:
    """The names in the table, of all options or of those that a lock may set."""
    entries = SPEC.read_text().split("\n[[option]]\n")[1:]
    chosen = (entry for entry in entries if not of_locks or "\nlock = true\n" in entry)
    names = {re.findall(r'^name = "(\w+)"$', entry, re.MULTILINE)[0] for entry in chosen}
    if "client_certificate" in names:
        names = names - {"client_certificate"} | {"cert_file", "key_file"}
    return names


def wrong(option: str) -> dict[str, Any]:
    """A value that no option accepts."""
    return {option: object()}


def test_options_are_those_of_the_table() -> None:
    for declared in (_types.ClientOptions, _types.AsyncClientOptions):
        assert set(declared.__annotations__) == options()
    assert set(_types.LockOptions.__annotations__) == options(of_locks=True)
    with Client("memory://") as client:
        for name in options():
            # every one is known, and refuses what is nothing of the kind
            with pytest.raises((TypeError, InvalidArgument), match=name):
                Client("memory://", **wrong(name))
        for name in options(of_locks=True):
            with pytest.raises((TypeError, InvalidArgument), match=name):
                client.lock("name", **wrong(name))
            assert Client.lock.__doc__
            assert f"`{name}`" in Client.lock.__doc__


def test_both_faces_have_the_same_members() -> None:
    def members(cls: type) -> set[str]:
        return {name for name in dir(cls) if not name.startswith("_")}

    assert members(Client) == members(AsyncClient)
    assert members(Lock) == members(AsyncLock)
    # threads have an event, tasks an awaitable
    assert members(Lease) ^ members(AsyncLease) == {"lost_event", "wait_lost", "lost"}
    for name in members(Client):
        ours = list(inspect.signature(getattr(Client, name)).parameters)
        theirs = [part for part in inspect.signature(getattr(AsyncClient, name)).parameters if part != "cancel_on_loss"]
        assert ours == theirs, name


def test_everything_public_is_explained() -> None:
    for thing in onelock.__all__:
        value = getattr(onelock, thing)
        if not isinstance(value, type):
            continue
        assert value.__doc__, thing
        for member, part in vars(value).items():
            if not member.startswith("_") and (callable(part) or isinstance(part, property)):
                assert part.__doc__, f"{thing}.{member}"

"""What the documentation names is what there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import onelock
from onelock import AsyncClient, AsyncLease, AsyncLock, Client, Lease, Lock, _types

SPEC = Path(__file__).resolve().parents[2] / "tests" / "spec" / "defaults.toml"


def spec() -> dict[str, str]:
    lines = [line.partition("#")[0].split(" = ", 1) for line in SPEC.read_text().splitlines() if " = " in line]
    return {key.strip(): value.strip().strip('"') for key, value in lines}


def documented() -> dict[str, str]:
    """The options and defaults of the table in the documentation of `Client`."""
    assert Client.__doc__
    rows = re.findall(r"^ *\| (`[^|]+) \| ([^|]+) \| [^|]+ \|$", Client.__doc__, re.MULTILINE)
    return {name: default.strip() for names, default in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_table_of_options_is_complete_and_has_the_defaults_of_all_languages() -> None:
    table, defaults = documented(), spec()
    assert set(table) == set(_types.ClientOptions.__annotations__)
    for name, default in table.items():
        if f"{name}_ms" in defaults:
            ms = int(defaults[f"{name}_ms"])
            assert default == ("no limit" if name == "max_hold" and ms == 0 else f"{ms / 1000:g}"), name
        elif name in defaults and name != "min_fencing_grade":
            assert default.lower() == defaults[name].lower(), name


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

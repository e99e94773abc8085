"""Properties of the boundary: whatever is passed comes over unchanged, or is refused with a clear error before any I/O."""

from __future__ import annotations

import itertools
import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onelock
from conftest import Server
from onelock import Client, InvalidArgument, OnelockError, Owner, _types

settings.register_profile("here", deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
settings.load_profile("here")

YEAR = 366 * 24 * 3600.0
NAMES = st.one_of(st.text(max_size=600), st.binary(max_size=600))
NUMBERS = st.one_of(
    st.floats(),
    st.integers(),
    st.decimals(),
    st.fractions(),
    st.timedeltas(),
    st.floats(min_value=0, max_value=2e9),
    st.sampled_from([0.0, -0.0, 0.01, 0.009, 31_536_000.0, 31_536_001.0, 1e15, 1e16, 5e-324]),
)
ANYTHING = st.one_of(
    st.none(), st.booleans(), NUMBERS, NAMES, st.complex_numbers(), st.lists(st.integers()), st.builds(object)
)

memory = Client("memory://properties")
_numbers = itertools.count()


def raw(name: str | bytes) -> bytes | None:
    """What the name is on the wire; `None` when it is none."""
    try:
        encoded = name.encode() if isinstance(name, str) else name
    except UnicodeEncodeError:
        return None
    return encoded if 1 <= len(encoded) <= 512 else None


@given(NAMES)
def test_names(name: str | bytes) -> None:
    expected = raw(name)
    if expected is None:
        with pytest.raises(InvalidArgument) as raised:
            memory.lock(name).acquire(timeout=0)
        assert "name" in str(raised.value)
        return
    lease = memory.lock(name).acquire(timeout=0)
    assert lease.name == name
    assert type(lease.name) is type(name)
    # text and its UTF-8 are one name
    assert memory.lock(expected).try_acquire() is None
    assert memory.inspect(expected) is not None
    lease.release()
    assert memory.inspect(name) is None


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=60), st.binary(max_size=20))
def test_names_on_the_server(server: Server, name: bytes, prefix: bytes) -> None:
    with Client(server.url, prefix=prefix) as client, client.lock(name) as lease:
        assert server.command("GET", prefix + name) == lease.token
    assert server.command("EXISTS", prefix + name) == 0


def in_seconds(value: Any) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


@given(NUMBERS)
def test_durations(value: Any) -> None:
    """A ttl is taken as it is, or refused."""
    try:
        seconds = in_seconds(value)
    except OverflowError:
        seconds = math.inf
    except ValueError:
        # a signalling NaN
        seconds = math.nan
    try:
        lease = memory.lock("duration", ttl=value, auto_renew=False).acquire(timeout=0)
    except InvalidArgument as error:
        assert "ttl" in str(error)  # noqa: PT017
        assert not 0.013 <= seconds <= 365 * 24 * 3600
        return
    drift = seconds * 0.01 + 0.002
    assert 0.009 < seconds < YEAR
    assert lease.remaining <= seconds - drift + 0.001
    assert lease.remaining > seconds - drift - 1 or seconds < 1
    lease.release()


@given(st.one_of(st.floats(), st.integers(), st.timedeltas(), st.decimals(allow_nan=False), st.fractions()))
def test_timeouts(value: Any) -> None:
    try:
        seconds = in_seconds(value)
    except OverflowError:
        seconds = math.inf
    try:
        memory.lock("timeouts").acquire(timeout=value).release()
    except InvalidArgument as error:
        assert "timeout" in str(error) or "wait" in str(error)  # noqa: PT017
        assert not 0 <= seconds <= 365 * 24 * 3600
        return
    assert 0 <= seconds < YEAR


@given(st.sampled_from(sorted(_types.LockOptions.__annotations__)), ANYTHING)
def test_options_of_a_lock(option: str, value: Any) -> None:
    """Anything at all as an option: taken, or refused with an error that names it; never anything else."""
    try:
        # a name of its own: a hold that `max_hold` ended is cleaned up in the background
        memory.lock(f"options {next(_numbers)}", **{option: value}).acquire(timeout=0).release()
    except (InvalidArgument, TypeError) as error:
        assert option in str(error)  # noqa: PT017
    except onelock.LockLost:
        # a `max_hold` that is over at once
        assert option == "max_hold"
    except onelock.NotAcquired:
        # no lease of 30 s is ever good for so long
        assert option == "min_validity"


CLIENT_OPTIONS = sorted(set(_types.ClientOptions.__annotations__) - {"credentials"})


@given(st.sampled_from(CLIENT_OPTIONS), ANYTHING)
def test_options_of_a_client(option: str, value: Any) -> None:
    try:
        Client("memory://", **{option: value})
    except onelock.Unsupported as error:
        assert option == "min_replicas", repr(error)  # noqa: PT017
    except (OnelockError, TypeError, ValueError, OSError) as error:
        assert isinstance(error, (InvalidArgument, TypeError)), repr(error)  # noqa: PT017
        assert option.split("_")[0] in str(error)  # noqa: PT017


@given(ANYTHING)
def test_anything_as_a_name(value: Any) -> None:
    try:
        memory.lock(value).acquire(timeout=0).release()
    except (InvalidArgument, TypeError) as error:
        assert "name" in str(error)  # noqa: PT017
    else:
        assert isinstance(value, (str, bytes))


@given(st.text())
def test_anything_as_an_address(url: str) -> None:
    """An address is refused or taken; nothing is connected, and no password is repeated."""
    try:
        Client("redis://user:s3cr3t@" + url)
    except (InvalidArgument, onelock.Unsupported) as error:
        assert "s3cr3t" not in str(error)  # noqa: PT017


OWNERS = st.one_of(st.text(min_size=1, max_size=50), st.binary(min_size=1, max_size=50))


@given(OWNERS, OWNERS)
def test_owners(one: str | bytes, other: str | bytes) -> None:
    """Owners of one name are one owner: they enter each other's hold, and nobody else's."""
    try:
        first, again, second = Owner(one), Owner(one), Owner(other)
    except InvalidArgument:
        assert any(isinstance(name, str) and raw(name) is None for name in (one, other))
        return
    same = raw(one) == raw(other)
    assert first == again
    assert hash(first) == hash(again)
    assert (first == second) is same
    assert Owner() != first
    assert first != one
    with memory.reentrant_lock("owners", owner=first):
        with memory.reentrant_lock("owners", owner=again) as lease:
            assert lease.hold_count == 2
        found = memory.reentrant_lock("owners", owner=second).try_acquire()
        assert (found is not None) is same
        if found is not None:
            found.release()


@given(st.fractions(min_value=Fraction(1, 10), max_value=1000))
def test_all_ways_to_write_a_duration_are_one(value: Fraction) -> None:
    for same in (value, float(value), Decimal(float(value)), timedelta(seconds=float(value))):
        with memory.lock("ways", ttl=same, auto_renew=False) as lease:
            assert lease.remaining == pytest.approx(float(value) * 0.99, abs=0.5)

"""The exception classes are the rows of the one error table."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import onelock
from onelock import _onelock, errors

TABLE = Path(__file__).resolve().parents[2] / "tests" / "spec" / "errors.toml"


def rows() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for line in TABLE.read_text().splitlines():
        if line.strip() == "[[error]]":
            rows.append({})
        elif " = " in line and rows:
            key, value = line.split(" = ", 1)
            rows[-1][key.strip()] = value.strip().strip('"')
    return rows


def test_every_row_is_a_class_and_every_class_a_row() -> None:
    table = rows()
    assert len(table) == 20
    assert {row["kind"] for row in table} == set(errors._CLASSES)
    for row in table:
        cls = errors._CLASSES[row["kind"]]
        assert cls.__name__ == row["python"]
        assert getattr(onelock, row["python"]) is cls
        assert (cls.number, str(cls.retryable).lower()) == (int(row["number"]), row["retryable"])
        assert issubclass(cls, errors.NotAcquired) == (row["not_acquired"] == "true")


def test_the_core_has_the_same_table() -> None:
    ours = {
        row["kind"]: (int(row["number"]), row["not_acquired"] == "true", row["retryable"] == "true") for row in rows()
    }
    assert {kind: tuple(rest) for kind, *rest in _onelock.error_kinds()} == ours


@pytest.mark.parametrize(
    ("cls", "parent"),
    [
        (onelock.LockTimeout, TimeoutError),
        (onelock.ServerUnavailable, ConnectionError),
        (onelock.NoQuorum, ConnectionError),
        (onelock.AuthenticationFailed, PermissionError),
        (onelock.NotPermitted, PermissionError),
        (onelock.InvalidArgument, ValueError),
        (onelock.Unsupported, NotImplementedError),
        (onelock.ClientClosed, RuntimeError),
        (onelock.LeaseForked, RuntimeError),
        (onelock.SystemLimit, OSError),
    ],
)
def test_second_parents(cls: type[Exception], parent: type[Exception]) -> None:
    assert issubclass(cls, parent)
    assert issubclass(cls, onelock.OnelockError)


@pytest.mark.parametrize("kind", sorted(errors._CLASSES))
def test_they_carry_their_fields_also_through_pickle(kind: str) -> None:
    error = errors._CLASSES[kind]("a message")
    error.lock_name, error.tried, error.detail = "orders:42", "acquire", "what was found"
    error.causes = ("server: gone",)
    for seen in (error, pickle.loads(pickle.dumps(error))):
        assert type(seen) is errors._CLASSES[kind]
        assert str(seen) == "a message"
        assert seen.kind == kind
        assert (seen.lock_name, seen.tried, seen.detail) == ("orders:42", "acquire", "what was found")
        assert seen.causes == ("server: gone",)


def test_a_message_says_what_to_do_and_no_password() -> None:
    client = onelock.Client("redis://user:s3cret@127.0.0.1:1/", connect_timeout=0.2)
    with pytest.raises(onelock.ServerUnavailable) as caught:
        client.lock("orders:42").acquire(timeout=0.1)
    assert 'acquire "orders:42"' in str(caught.value)
    assert "check that the server runs" in str(caught.value)
    assert "s3cret" not in str(caught.value) + repr(client) + "".join(caught.value.causes)
    assert caught.value.lock_name == "orders:42"
    assert caught.value.tried == "acquire"
    assert caught.value.retryable

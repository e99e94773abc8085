"""What the classes of semaphores add to the core: their arguments."""

import asyncio
from typing import Any

import pytest

from onelock import AsyncClient, Client, InvalidArgument

WRONG: list[tuple[Any, type[Exception], str]] = [
    (0, InvalidArgument, "not 0"),
    (-1, InvalidArgument, "not -1"),
    (1025, InvalidArgument, "not 1025|1025 permits"),
    (2**40, InvalidArgument, f"not {2**40}"),
    (10**5000, InvalidArgument, "not a longer number"),
    (True, TypeError, "int, not bool"),
    (1.0, TypeError, "int, not float"),
    (float("nan"), TypeError, "int, not float"),
    ("1", TypeError, "int, not str"),
]


@pytest.mark.parametrize(("permits", "error", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_a_wrong_number_of_permits_is_refused_before_any_request(
    permits: Any, error: type[Exception], words: str
) -> None:
    with Client("redis://127.0.0.1:1") as client:
        semaphore = client.semaphore("x", 4)
        with pytest.raises(error, match=words):
            client.semaphore("x", permits)
        with pytest.raises(error, match=words):
            semaphore.acquire(permits=permits)
        with pytest.raises(error, match=words):
            semaphore.try_acquire(permits=permits)
        with pytest.raises(error, match=words):
            semaphore.set_permits(permits)
        assert client.stats().commands_sent == 0

    async def main() -> None:
        async with AsyncClient("redis://127.0.0.1:1") as client:
            semaphore = client.semaphore("x", 4)
            with pytest.raises(error, match=words):
                await semaphore.acquire(permits=permits)
            with pytest.raises(error, match=words):
                await semaphore.try_acquire(permits=permits)
            with pytest.raises(error, match=words):
                await semaphore.set_permits(permits)
            assert client.stats().commands_sent == 0

    asyncio.run(main())


def test_it_takes_as_many_as_are_asked_for(client: Client, name: str) -> None:
    semaphore = client.semaphore(name, 3)
    with semaphore.acquire(permits=2), semaphore:
        assert semaphore.try_acquire() is None
        found = semaphore.permits()
        assert found is not None
        assert (found.total, found.held, found.free) == (3, 3, 0)
    assert semaphore.set_permits(4).free == 4

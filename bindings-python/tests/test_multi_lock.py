"""Several locks at once, for threads and for asyncio."""

import asyncio
import os
import threading

import pytest

from conftest import Server, is_free, until
from onelock import (
    AsyncClient,
    AsyncMultiLock,
    Cancel,
    Client,
    InvalidArgument,
    LeaseForked,
    LockBusy,
    LockCancelled,
    LockLost,
    LockTimeout,
    LossReason,
    MultiLock,
    Release,
    Unsupported,
)


def test_all_or_none(client: Client, url: str, name: str) -> None:
    names = (f"{name}:b", f"{name}:a")
    both = client.multi_lock(*names, timeout=5)
    assert both.names == names
    assert both.kind == "multi_lock"
    assert both.name == ", ".join(names)
    with both as lease:
        assert lease.held
        assert lease.remaining > 20
        assert lease.names == names
        assert lease.kind == "multi_lock"
        assert lease.name == ", ".join(names)
        assert lease.hold_count == 1
        tokens = lease.fencing_tokens
        assert list(tokens) == list(names)
        assert all(isinstance(token, int) for token in tokens.values())
        assert lease.fencing_token is None
        assert lease.token == ""
        assert both.is_locked()
        assert both.try_acquire() is None
        with pytest.raises(LockBusy, match=f"{name}:a"):
            both.acquire(0)
        lease.extend(60)
        assert lease.remaining > 50
    assert not both.is_locked()
    assert is_free(url, names[0])
    assert is_free(url, names[1])
    assert lease.release() is Release.ALREADY_RELEASED
    with pytest.raises(Unsupported):
        both.attach("proof")


def test_a_lease_of_one_lock_has_the_same_attributes(client: Client, name: str) -> None:
    with client.lock(name) as lease:
        assert lease.names == (name,)
        assert lease.fencing_tokens == {name: lease.fencing_token}


def test_when_one_is_taken_none_is_held(client: Client, url: str, name: str) -> None:
    with Client(url) as rival, rival.lock(f"{name}:b"):
        both = client.multi_lock(f"{name}:a", f"{name}:b")
        assert both.try_acquire() is None
        assert is_free(url, f"{name}:a"), "released before it returns"
        with pytest.raises(LockTimeout, match=f"{name}:b"):
            both.acquire(0.05)
        assert is_free(url, f"{name}:a")


def test_a_lock_that_is_named_twice_is_told_once_of_a_loss(client: Client, server: Server, name: str) -> None:
    told: list[LossReason] = []
    lock = client.lock(name, ttl=1.2, on_lost=lambda _, reason: told.append(reason))
    lease = MultiLock(lock, lock).acquire()
    server.command("DEL", name)
    assert lease.wait_lost(10) is LossReason.TAKEN
    until(lambda: told)
    again: list[LossReason] = []
    # callbacks of a client run one after the other: this one comes after all others
    lease.on_lost(lambda _, reason: again.append(reason))
    until(lambda: again)
    assert told == [LossReason.TAKEN]


def test_members_of_any_kind_and_client(client: Client, url: str, name: str) -> None:
    with Client(url, prefix="other:") as other, other.reentrant_lock(f"{name}:r") as outer:
        several = MultiLock(client.lock(f"{name}:a", ttl=10), other.reentrant_lock(f"{name}:r"))
        with several as lease:
            # the thread is the owner: it enters again
            assert outer.hold_count == 2
            assert lease.held
        assert outer.held
        assert outer.hold_count == 1
        lease = several.acquire()
        # another thread may release it
        thread = threading.Thread(target=lease.release)
        thread.start()
        thread.join(10)
        assert not lease.held
        assert outer.held


def test_what_does_not_go_together(client: Client, name: str) -> None:
    with pytest.raises(InvalidArgument, match="at least one"):
        client.multi_lock()
    with pytest.raises(InvalidArgument, match="one kind"):
        MultiLock(client.lock(name), client.reentrant_lock(name))
    with pytest.raises(InvalidArgument, match="33 locks"):
        client.multi_lock(*(f"{name}:{number}" for number in range(33)))
    with pytest.raises(InvalidArgument, match="timeout"):
        client.multi_lock(name, timeout=-1)
    with pytest.raises(TypeError):
        MultiLock(name)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        MultiLock(client.multi_lock(name))


def test_one_loss_is_the_loss_of_the_whole(client: Client, server: Server, url: str, name: str) -> None:
    told: list[tuple[str, LossReason]] = []
    both = MultiLock(
        client.lock(f"{name}:a", ttl=1.2, on_lost=lambda _, reason: told.append(("member", reason))),
        client.lock(f"{name}:b", ttl=1.2),
        on_lost=lambda _, reason: told.append(("whole", reason)),
    )
    with pytest.raises(LockLost), both as lease:
        server.command("DEL", f"{name}:b")
        assert lease.wait_lost(10) is LossReason.TAKEN
        assert not lease.held
        assert lease.lost_event.is_set()
    until(lambda: len(told) == 2)
    assert sorted(told) == [("member", LossReason.TAKEN), ("whole", LossReason.TAKEN)]
    assert lease.release() is Release.ALREADY_RELEASED
    until(lambda: is_free(url, f"{name}:a"))


def test_a_detached_one_is_taken_over_member_by_member(client: Client, url: str, name: str) -> None:
    names = (f"{name}:a", f"{name}:b")
    lease = client.multi_lock(*names).acquire()
    proofs = lease.detach().splitlines()
    assert not lease.held
    assert len(proofs) == 2
    with Client(url) as other:
        for member, proof in zip(names, proofs, strict=True):
            with other.lock(member).attach(proof) as attached:
                assert attached.held


def test_a_wait_can_be_cancelled(client: Client, url: str, name: str) -> None:
    with Client(url) as rival, rival.lock(f"{name}:b"):
        cancel = Cancel()
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                client.multi_lock(f"{name}:a", f"{name}:b").acquire(cancel=cancel)
            except LockCancelled as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: client.stats().waiting == 1)
        cancel.cancel()
        thread.join(10)
        assert len(errors) == 1
        until(lambda: is_free(url, f"{name}:a"))


def test_a_dropped_one_is_released_with_a_warning(client: Client, url: str, name: str) -> None:
    lease = client.multi_lock(f"{name}:a", f"{name}:b").acquire()
    assert lease.held
    with pytest.warns(ResourceWarning, match=f"{name}:a, {name}:b"):
        del lease
    until(lambda: is_free(url, f"{name}:a") and is_free(url, f"{name}:b"))


def test_a_forked_child_holds_nothing(client: Client, name: str) -> None:
    with client.multi_lock(f"{name}:a", f"{name}:b") as lease:
        child = os.fork()
        if child == 0:
            good = not lease.held and lease.remaining == 0
            try:
                lease.release()
                good = False
            except LeaseForked:
                pass
            os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert lease.held
        assert client.lock(f"{name}:a").is_locked()


def test_overlapping_sets_get_on(client: Client, url: str, name: str) -> None:
    forks = [f"{name}:{number}" for number in range(4)]
    used = dict.fromkeys(forks, 0)
    with Client(url) as other:

        def eat(seat: int) -> None:
            mine = [forks[seat % 4], forks[(seat + 1) % 4]]
            both = (client if seat % 2 else other).multi_lock(*reversed(mine) if seat % 3 else mine, timeout=60)
            for _ in range(10):
                with both:
                    for fork in mine:
                        used[fork] += 1
                        assert used[fork] == 1
                    for fork in mine:
                        used[fork] -= 1

        threads = [threading.Thread(target=eat, args=(seat,)) for seat in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    assert set(used.values()) == {0}
    assert all(is_free(url, fork) for fork in forks)


def test_asyncio(server: Server, url: str, name: str) -> None:
    async def main() -> None:
        async with await AsyncClient.connect(url) as client, AsyncClient(url) as rival:
            names = (f"{name}:a", f"{name}:b")
            both = client.multi_lock(*names, timeout=5)
            async with both as lease:
                assert lease.held
                assert lease.names == names
                assert set(lease.fencing_tokens) == set(names)
                assert await both.is_locked()
                assert await both.try_acquire() is None
            assert not await both.is_locked()
            async with rival.lock(names[1]) as theirs:
                with pytest.raises(LockTimeout):
                    await both.acquire(0.05)
                # cancelled: nothing is left held
                waiting = asyncio.ensure_future(both.acquire(None))
                while client.stats().waiting != 1:
                    await asyncio.sleep(0.001)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await (await rival.lock(names[0]).acquire(10)).release()
                assert theirs.held
            # the body is cancelled at the first loss
            told: list[LossReason] = []
            several = AsyncMultiLock(
                client.lock(f"{name}:c", ttl=1.2),
                rival.reentrant_lock(f"{name}:d", ttl=1.2),
                on_lost=lambda _, reason: told.append(reason),
            )
            with pytest.raises(LockLost):
                async with several as lease:
                    server.command("DEL", f"{name}:d")
                    await asyncio.sleep(60)
            assert told == [LossReason.TAKEN]
            assert lease.loss is LossReason.TAKEN
            with pytest.raises(InvalidArgument):
                client.multi_lock()
            with pytest.raises(TypeError):
                AsyncMultiLock(several)
            with pytest.raises(Unsupported):
                await several.attach("proof")
            assert repr(both) == f"<AsyncMultiLock {names!r}>"

    asyncio.run(main())


def test_closing_one_client_ends_the_whole(url: str, name: str) -> None:
    with Client(url) as one, Client(url) as other:
        lease = MultiLock(one.lock(f"{name}:a"), other.lock(f"{name}:b")).acquire()
        one.close()
        assert lease.wait_lost(10) is LossReason.CLOSED
        assert not lease.held
        assert lease.release() is Release.ALREADY_EXPIRED
        until(lambda: is_free(url, f"{name}:b"))

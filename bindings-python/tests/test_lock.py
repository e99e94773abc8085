"""Locks and leases in code of threads."""

from __future__ import annotations

import datetime
import decimal
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

import onelock
from conftest import Server, is_free, quick_once, until
from onelock import (
    Client,
    Grade,
    InvalidArgument,
    Lease,
    LockBusy,
    LockCancelled,
    LockLost,
    LockNotHeld,
    LockTimeout,
    LossReason,
    NotAcquired,
    Owner,
    Release,
    Severity,
    WrongKind,
)


def test_acquire_and_release(client: Client, name: str) -> None:
    lease = client.lock(name).acquire()
    assert lease.held
    assert lease.name == name
    assert lease.kind == "lock"
    assert 29 < lease.remaining < 30
    assert lease.hold_count == 1
    assert lease.loss is None
    assert lease.token.startswith("onelock1:")
    assert isinstance(lease.fencing_token, int)
    assert "held" in repr(lease)
    assert lease.release() is Release.RELEASED
    assert not lease.held
    assert lease.remaining == 0
    assert lease.release() == "already_released"
    later = client.lock(name).acquire()
    assert later.fencing_token is not None
    assert later.fencing_token > lease.fencing_token
    later.release()


def test_busy_timeout_and_try(client: Client, name: str) -> None:
    lock = client.lock(name)
    with lock:
        assert lock.try_acquire() is None
        with pytest.raises(LockBusy) as busy:
            lock.acquire(0)
        assert busy.value.lock_name == name
        start = time.monotonic()
        with pytest.raises(LockTimeout) as late:
            lock.acquire(timeout=datetime.timedelta(milliseconds=100))
        assert 0.1 <= time.monotonic() - start < 10
        assert isinstance(late.value, NotAcquired)
        with pytest.raises(TimeoutError):
            client.lock(name, timeout=0.05).acquire()
        with pytest.raises(LockBusy), client.lock(name, timeout=0):
            pytest.fail("two holders")
    lease = lock.try_acquire()
    assert lease is not None
    lease.release()


def test_a_release_wakes_the_waiter(client: Client, name: str) -> None:
    lock = client.lock(name)

    def turn() -> float:
        lease = lock.acquire()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lock.acquire, 20)
            until(lambda: client.stats().waiting == 1)
            released = time.monotonic()
            lease.release()
            waiting.result().release()
            return time.monotonic() - released

    quick_once(0.5, turn)


@pytest.mark.parametrize("text", ["a", "ünï·cødé", "x" * 512, "a b\n\0"])
def test_any_name(client: Client, server: Server, text: str, name: str) -> None:
    full = (name + text)[-512:] if len(text) < 512 else text
    with client.lock(full) as lease:
        assert lease.name == full
        assert server.command("EXISTS", full) == 1
        assert client.inspect(full.encode()) is not None


def test_bytes_as_a_name(client: Client, server: Server) -> None:
    raw = bytes(range(256))
    with client.lock(raw) as lease:
        assert lease.name == raw
        assert server.command("EXISTS", raw) == 1
        with pytest.raises(LockBusy) as busy:
            client.lock(raw).acquire(0)
        assert "\\xff" in str(busy.value)


@pytest.mark.parametrize("bad", ["", b"", "x" * 513, "\ud800"])
def test_bad_names_are_refused_before_anything_is_sent(bad: str | bytes) -> None:
    client = Client("redis://127.0.0.1:1/")
    with pytest.raises(InvalidArgument) as caught:
        client.lock(bad).acquire()
    assert "name" in str(caught.value)


@pytest.mark.parametrize("bad", [-1, -0.001, float("nan"), float("inf"), 1e300, 10**400])
@pytest.mark.parametrize("what", ["ttl", "timeout", "min_hold", "max_hold", "lock_delay", "min_validity"])
def test_bad_durations(what: str, bad: float) -> None:
    client = Client("redis://127.0.0.1:1/")
    with pytest.raises(InvalidArgument, match=what):
        client.lock("a", **{what: bad}).acquire()  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["5", True, b"1", [1]])
def test_no_durations(bad: object) -> None:
    client = Client("redis://127.0.0.1:1/")
    with pytest.raises(TypeError, match="ttl must be a number of seconds or a timedelta"):
        client.lock("a", ttl=bad)  # type: ignore[arg-type]


def test_ttl_limits() -> None:
    client = Client("redis://127.0.0.1:1/")
    for ttl in (0, 0.009, 366 * 86400):
        with pytest.raises(InvalidArgument, match="ttl"):
            client.lock("a", ttl=ttl).acquire()


@pytest.mark.parametrize("ttl", [5, 5.0, datetime.timedelta(seconds=5), decimal.Decimal("5.0")])
def test_durations(client: Client, server: Server, name: str, ttl: float) -> None:
    with client.lock(name, ttl=ttl, auto_renew=False) as lease:
        left = server.command("PTTL", name)
        assert isinstance(left, int)
        assert 4500 < left <= 5000
        assert 4 < lease.remaining < 5
        lease.extend(ttl * 4)
        assert 15 < lease.remaining < 20


def test_fractions_of_a_second_are_kept(client: Client, server: Server, name: str) -> None:
    with client.lock(name, ttl=0.5, auto_renew=False):
        left = server.command("PTTL", name)
        assert isinstance(left, int)
        assert 400 < left <= 500


def test_unknown_arguments(client: Client) -> None:
    with pytest.raises(TypeError, match="tll"):
        client.lock("a", tll=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no option tll"):
        Client("memory://", tll=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="str or bytes"):
        client.lock(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="acquiring a lock"):
        Lease(None)  # type: ignore[arg-type]


def test_every_client_option(url: str, name: str) -> None:
    with Client(
        url,
        prefix=b"shop:",
        ttl=datetime.timedelta(seconds=9),
        auto_renew=True,
        min_hold=0,
        max_hold=3600,
        drift_factor=0.02,
        lock_delay=0.1,
        min_validity=0.01,
        fencing=True,
        min_fencing_grade=Grade.BEST_EFFORT,
        connect_timeout=3,
        request_timeout=2,
        close_timeout=2,
        unreachable_limit=9,
        min_replicas=0,
        replica_timeout=2,
        node_timeout=0.1,
        quarantine=0,
        notify="classic",
        sentinel_username="nobody",
        sentinel_password="secret",
        sentinel_tls=False,
        label="checkout",
        inspectable=True,
        accepted_warnings="persistence",
    ) as client:
        with client.lock(name) as lease:
            assert 8 < lease.remaining < 9
            assert isinstance(lease.fencing_grade, Grade)
            seen = client.inspect(name)
            assert seen is not None
            assert seen.owner is not None
            assert seen.owner.label == "checkout"
            assert abs(seen.owner.since - time.time()) < 60
            assert seen.fencing_token == lease.fencing_token
            assert seen.kind == "lock"
            assert seen.hold_count == 1
            assert seen.ttl_left is not None
            assert 8 < seen.ttl_left < 9.2
            assert "checkout" in repr(seen)
            assert is_free(url, name)
            assert not is_free(url, f"shop:{name}")
        assert client.lock(name, fencing=False).acquire().fencing_token is None
        gc.collect()
    with pytest.raises(InvalidArgument, match="cert_file and key_file"):
        Client(url, cert_file="a")
    with pytest.raises(InvalidArgument, match="auto, classic, sharded, both"):
        Client(url, notify="loud")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="min_fencing_grade"):
        Client(url, min_fencing_grade="strong")
    with pytest.raises(onelock.Unsupported, match="Strict"):
        Client.connect(url, min_fencing_grade=Grade.STRICT)


test_every_client_option = pytest.mark.filterwarnings("ignore::ResourceWarning")(test_every_client_option)


def test_addresses(url: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("ONELOCK_URL", url)
    with Client() as client, client.lock(name):
        assert not is_free(url, name)
    monkeypatch.delenv("ONELOCK_URL")
    with pytest.raises(InvalidArgument, match="ONELOCK_URL"):
        Client()
    with pytest.raises(InvalidArgument):
        Client("localhost")


def test_nothing_is_started_by_making_a_client() -> None:
    before = threading.active_count()
    client = Client("redis://127.0.0.1:1/")
    client.lock("a")
    assert client.stats().commands_sent == 0
    assert threading.active_count() == before


def test_closed(url: str, name: str) -> None:
    client = Client(url)
    lease = client.lock(name).acquire()
    client.close()
    client.close()
    assert not lease.held
    assert is_free(url, name)
    assert lease.release() is Release.ALREADY_RELEASED
    for call in (client.lock(name).acquire, client.lock(name).try_acquire, client.check, lambda: client.inspect(name)):
        with pytest.raises(onelock.ClientClosed):
            call()


def test_reentrant_lock_belongs_to_the_thread(client: Client, name: str) -> None:
    lock = client.reentrant_lock(name)
    with lock as outer, lock as inner:
        assert (outer.hold_count, inner.hold_count) == (2, 2)
        assert outer.fencing_token == inner.fencing_token
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lock.try_acquire).result() is None
    assert client.inspect(name) is None


def test_reentrant_lock_belongs_to_the_owner(client: Client, name: str) -> None:
    request = Owner()
    lock = client.reentrant_lock(name, owner=request)
    with lock, ThreadPoolExecutor(1) as pool:
        inner = pool.submit(lock.acquire).result()
        assert inner.hold_count == 2
        inner.release()
        assert client.reentrant_lock(name, owner=Owner()).try_acquire() is None
        assert client.reentrant_lock(name).try_acquire() is None
    with client.reentrant_lock(name, owner=Owner("job 7")):
        client.reentrant_lock(name, owner=Owner(b"job 7")).acquire(0).release()
    with pytest.raises(InvalidArgument, match="owner"):
        client.lock(name, owner=request).acquire()


def test_owners() -> None:
    assert Owner() != Owner()
    assert Owner("a") == Owner(b"a")
    assert len({Owner("a"), Owner("a"), Owner("b")}) == 2
    assert repr(Owner("a")) == "Owner('a')"
    assert Owner("a") != "a"


def test_kinds_do_not_mix(client: Client, server: Server, name: str) -> None:
    with client.lock(name), pytest.raises(WrongKind):
        client.reentrant_lock(name).acquire(0)
    server.command("LPUSH", name, "x")
    with pytest.raises(WrongKind):
        client.lock(name).acquire(0)
    with pytest.raises(WrongKind):
        client.force_release(name)


def test_one_lock_in_many_threads(client: Client, name: str) -> None:
    lock, busy, most = client.lock(name, timeout=30), 0, 0
    tokens: list[int] = []

    def work() -> None:
        nonlocal busy, most
        for _ in range(10):
            with lock as lease:
                busy += 1
                most = max(most, busy)
                assert lease.fencing_token is not None
                tokens.append(lease.fencing_token)
                busy -= 1

    with ThreadPoolExecutor(50) as pool:
        for done in [pool.submit(work) for _ in range(50)]:
            done.result()
    assert most == 1
    assert len(tokens) == 500
    assert tokens == sorted(set(tokens))


def test_a_lease_may_be_released_by_another_thread(client: Client, name: str) -> None:
    lease = client.lock(name).acquire()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lease.release).result() is Release.RELEASED
    assert not lease.held


def test_other_threads_run_while_one_waits(client: Client, name: str) -> None:
    with client.lock(name):
        steps = 0
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.lock(name).acquire, 0.5)
            while not waiting.done():
                steps += 1
            with pytest.raises(LockTimeout):
                waiting.result()
        assert steps > 1000


def test_extend(client: Client, name: str) -> None:
    lease = client.lock(name, ttl=1, auto_renew=False).acquire()
    lease.extend(60)
    assert lease.remaining > 50
    lease.extend(datetime.timedelta(seconds=1))
    assert lease.remaining > 50, "it never shortens"
    for bad in (0, -1):
        with pytest.raises(InvalidArgument):
            lease.extend(bad)
    lease.release()
    with pytest.raises(LockNotHeld):
        lease.extend(5)


def test_renewal(client: Client, name: str) -> None:
    with client.lock(name, ttl=1.2) as lease:
        until(lambda: client.stats().renewals >= 4)
        assert lease.held


def test_a_fixed_lease_expires(client: Client, name: str) -> None:
    lease = client.lock(name, ttl=0.1, auto_renew=False).acquire()
    assert lease.wait_lost(20) is LossReason.EXPIRED
    assert not lease.held
    assert lease.loss == "expired"
    assert lease.release() is Release.ALREADY_EXPIRED


def test_max_hold(client: Client, name: str) -> None:
    lease = client.lock(name, ttl=1.5, max_hold=0.4).acquire()
    assert lease.wait_lost(20) is LossReason.MAX_HOLD
    lease.release()


def test_a_loss_is_told(client: Client, name: str) -> None:
    heard: list[tuple[Lease, LossReason, str]] = []
    lock = client.lock(
        name, ttl=1.2, on_lost=lambda lease, reason: heard.append((lease, reason, threading.current_thread().name))
    )
    lease = lock.acquire()
    event = lease.lost_event
    assert event is lease.lost_event
    assert not event.is_set()
    assert lease.wait_lost(0.01) is None
    assert client.force_release(name)
    assert event.wait(5)
    until(lambda: heard)
    assert heard[0][:2] == (lease, LossReason.TAKEN)
    assert heard[0][2] != threading.current_thread().name
    again: list[LossReason] = []
    lease.on_lost(lambda _, reason: again.append(reason))
    until(lambda: again)
    assert len(heard) == 1
    assert lease.lost_event.is_set()
    lease.release()


def test_no_loss_is_told_when_it_is_released(client: Client, name: str) -> None:
    heard: list[object] = []
    lease = client.lock(name).acquire()
    lease.on_lost(lambda *event: heard.append(event))
    event = lease.lost_event
    lease.release()
    # what is told comes after what was asked for before
    other = client.lock(name, ttl=0.05, auto_renew=False).acquire()
    other.wait_lost(20)
    assert not event.is_set()
    assert not heard
    other.release()


def test_a_failing_callback_harms_nothing(client: Client, name: str, caplog: pytest.LogCaptureFixture) -> None:
    lease = client.lock(name, ttl=0.05, auto_renew=False).acquire()
    heard: list[object] = []
    lease.on_lost(lambda *_: 1 / 0)
    lease.on_lost(lambda *event: heard.append(event))
    until(lambda: heard)
    assert "ZeroDivisionError" in caplog.text
    lease.release()


def test_jeopardy(server: Server, name: str) -> None:
    with Client(server.url, request_timeout=0.2) as client:
        heard: list[Lease] = []
        lease = client.lock(name, ttl=2, on_jeopardy=heard.append).acquire()
        server.process.send_signal(19)
        try:
            until(lambda: heard)
            assert heard[0] is lease
            assert lease.held
        finally:
            server.process.send_signal(18)
        lease.release()


def test_scope_passes_the_bodys_error_through(client: Client, name: str) -> None:
    with pytest.raises(ZeroDivisionError) as caught, client.lock(name):
        _ = 1 / 0
    assert caught.value.__cause__ is None
    assert client.inspect(name) is None


def test_scope_tells_of_a_loss(client: Client, name: str) -> None:
    with pytest.raises(LockLost) as caught, client.lock(name, ttl=1.2) as lease:
        client.force_release(name)
        lease.wait_lost(20)
    assert caught.value.reason is LossReason.TAKEN
    assert caught.value.lock_name == name
    assert "stop the guarded work" in str(caught.value)


def test_a_loss_is_the_cause_of_the_bodys_error(client: Client, name: str) -> None:
    with pytest.raises(ZeroDivisionError) as caught, client.lock(name, ttl=1.2) as lease:
        client.force_release(name)
        lease.wait_lost(20)
        _ = 1 / 0
    assert isinstance(caught.value.__cause__, LockLost)
    with pytest.raises(ZeroDivisionError) as caught, client.lock(name, ttl=1.2) as lease:
        client.force_release(name)
        lease.wait_lost(20)
        raise ZeroDivisionError from KeyError("the body's own cause")
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_body_may_release_by_itself(client: Client, name: str) -> None:
    with client.lock(name) as lease:
        lease.release()
    with client.lock(name).acquire() as lease:
        pass
    assert not lease.held


def test_scopes_of_one_lock_in_many_threads_are_kept_apart(client: Client, name: str) -> None:
    lock = client.lock(name, ttl=1.2)
    inside, go = threading.Event(), threading.Event()

    def loser() -> str:
        try:
            with lock as lease:
                client.force_release(name)
                lease.wait_lost(20)
                inside.set()
                go.wait(10)
        except LockLost:
            return "lost"
        return "kept"

    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(loser)
        inside.wait(10)
        with lock as lease:
            go.set()
            assert lost.result() == "lost"
            assert lease.held


def test_decorator(client: Client, name: str) -> None:
    @client.locked(name, timeout=0)
    def once(value: int, *, more: int = 0) -> int:
        """What it does."""
        assert not client.lock(name).try_acquire()
        return value + more

    assert once(1, more=2) == 3
    assert (once.__name__, once.__doc__) == ("once", "What it does.")
    with client.lock(name), pytest.raises(LockBusy):
        once(1)

    @client.locked(lambda number: f"{name}:{number}", reentrant=True)
    def deep(number: int) -> int:
        seen = client.inspect(f"{name}:{number}")
        assert seen is not None
        return seen.hold_count if seen.hold_count == 3 else deep(number)

    assert deep(7) == 3

    async def wrong() -> None: ...

    def generator():  # type: ignore[no-untyped-def]
        yield 1

    with pytest.raises(TypeError, match="AsyncClient"):
        client.locked(name)(wrong)
    with pytest.raises(TypeError, match="generator"):
        client.locked(name)(generator)


def test_handing_over(client: Client, url: str, name: str) -> None:
    proof = client.lock(name).acquire().detach()
    with Client(url) as other:
        with other.lock(name).attach(proof) as lease:
            assert lease.held
            assert lease.token != proof
            # a queue delivers it a second time
            with pytest.raises(LockLost):
                other.lock(name).attach(proof)
            with pytest.raises(LockLost):
                client.lock(name).attach(proof)
            lease.extend(20)
            assert lease.held
        with pytest.raises(LockLost):
            other.lock(name).attach(proof)
        with pytest.raises(InvalidArgument):
            other.lock(name).attach("something else")


def test_a_dropped_lease_is_released_with_a_warning(client: Client, url: str, name: str) -> None:
    lock = client.lock(name)
    lease = lock.acquire()
    with pytest.warns(ResourceWarning, match=name):
        del lease
        gc.collect()
    until(lambda: is_free(url, name))
    # callbacks that mention the lease do not keep it
    lease = lock.acquire()
    lease.on_lost(lambda *_: print(lease))
    assert lease.lost_event
    with pytest.warns(ResourceWarning, match=name):
        del lease
        gc.collect()
    until(lambda: is_free(url, name))


def test_stats(url: str, name: str) -> None:
    with Client(url) as client:
        lock = client.lock(name)
        with lock:
            lock.try_acquire()
            assert (client.stats().held, client.stats().busy) == (1, 1)
        stats = client.stats()
        assert (stats.held, stats.acquired, stats.released) == (0, 1, 1)
        assert stats.as_dict()["acquired"] == 1
        assert stats.wait.count == 1
        assert 0 < stats.wait.quantile(0.5) < 5
        assert sum(stats.hold.buckets) == 1
        # once the look at the server in the background has ended
        until(lambda: client.stats() == client.stats())


def test_facts(client: Client) -> None:
    facts = client.check()
    assert "valkey" in facts.server or "redis" in facts.server
    assert facts.grade in {grade.value for grade in Grade}
    assert any("appendonly" in warning for warning in facts.warnings)
    assert facts.dangers == []


def test_diagnosis(client: Client, server: Server) -> None:
    diagnosis = client.diagnose("x")
    assert diagnosis.severity in {Severity.REMARK, Severity.WARNING}, diagnosis
    assert diagnosis.grade in {grade.value for grade in Grade}
    assert isinstance(diagnosis.findings, tuple)
    steps = {finding.step: finding for finding in diagnosis.findings}
    assert steps["tcp"].severity == Severity.PASSED
    assert steps["tcp"].error is None
    assert steps["round trip"].measured["median_us"] > 0
    assert "appendonly" in steps["persistence"].todo
    assert repr(diagnosis).startswith("Diagnosis(severity='") or repr(diagnosis).startswith('Diagnosis(severity="')
    with Client("redis://127.0.0.1:1") as away:
        found = away.diagnose()
        assert found.severity == Severity.FAILED
        assert [finding.error for finding in found.findings if finding.severity == "failed"] == ["Unavailable"]
    with pytest.raises(TypeError):
        client.diagnose(7)  # type: ignore[arg-type]
    with Client(server.url) as closed:
        closed.close()
        with pytest.raises(onelock.ClientClosed):
            closed.diagnose()


def test_gate() -> None:
    gate = onelock.FenceGate()
    assert gate.admit(7)
    assert gate.admit(7)
    assert gate.admit(9)
    assert not gate.admit(8)
    assert gate.highest == 9
    assert not onelock.FenceGate(5).admit(4)
    assert "KEYS" in onelock.FENCE_GUARD_SCRIPT


def test_memory_store(name: str) -> None:
    with Client("memory://") as client, client.lock(name), pytest.raises(LockBusy):
        client.lock(name).acquire(0)


# ---- ended by another thread ------------------------------------------------------------------------------------------


def test_cancel_ends_waiting_acquires_of_other_threads(client: Client, name: str) -> None:
    cancel = onelock.Cancel()
    ended: list[tuple[type[BaseException], float]] = []

    def wait() -> None:
        with pytest.raises(LockCancelled) as raised:
            client.lock(name).acquire(cancel=cancel)
        ended.append((raised.type, time.monotonic()))

    with client.lock(name):
        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: client.stats().waiting == 3)
        assert not cancel.cancelled
        begun = time.monotonic()
        cancel.cancel()
        for thread in threads:
            thread.join()
        assert [kind for kind, _ in ended] == [LockCancelled] * 3
        assert max(at for _, at in ended) - begun < 10
        assert cancel.cancelled
        assert repr(cancel) == "<Cancel: cancelled>"
    # it stays so, also where the lock is free
    with pytest.raises(LockCancelled, match="nothing is held"):
        client.lock(name).acquire(cancel=cancel)
    client.lock(name).acquire(timeout=0, cancel=onelock.Cancel()).release()


def test_a_lease_with_callbacks_goes_with_its_last_reference(client: Client, name: str) -> None:
    gc.disable()
    try:
        lease = client.lock(name, on_lost=lambda lease, reason: None).acquire()
        lease.on_jeopardy(lambda lease: None)
        assert not lease.lost_event.is_set()
        with pytest.warns(ResourceWarning):
            del lease
        until(lambda: client.inspect(name) is None)
    finally:
        gc.enable()


@pytest.mark.parametrize("make", [Client, onelock.AsyncClient])
def test_what_makes_no_sense_is_refused_where_the_lock_is_described(make: type[Client]) -> None:
    client = make("redis://127.0.0.1:1/")
    bad: list[dict[str, Any]] = [
        {"name": ""},
        {"name": "x" * 513},
        {"name": "a", "ttl": 0.001},
        {"name": "a", "ttl": 1, "min_validity": 2},
        {"name": "a", "max_hold": 0},
        {"name": "a", "timeout": -1},
        {"name": "a", "owner": onelock.Owner()},
    ]
    for arguments in bad:
        with pytest.raises(onelock.InvalidArgument):
            client.lock(**arguments)
    with pytest.raises(TypeError):
        client.lock("a", timeout="5")  # type: ignore[arg-type]
    with pytest.raises(onelock.InvalidArgument):
        client.reentrant_lock("")
    assert client.reentrant_lock("a", owner=onelock.Owner()).name == "a"


def test_an_address_is_a_text_or_a_list_of_texts() -> None:
    assert Client(["redis://127.0.0.1:1/", "redis://127.0.0.1:2/", "redis://127.0.0.1:3/"])
    for wrong in (redis.Redis(), b"redis://localhost", 6379, [b"redis://localhost"], {"host": "localhost"}):
        with pytest.raises(TypeError, match="must be an address"):
            Client(wrong)  # type: ignore[arg-type]

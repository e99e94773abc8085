# The native module, as `src/` makes it. stubtest holds the two together.
from asyncio import Future
from collections.abc import Callable
from typing import Any, Final, TypeAlias, final
from weakref import ref

from typing_extensions import Self, disjoint_base

from onelock._types import Name, Seconds
from onelock.errors import LockLost, OnelockError
from onelock.lease import Lease as BlockingLease

__all__ = [
    "FENCE_GUARD_SCRIPT",
    "URL_VARIABLE",
    "Cancel",
    "Client",
    "Connection",
    "CredentialsRequest",
    "Diagnosis",
    "Facts",
    "FenceGate",
    "Finding",
    "Granted",
    "Histogram",
    "Inspection",
    "Lease",
    "Lock",
    "LockEntry",
    "LockPage",
    "MultiLock",
    "Owner",
    "OwnerInfo",
    "Permits",
    "Pump",
    "Reader",
    "Stats",
    "Waiter",
    "__version__",
    "error_kinds",
    "release_all",
    "seconds",
    "set_error_classes",
    "set_log_level",
    "take_log",
]

__version__: Final[str]
FENCE_GUARD_SCRIPT: Final[str]
URL_VARIABLE: Final[str]

_LoopActions: TypeAlias = tuple[list[Connection], bool]
_Started: TypeAlias = tuple[int, _LoopActions | None]
_Delivery: TypeAlias = tuple[Any, int, Any]

@final
class Client:
    def __new__(cls, url: str, options: dict[str, Any]) -> Client: ...
    def lock(
        self,
        asynchronous: bool,
        kind: str,
        name: Name,
        **options: Any,
    ) -> Lock: ...
    def stats(self) -> Stats: ...
    def check(self) -> Facts: ...
    def diagnose(self, name: Name) -> Diagnosis: ...
    def inspect(self, name: Name) -> Inspection | None: ...
    def list(self, pattern: Name, limit: int, cursor: str | None) -> LockPage: ...
    def force_release(self, name: Name, foreign: bool) -> bool: ...
    def close(self) -> None: ...
    def start_check(self, pump: Pump, future: Future[Any]) -> _Started: ...
    def start_diagnose(self, pump: Pump, future: Future[Any], name: Name) -> _Started: ...
    def start_inspect(self, pump: Pump, future: Future[Any], name: Name) -> _Started: ...
    def start_list(
        self, pump: Pump, future: Future[Any], pattern: Name, limit: int, cursor: str | None
    ) -> _Started: ...
    def start_force_release(self, pump: Pump, future: Future[Any], name: Name, foreign: bool) -> _Started: ...
    def start_close(self, pump: Pump, future: Future[Any]) -> _Started: ...

@final
class CredentialsRequest:
    def answer(self, username: str | None, password: str) -> None: ...
    def fail(self, reason: str) -> None: ...
    def time_left(self) -> float: ...

@final
class Lock:
    @property
    def name(self) -> Name: ...
    @property
    def kind(self) -> str: ...
    def check(self, timeout: Seconds | None, owner: Owner | None) -> None: ...
    def acquire(self, timeout: Seconds | None, owner: Owner | None) -> BlockingLease: ...
    def acquire_unless(self, timeout: Seconds | None, owner: Owner | None, cancel: Cancel) -> BlockingLease: ...
    def try_acquire(self, owner: Owner | None) -> BlockingLease | None: ...
    def attach(self, proof: str, owner: Owner | None) -> BlockingLease: ...
    def taking(self, count: int) -> Lock: ...
    def is_locked(self) -> bool: ...
    def permits(self) -> Permits | None: ...
    def set_permits(self, total: int) -> Permits: ...
    def start_acquire(
        self, pump: Pump, future: Future[Any], timeout: Seconds | None, owner: Owner | None
    ) -> _Started: ...
    def start_try_acquire(self, pump: Pump, future: Future[Any], owner: Owner | None) -> _Started: ...
    def start_attach(self, pump: Pump, future: Future[Any], proof: str, owner: Owner | None) -> _Started: ...
    def start_is_locked(self, pump: Pump, future: Future[Any]) -> _Started: ...
    def start_permits(self, pump: Pump, future: Future[Any]) -> _Started: ...
    def start_set_permits(self, pump: Pump, future: Future[Any], total: int) -> _Started: ...

@final
class MultiLock:
    def __new__(cls, members: list[Lock]) -> MultiLock: ...
    @property
    def names(self) -> tuple[Name, ...]: ...
    def check(self, timeout: Seconds | None, owners: list[Owner | None]) -> None: ...
    def acquire(self, timeout: Seconds | None, owners: list[Owner | None]) -> BlockingLease: ...
    def acquire_unless(self, timeout: Seconds | None, owners: list[Owner | None], cancel: Cancel) -> BlockingLease: ...
    def try_acquire(self, owners: list[Owner | None]) -> BlockingLease | None: ...
    def is_locked(self) -> bool: ...
    def start_acquire(
        self, pump: Pump, future: Future[Any], timeout: Seconds | None, owners: list[Owner | None]
    ) -> _Started: ...
    def start_try_acquire(self, pump: Pump, future: Future[Any], owners: list[Owner | None]) -> _Started: ...

@final
class Granted: ...

@disjoint_base
class Lease:
    def __new__(cls, granted: Granted) -> Self: ...
    @property
    def name(self) -> Name:
        """The name of the lock, without the prefix; of several locks all names in one text, for messages."""

    @property
    def names(self) -> tuple[Name, ...]:
        """The names of the locks that are held together, without the prefix; one for a lease of one lock."""

    @property
    def fencing_tokens(self) -> dict[Name, int | None]:
        """The fencing token of each lock by its name; see `fencing_token`."""

    @property
    def kind(self) -> str:
        """The kind of lock: `lock`, `reentrant_lock`, `fair_lock`, `read_lock`, `write_lock` or `semaphore`; `multi_lock` for
        several held together."""

    @property
    def fencing_token(self) -> int | None:
        """The fencing token, a number that the protected resource compares; `None` when fencing is off, and for a lease of
        several locks, each of which has its own: `fencing_tokens`.

        It grows with every grant of the name, but not by one; it is below 2**53. It stays the same while the lease is held,
        and readable after.
        """

    @property
    def token(self) -> str:
        """The owner token of this hold, as stored on the server. It allows to end the hold: keep it secret. Empty for a
        lease of several locks.
        """

    @property
    def held(self) -> bool:
        """Whether this lease holds the lock now: not released, not lost, same process, before the deadline. No I/O.

        It is computed at the call and always correct; events may come late. A process that was stopped past the deadline
        reads `False` when it continues.
        """

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, without further renewals; 0 when it is not held. No I/O."""

    @property
    def hold_count(self) -> int:
        """The hold count of the owner; 1 for a lock that is not reentrant, 0 when it is not held. No I/O."""

    def detach(self) -> str:
        """Detaches the hold for another process: the returned text is the proof for `Lock.attach`, and this lease holds
        nothing from now on. No I/O.

        Attach before the ttl has passed; the hold is not renewed meanwhile. The first attach with the text gets the lock,
        and every later one `LockLost`: keep the text secret. A release of this lease sends nothing and returns
        `ALREADY_RELEASED`. Raises `LockLost` or `LockNotHeld` when the lease is not held, `InvalidArgument` when it was
        entered more than once. Of several locks it is one proof a line, in the order of `names`; attach with each to its
        lock.
        """

    @property
    def _fencing_grade(self) -> str: ...
    @property
    def _loss(self) -> str | None: ...
    def _lost_error(self) -> LockLost | None: ...
    def _release(self) -> str: ...
    def _extend(self, ttl: Seconds) -> None: ...
    def _downgrade(self) -> None: ...
    def _on_lost(self, weak: ref[Any], number: int) -> None: ...
    def _on_jeopardy(self, weak: ref[Any], number: int) -> None: ...
    def _start_release(self, pump: Pump, future: Future[Any]) -> _Started: ...
    def _release_later(self) -> None: ...
    def _start_extend(self, pump: Pump, future: Future[Any], ttl: Seconds) -> _Started: ...
    def _start_downgrade(self, pump: Pump, future: Future[Any]) -> _Started: ...
    def _start_lost(self, pump: Pump, future: Future[Any]) -> _Started: ...
    def _listen_lost(self, pump: Pump, callback: Callable[[str], None]) -> int: ...
    def _listen_jeopardy(self, pump: Pump, callback: Callable[[str], None]) -> int: ...

@final
class Cancel:
    """Cancels waiting acquires of other threads: pass it as `cancel=` to `Lock.acquire`, and call `cancel()` from any
    thread.

    The acquire raises `LockCancelled` within 50 ms, and nothing is left held. It stays cancelled: a later acquire with it
    ends at once. Acquires may share one. In asyncio, cancel the task instead.
    """

    def __new__(cls) -> Cancel: ...
    def cancel(self) -> None:
        """Ends every acquire with this token. It never waits, and is safe in a signal handler; it may be called again."""

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""

@final
class Owner:
    """An owner of reentrant locks: acquires with equal owners, through one client, share one hold.

    `Owner()` is equal only to itself; `Owner("name")` to every owner of that name. Pass it as `owner=` where the default
    (the thread, or in asyncio the task) is wrong: for a request, a job, a group of tasks.
    """

    def __new__(cls, name: Name | None = None, /) -> Owner: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class FenceGate:
    """Checks fencing tokens for a resource inside this process: it remembers the highest token and refuses every lower one.
    An equal token belongs to the same holder and passes.

    One gate is for one lock name: tokens of different names cannot be compared. Threads may share it.
    """

    def __new__(cls, highest: int = 0) -> FenceGate: ...
    def admit(self, token: int) -> bool:
        """Whether a write with this token is allowed. False: there was a later holder, so the caller has lost its lock and
        must stop.
        """

    @property
    def highest(self) -> int:
        """The highest token seen, 0 for none. Store it with the resource."""

@final
class Pump:
    def __new__(cls) -> Pump: ...
    def drain(self) -> list[_Delivery]: ...
    def flush(self) -> list[_Delivery]: ...
    def abandon(self, id: int) -> Future[Any] | None: ...
    def forget(self, id: int) -> Callable[[Any], object] | None: ...
    def pending(self) -> tuple[int, int]: ...

@final
class Reader:
    def __new__(cls, pump: Pump) -> Reader: ...
    def fileno(self) -> int: ...
    def drain(self) -> list[_Delivery]: ...

@final
class Connection:
    def fileno(self) -> int: ...
    def ready(self) -> tuple[bool, list[_Delivery]]: ...

@final
class Facts:
    """Facts about the server, from `Client.check`."""

    @property
    def grade(self) -> str:
        """The grade of its fencing tokens: the text of a `Grade`."""

    @property
    def warnings(self) -> list[str]:
        """Settings of the server that can break locks, each as a sentence that names the setting to change."""

    @property
    def dangers(self) -> list[str]:
        """The warnings that endanger exclusion while the server runs and were not accepted: they are logged as a warning."""

    @property
    def server(self) -> str:
        """The server's name and version."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class OwnerInfo:
    """The holder of a lock, from `Client.inspect`."""

    @property
    def label(self) -> str:
        """The client's label."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def host(self) -> str:
        """The host's name."""

    @property
    def since(self) -> float:
        """When it was granted: seconds since 1970, as `time.time()`."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Inspection:
    """The state of a lock, from `Client.inspect`."""

    @property
    def kind(self) -> str:
        """The kind of lock: `lock`, `reentrant_lock`, `fair_lock`, `read_lock`, `write_lock` or `semaphore`."""

    @property
    def origin(self) -> str:
        """Which client's it is, as far as can be told: `onelock`, `redisson` or `other`."""

    @property
    def owner(self) -> OwnerInfo | None:
        """The holder, if it is an `inspectable` client of this library."""

    @property
    def foreign_holder(self) -> str | None:
        """Of a holder that is no client of this library: as much of what it wrote as tells people who it is, and is no
        proof or secret. `None` where nothing of it can be shown.
        """

    @property
    def hold_count(self) -> int:
        """The hold count of the holder; of a semaphore, how many permits are held."""

    @property
    def ttl_left(self) -> float | None:
        """Time to live of the key on the server, in seconds; `None` for a foreign key without one."""

    @property
    def fencing_token(self) -> int | None:
        """The fencing token of the present hold; `None` for a holder without one."""

    @property
    def permits(self) -> int | None:
        """Of a semaphore, how many permits there are in all."""

    @property
    def free(self) -> int | None:
        """Of a semaphore, how many permits are free."""

    @property
    def waiting(self) -> int | None:
        """How many processes wait for it, by listening or in its queue. `None` where the server doesn't tell."""

    @property
    def waiters(self) -> tuple[Waiter, ...]:
        """Those of them that have a place in the queue on the server, the first 16, the head first: who waits for a fair lock,
        for permits of a semaphore, or to write. Who waits for any other lock, or to read, has told the server no name.
        """

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Waiter:
    """A client that waits for a lock with a place in its queue, from `Inspection.waiters`."""

    @property
    def client(self) -> OwnerInfo | None:
        """The client, if it is an `inspectable` one of this library. Its `since` is when it asked last."""

    @property
    def since(self) -> float:
        """Since when it has its place: seconds since 1970, by the server's clock."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Permits:
    """The permits of a semaphore at one moment, from `Semaphore.permits`."""

    @property
    def total(self) -> int:
        """How many there are in all."""

    @property
    def held(self) -> int:
        """How many are held. More than there are, for a while, after their number was made smaller."""

    @property
    def free(self) -> int:
        """How many are free."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class LockEntry:
    """A lock that stands on the server, from `Client.list`."""

    @property
    def name(self) -> Name:
        """The lock's name without the client's prefix: text, or bytes that are no UTF-8."""

    @property
    def inspection(self) -> Inspection:
        """What stands under the name, as `Client.inspect` tells it."""

    @property
    def waiting(self) -> int | None:
        """How many processes wait for it, by listening or in its queue. `None` where the server doesn't tell."""

@final
class LockPage:
    """Some of the locks of a server, from `Client.list`."""

    @property
    def entries(self) -> tuple[LockEntry, ...]:
        """The locks, in no order. May be empty though more follow."""

    @property
    def next(self) -> str | None:
        """What to give as `cursor` for the next page; `None` on the last one."""

@final
class Finding:
    """One step of a `Diagnosis`."""

    @property
    def server(self) -> str:
        """The server, without secrets; empty for what concerns all of them."""

    @property
    def step(self) -> str:
        """What was tried: `name`, `tcp`, `tls`, `protocol`, `user`, `database`, `role`, `version`, `persistence`,
        `eviction`, `replicas`, `clock`, `round trip`, `proxy`, `permission`, `sentinel`, `slots`, `notify`,
        `quarantine`, `quorum`, `clocks`, `fencing`.
        """

    @property
    def severity(self) -> str:
        """How it ended: the text of a `Severity`."""

    @property
    def detail(self) -> str:
        """What was found, a sentence for people."""

    @property
    def todo(self) -> str:
        """What to do about it; empty where nothing is to be done."""

    @property
    def error(self) -> str | None:
        """The `kind` of the exception that a call would end with, for what failed."""

    @property
    def measured(self) -> dict[str, float]:
        """What was measured, by names that end with the unit, such as `median_us`."""

@final
class Diagnosis:
    """What a look at the servers found, from `Client.diagnose`."""

    @property
    def severity(self) -> str:
        """The gravest severity among the findings: the text of a `Severity`."""

    @property
    def grade(self) -> str:
        """The grade of fencing tokens there: the text of a `Grade`. `None` if that could not be found out, and without
        fencing.
        """

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The steps, server by server, in the order in which they were tried. After one that failed the rest of that
        server's are missing.
        """

@final
class Histogram:
    """A histogram of durations in powers of two of a microsecond."""

    @property
    def buckets(self) -> tuple[int, ...]:
        """The counts: bucket `i` has the durations below `2**i` microseconds and not below `2**(i-1)`."""

    @property
    def count(self) -> int:
        """The number of durations."""

    @property
    def sum(self) -> float:
        """Their sum in seconds."""

    def quantile(self, quantile: float) -> float:
        """An upper bound of the given quantile (0.0 to 1.0) in seconds, at most twice too high; 0 when nothing was
        recorded.
        """

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Stats:
    """Counters of a client since it was made, from `Client.stats`."""

    @property
    def held(self) -> int:
        """Leases held now."""

    @property
    def waiting(self) -> int:
        """Acquires waiting now."""

    @property
    def acquired(self) -> int:
        """Acquires that were granted, re-entries included."""

    @property
    def busy(self) -> int:
        """Tries that found the lock busy."""

    @property
    def timeouts(self) -> int:
        """Acquires that timed out."""

    @property
    def cancelled(self) -> int:
        """Acquires that their caller cancelled."""

    @property
    def failed(self) -> int:
        """Acquires that failed for another reason."""

    @property
    def released(self) -> int:
        """Leases that their holder released."""

    @property
    def lost(self) -> int:
        """Leases lost."""

    @property
    def renewals(self) -> int:
        """Renewals that were confirmed, one per lease and round."""

    @property
    def renewals_missed(self) -> int:
        """Renewal rounds of a lease that were missed."""

    @property
    def cleaning(self) -> int:
        """Clean-ups that are not finished yet."""

    @property
    def reconnects(self) -> int:
        """Connections made after the first one."""

    @property
    def commands_sent(self) -> int:
        """Requests sent to the server."""

    @property
    def wait(self) -> Histogram:
        """Time from the call to the grant."""

    @property
    def hold(self) -> Histogram:
        """Time from the grant to the end of the hold."""

    def as_dict(self) -> dict[str, int]:
        """The counters by name, for a metrics system."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

def seconds(value: Seconds, what: str, tried: str) -> float: ...
def error_kinds() -> list[tuple[str, int, bool, bool]]: ...
def set_error_classes(classes: dict[str, type[OnelockError]]) -> None: ...
def release_all(limit: float) -> None: ...
def set_log_level(level: int) -> None: ...
def take_log() -> list[tuple[int, str]]: ...

"""Results of calls: enum members that are equal to their text."""

from __future__ import annotations

from enum import Enum

__all__ = ["Grade", "LossReason", "Release", "Severity"]


class _Word(str, Enum):
    """A member equals its text, and prints as it."""

    def __str__(self) -> str:
        return str(self.value)


class Release(_Word):
    """The outcome of a release. None is an error: after each of them the lease does not hold the lock."""

    RELEASED = "released"
    """It was held, and the server has deleted the hold."""
    ALREADY_EXPIRED = "already_expired"
    """It had ended before: expired, deleted, or force-released. There may have been another holder since.

    If it was gone before its deadline, the lease is lost, and its `loss` is set."""
    ALREADY_RELEASED = "already_released"
    """This lease was released, detached or closed before. Nothing was sent."""
    UNCONFIRMED = "unconfirmed"
    """It is not held any more, but no server confirmed it in time; the release is retried in the background."""


class LossReason(_Word):
    """Why a lease was lost."""

    EXPIRED = "expired"
    """The deadline passed without a confirmed renewal."""
    TAKEN = "taken"
    """The key is gone or has another holder: deleted, evicted, force-released, or lost in a restart."""
    MAX_HOLD = "max_hold"
    """`max_hold` was reached."""
    CLOCK_ANOMALY = "clock_anomaly"
    """The server's clock jumped by more than the drift allowance."""
    CLOSED = "closed"
    """The client was closed while the lease was held, and released it."""


class Grade(_Word):
    """The grades of fencing tokens, from the weakest to the strongest."""

    NONE = "None"
    """No fencing tokens."""
    BEST_EFFORT = "BestEffort"
    """The store may forget acknowledged writes without notice (evicting policy, asynchronous replicas)."""
    CLOCK_BOUNDED = "ClockBounded"
    """Tokens grow even if the counter is lost, as long as the clock of the server does not run back."""
    STRICT = "Strict"
    """The store keeps every acknowledged write."""


class Severity(_Word):
    """How a step of a diagnosis ended, from harmless to grave."""

    SKIPPED = "skipped"
    """It could not be tried."""
    PASSED = "passed"
    """It is as it should be."""
    REMARK = "remark"
    """It is worth knowing; locks are safe while the server runs."""
    WARNING = "warning"
    """Locks can be taken, but something endangers or delays them."""
    FAILED = "failed"
    """Locks cannot be taken."""


RELEASES: dict[str, Release] = {member.value: member for member in Release}
LOSSES: dict[str, LossReason] = {member.value: member for member in LossReason}

"""What calls answer with: plain words as enum members, each equal to its text."""

from __future__ import annotations

from enum import Enum

__all__ = ["Grade", "LossReason", "Release"]


class _Word(str, Enum):
    """A member is its text, in comparisons and when it is printed."""

    def __str__(self) -> str:
        return str(self.value)


class Release(_Word):
    """What a release found. None of these is an error: after each the lock is not held."""

    RELEASED = "released"
    """It was held until now, and the server has taken it back."""
    ALREADY_EXPIRED = "already_expired"
    """It had ended before: expired, deleted, or taken by force. Somebody else may have worked meanwhile.

    If it was found gone before its deadline, it is lost, and the lease's `loss` says so."""
    ALREADY_RELEASED = "already_released"
    """This lease was released, detached or closed before. Nothing was sent."""
    UNCONFIRMED = "unconfirmed"
    """It is not held any more, but no server confirmed it in time; clean-up goes on in the background."""


class LossReason(_Word):
    """Why a lease was lost."""

    EXPIRED = "expired"
    """Its deadline passed without a confirmed renewal."""
    TAKEN = "taken"
    """The server no longer knows it: deleted, evicted, forced, or lost in a restart."""
    MAX_HOLD = "max_hold"
    """`max_hold` was reached."""
    CLOCK_ANOMALY = "clock_anomaly"
    """The server's clock jumped by more than the drift allowance."""
    CLOSED = "closed"
    """The client was closed while the lease was held, and gave it back."""


class Grade(_Word):
    """How strong the fencing tokens of a server are, from weak to strong."""

    NONE = "None"
    """No fencing tokens."""
    BEST_EFFORT = "BestEffort"
    """The store may forget acknowledged writes without notice (evicting policy, asynchronous replicas)."""
    CLOCK_BOUNDED = "ClockBounded"
    """Tokens grow even if the counter is lost, as long as the server's clock goes on."""
    STRICT = "Strict"
    """The store keeps every acknowledged write."""


RELEASES: dict[str, Release] = {member.value: member for member in Release}
LOSSES: dict[str, LossReason] = {member.value: member for member in LossReason}

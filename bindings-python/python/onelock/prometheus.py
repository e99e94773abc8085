"""What a client does, for `prometheus_client`: its counters, and histograms of waiting and holding.

    from prometheus_client import REGISTRY, start_http_server
    from onelock.prometheus import StatsCollector

    REGISTRY.register(StatsCollector(client))
    start_http_server(9100)

It needs the package `prometheus_client`, which `onelock` itself does not. A scrape asks the client only, not the server; what
is locked on a server, `onelock export` (the command) tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from ._onelock import Histogram, Stats

__all__ = ["StatsCollector"]

# each a field of `Stats`
_GAUGES: Final = {
    "held": "Leases held now.",
    "waiting": "Acquires waiting now.",
    "cleaning": "Undos that the server has not confirmed yet.",
}
_COUNTERS: Final = {
    "acquired": "Acquires that were granted, re-entries included.",
    "busy": "Tries that found the lock busy.",
    "timeouts": "Acquires that timed out.",
    "cancelled": "Acquires that their caller cancelled.",
    "failed": "Acquires that failed for another reason.",
    "released": "Leases that their holder released.",
    "lost": "Leases lost.",
    "renewals": "Renewals that were confirmed.",
    "renewals_missed": "Rounds of renewal without a confirmation.",
    "reconnects": "Connections made in place of lost ones.",
    "commands_sent": "Requests sent to servers.",
}
_HISTOGRAMS: Final = {
    "wait": "How long granted acquires waited, in seconds.",
    "hold": "How long leases were held, in seconds.",
}


class _HasStats(Protocol):
    def stats(self) -> Stats: ...


class StatsCollector(Collector):
    """The `stats()` of one client as metrics: `onelock_held`, `onelock_acquired_total`, `onelock_wait_seconds` ...

    `client` is a `Client` or an `AsyncClient`. `labels` are put on every metric. A registry takes each name once: for several
    clients of one process use registries of their own, or another `prefix`. A scrape does no I/O, and may come from any thread.
    """

    def __init__(self, client: _HasStats, labels: Mapping[str, str] | None = None, prefix: str = "onelock") -> None:
        self._client = client
        self._names = list(labels or {})
        self._values = list((labels or {}).values())
        self._prefix = prefix

    def describe(self) -> Iterator[Metric]:
        """The same: a registry learns the names from it, and refuses a second collector that has them."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        stats = self._client.stats()
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"{self._prefix}_{name}", text, labels=self._names)
            gauge.add_metric(self._values, float(getattr(stats, name)))
            yield gauge
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"{self._prefix}_{name}", text, labels=self._names)
            counter.add_metric(self._values, float(getattr(stats, name)))
            yield counter
        for name, text in _HISTOGRAMS.items():
            times: Histogram = getattr(stats, name)
            histogram = HistogramMetricFamily(f"{self._prefix}_{name}_seconds", text, labels=self._names)
            histogram.add_metric(self._values, buckets=_buckets(times), sum_value=times.sum)
            yield histogram


def _buckets(times: Histogram) -> list[tuple[str, float]]:
    """Upper bounds in seconds, each with the number of durations up to it."""
    found: list[tuple[str, float]] = []
    number = 0
    # the last bucket has no bound
    for power, count in enumerate(times.buckets[:-1]):
        number += count
        found.append((repr(2.0**power / 1e6), number))
    return [*found, ("+Inf", times.count)]

"""What `prometheus_client` reads of a client."""

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from onelock import AsyncClient, Client
from onelock.prometheus import StatsCollector


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    """Every sample as a scrape tells it, by its name and `le`."""
    text = generate_latest(registry).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.name + (f" {le}" if (le := sample.labels.get("le")) else ""): sample.value for sample in samples}


def test_a_scrape_tells_what_the_client_did() -> None:
    registry = CollectorRegistry()
    with Client("memory://") as client:
        registry.register(StatsCollector(client))
        before = scraped(registry)
        assert (before["onelock_held"], before["onelock_acquired_total"]) == (0, 0)
        lease = client.lock("a").acquire()
        assert client.lock("a").try_acquire() is None
        waiter = threading.Thread(target=lambda: client.lock("a").acquire(timeout=10).release())
        waiter.start()
        while client.stats().waiting == 0:
            pass
        during = scraped(registry)
        assert (during["onelock_held"], during["onelock_waiting"], during["onelock_busy_total"]) == (1, 1, 1)
        lease.release()
        waiter.join()
        after = scraped(registry)
    assert (after["onelock_held"], after["onelock_acquired_total"], after["onelock_released_total"]) == (0, 2, 2)
    for name in ("wait", "hold"):
        assert after[f"onelock_{name}_seconds_count"] == 2
        buckets = {
            float(key.split()[1]): value
            for key, value in after.items()
            if key.startswith(f"onelock_{name}_seconds_bucket")
        }
        counts = [buckets[bound] for bound in sorted(buckets)]
        assert counts == sorted(counts), "buckets are cumulative"
        assert counts[-1] == 2
        total = after[f"onelock_{name}_seconds_sum"]
        # every duration is below the bound of the first bucket that has them all
        assert total <= 2 * next(bound for bound in sorted(buckets) if buckets[bound] == 2)


def test_every_number_of_the_stats_is_a_metric() -> None:
    registry = CollectorRegistry()
    with Client("memory://") as client:
        registry.register(StatsCollector(client, labels={"server": "main"}, prefix="locks"))
        text = generate_latest(registry).decode()
        fields = list(client.stats().as_dict())
    assert len(fields) > 12
    for field in fields:
        assert any(f"locks_{field}{end}" in text for end in ("{", "_total{", "_seconds_count{")), field
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all('server="main"' in line for line in lines)


def test_an_async_client_is_told_too() -> None:
    async def work() -> None:
        registry = CollectorRegistry()
        async with AsyncClient("memory://") as client:
            registry.register(StatsCollector(client))
            async with client.lock("a"):
                assert scraped(registry)["onelock_held"] == 1

    asyncio.run(work())


def test_one_client_is_registered_once() -> None:
    registry = CollectorRegistry()
    with Client("memory://") as client:
        registry.register(StatsCollector(client))
        with pytest.raises(ValueError, match="onelock_held"):
            registry.register(StatsCollector(client))

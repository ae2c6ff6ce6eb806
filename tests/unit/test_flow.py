"""Histograms read as percentiles, and counts taken off the metrics: each once, whatever the store says."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.flow import ATTEMPT_BUCKETS, TIERS, WAIT_BUCKETS, FlowBatch, FlowOutcome, FlowQuery, Tally, quantile
from app.drivers.memory.driver import MemoryDriver
from app.observability.flow import FlowMeter
from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry
from app.worker.tally import TallyKeeper


@pytest.mark.parametrize(
    ("counts", "share", "seconds"),
    [
        ((0, 0, 0, 0), 0.95, None),
        ((10, 0, 0, 0), 0.5, 0.5),
        ((0, 10, 0, 0), 0.5, 1.5),
        ((5, 5, 0, 0), 0.95, 1.9),
        ((1, 0, 99, 0), 0.95, 2 + 94 / 99 * 2),
        ((0, 0, 0, 7), 0.95, 4.0),
        ((10, 0, 0, 0), 1.0, 1.0),
    ],
)
def test_a_percentile_lies_within_its_bucket(counts: tuple[int, ...], share: float, seconds: float | None) -> None:
    assert quantile(counts, (1.0, 2.0, 4.0), share) == pytest.approx(seconds)


def test_what_was_counted_is_given_once() -> None:
    metrics = Metrics()
    meter = FlowMeter(metrics)
    kind = metrics.kind("demo.job", "mail")
    kind.counted("ok")
    kind.wait_seconds.observe(0.004)
    kind.attempt_seconds.observe(0.3)
    metrics.interrupted.labels(job="demo.job", queue="mail").inc(2)
    first = meter.take()
    assert first is not None
    (part,) = first.parts
    assert (part.name, part.queue) == ("demo.job", "mail")
    assert {outcome: part.tally.of(outcome) for outcome in FlowOutcome if part.tally.of(outcome)} == {
        FlowOutcome.OK: 1,
        FlowOutcome.INTERRUPTED: 2,
    }
    assert part.tally.waits[0] == sum(part.tally.waits) == 1
    assert part.tally.runs[ATTEMPT_BUCKETS.index(0.5)] == sum(part.tally.runs) == 1
    kind.counted("dead")
    assert meter.take() == first, "it is not known to be added"
    meter.added(first)
    second = meter.take()
    assert second is not None
    assert second.id != first.id
    assert [part.tally for part in second.parts] == [Tally(counts=(0, 0, 1, 0, 0, 0))]
    meter.added(first)
    assert meter.take() == second
    meter.added(second)
    assert meter.take() is None


def test_every_bucket_has_a_place() -> None:
    assert len(Tally().waits) == len(WAIT_BUCKETS) + 1
    assert len(Tally().runs) == len(ATTEMPT_BUCKETS) + 1
    assert Tally().is_empty


async def test_a_lost_reply_counts_nothing_twice_and_loses_nothing() -> None:
    class Cut(MemoryDriver):
        """Loses the reply to the first batch."""

        replies = 0

        async def add_flow(self, batch: FlowBatch) -> None:
            await super().add_flow(batch)
            self.replies += 1
            if self.replies == 1:
                raise DriverUnavailable("the reply was lost", fix="again")

    driver, telemetry = Cut(), Telemetry(metrics=Metrics())
    probe = Probe(telemetry)
    keeper = TallyKeeper(driver=driver, telemetry=telemetry, roll=lambda: 0.0)
    kind = telemetry.metrics.kind("demo.job", "mail")
    kind.counted("ok")
    await keeper.end()
    assert len(probe.of("store.call_failed")) == 1
    kind.counted("dead")
    await keeper.end()
    points = await driver.flow(FlowQuery(tier=TIERS[2], since=datetime(2000, 1, 1, tzinfo=UTC)))
    assert [point.tally.counts for point in points] == [(1, 0, 1, 0, 0, 0)]


async def test_two_workers_of_one_process_add_a_batch_once() -> None:
    class Slow(MemoryDriver):
        """Knows a batch no sooner than it has added it, and takes its time over the first."""

        def __init__(self) -> None:
            super().__init__()
            self.asked: list[FlowBatch] = []
            self.entered, self.go_on = asyncio.Event(), asyncio.Event()

        async def add_flow(self, batch: FlowBatch) -> None:
            self.asked.append(batch)
            self.entered.set()
            await self.go_on.wait()
            await super().add_flow(batch)

    driver, telemetry = Slow(), Telemetry(metrics=Metrics())
    one, other = (TallyKeeper(driver=driver, telemetry=telemetry, roll=lambda: 0.0) for _ in range(2))
    kind = telemetry.metrics.kind("demo.job", "mail")
    kind.counted("ok")
    async with asyncio.TaskGroup() as group:
        group.create_task(one.end())
        await driver.entered.wait()
        kind.counted("dead")
        group.create_task(other.end())
        await asyncio.sleep(0)  # it waits for its turn
        driver.go_on.set()
    assert [len(batch.parts) for batch in driver.asked] == [1, 1]
    assert [batch.parts[0].tally.counts for batch in driver.asked] == [(1, 0, 0, 0, 0, 0), (0, 0, 1, 0, 0, 0)]

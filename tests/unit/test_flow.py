"""Histograms read as percentiles, and counts taken off the metrics: each once, whatever the store says."""

from __future__ import annotations

import pytest

from app.domain.flow import ATTEMPT_BUCKETS, WAIT_BUCKETS, FlowOutcome, Tally, quantile
from app.observability.flow import FlowMeter
from app.observability.metrics import Metrics


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
    (part,) = meter.take()
    assert (part.name, part.queue) == ("demo.job", "mail")
    assert {outcome: part.tally.of(outcome) for outcome in FlowOutcome if part.tally.of(outcome)} == {
        FlowOutcome.OK: 1,
        FlowOutcome.INTERRUPTED: 2,
    }
    assert part.tally.waits[0] == sum(part.tally.waits) == 1
    assert part.tally.runs[ATTEMPT_BUCKETS.index(0.5)] == sum(part.tally.runs) == 1
    assert meter.take() == ()
    kind.counted("dead")
    meter.give_back([part])
    (again,) = meter.take()
    assert again.tally == part.tally + Tally(counts=(0, 0, 1, 0, 0, 0))
    assert meter.take() == ()


def test_every_bucket_has_a_place() -> None:
    assert len(Tally().waits) == len(WAIT_BUCKETS) + 1
    assert len(Tally().runs) == len(ATTEMPT_BUCKETS) + 1
    assert Tally().is_empty

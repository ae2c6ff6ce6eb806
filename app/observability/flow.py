"""What this process has counted of attempts since it was asked last, taken off the metrics it keeps anyway.

Nothing is counted twice and nothing more is counted on the way of a job. Made by `telemetry`; a worker asks, and says
when the store has taken it. Workers that share one take turns.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

from prometheus_client import Counter
from uuid_utils.compat import uuid7

from ..domain.flow import OUTCOMES, FlowBatch, FlowOutcome, FlowPart, Tally
from .metrics import Metrics

_Kind = tuple[str, str]


class FlowMeter:
    """Differences between two looks at the metrics. Safe from any thread; each is given until it is added.

    `turn` is held from taking a batch until the store's answer: another would be given the same one meanwhile, and a
    store that does not know it yet would add it twice.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.turn = asyncio.Lock()
        self._metrics = metrics
        self._lock = threading.Lock()
        self._seen: dict[_Kind, Tally] = {}
        self._owed: FlowBatch | None = None

    def take(self) -> FlowBatch | None:
        """Give the batch that is not known to be added yet, else what was counted since; None when that is nothing."""
        with self._lock:
            if self._owed is None:
                now = self._read()
                new = {kind: _less(tally, self._seen.get(kind)) for kind, tally in now.items()}
                self._seen = now
                parts = tuple(FlowPart(*kind, tally) for kind, tally in sorted(new.items()) if not tally.is_empty)
                self._owed = FlowBatch(uuid7(), parts) if parts else None
            return self._owed

    def added(self, batch: FlowBatch) -> None:
        """Know that the store has taken a batch."""
        with self._lock:
            if self._owed == batch:
                self._owed = None

    def _read(self) -> dict[_Kind, Tally]:
        metrics, counts = self._metrics, dict[_Kind, list[int]]()
        for outcome, counter in (
            (None, metrics.jobs),
            (FlowOutcome.INTERRUPTED, metrics.interrupted),
            (FlowOutcome.CRASHED, metrics.crashed),
            (FlowOutcome.LEASE_LOST, metrics.lease_lost),
        ):
            for kind, label, value in _samples(counter):
                row = counts.setdefault(kind, [0] * len(OUTCOMES))
                row[OUTCOMES.index(outcome or FlowOutcome(label))] += value
        waits = {(job, queue): row for (job, queue), row in metrics.queue_wait_seconds.counts().items()}
        runs = {(job, queue): row for (job, queue), row in metrics.attempt_seconds.counts().items()}
        empty = Tally()
        return {
            kind: Tally(tuple(counts.get(kind, empty.counts)), waits.get(kind, empty.waits), runs.get(kind, empty.runs))
            for kind in counts.keys() | waits.keys() | runs.keys()
        }


def _samples(counter: Counter) -> Iterable[tuple[_Kind, str, int]]:
    for family in counter.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                labels = sample.labels
                yield (labels["job"], labels["queue"]), labels.get("outcome", ""), round(sample.value)


def _less(now: Tally, before: Tally | None) -> Tally:
    if before is None:
        return now
    return Tally(
        tuple(a - b for a, b in zip(now.counts, before.counts, strict=True)),
        tuple(a - b for a, b in zip(now.waits, before.waits, strict=True)),
        tuple(a - b for a, b in zip(now.runs, before.runs, strict=True)),
    )

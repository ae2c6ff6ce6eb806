"""What this process has counted of attempts since it was asked last, taken off the metrics it keeps anyway.

Nothing is counted twice and nothing more is counted on the way of a job. Made by `telemetry`; a worker asks, and says
whether the store has taken it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from prometheus_client import Counter

from ..domain.flow import OUTCOMES, FlowOutcome, FlowPart, Tally
from .metrics import Metrics

_Kind = tuple[str, str]


class FlowMeter:
    """Differences between two looks at the metrics. Safe from any thread; each difference is given once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._seen: dict[_Kind, Tally] = {}
        self._owed: dict[_Kind, Tally] = {}

    def take(self) -> tuple[FlowPart, ...]:
        """Give what was counted since the last look, and what was given back."""
        with self._lock:
            now = self._read()
            new = {kind: _less(tally, self._seen.get(kind)) for kind, tally in now.items()}
            self._seen = now
            for kind, tally in self._owed.items():
                new[kind] = new.get(kind, Tally()) + tally
            self._owed = {}
        return tuple(FlowPart(*kind, tally) for kind, tally in sorted(new.items()) if not tally.is_empty)

    def give_back(self, parts: Iterable[FlowPart]) -> None:
        """Take back what the store has not taken."""
        with self._lock:
            for part in parts:
                kind = part.name, part.queue
                self._owed[kind] = self._owed.get(kind, Tally()) + part.tally

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

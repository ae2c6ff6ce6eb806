"""Histograms of durations for what happens once a job: the client library's own cost several times as much.

Owns the counts; the client library renders them. Made by `metrics` alone. Safe from any thread.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class Duration:
    """The durations of one set of labels. Each is counted in the first bucket whose bound it does not exceed."""

    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, seconds: float) -> None:
        """Count one."""
        place = bisect_left(self._bounds, seconds)
        with self._lock:
            self._counts[place] += 1
            self._sum += seconds

    def counts(self) -> tuple[int, ...]:
        """Give the counts by bucket, the unbounded one last."""
        with self._lock:
            return tuple(self._counts)

    def read(self) -> tuple[list[int], float]:
        """Give the cumulated counts by bucket, the unbounded one last, and the sum, of one instant."""
        with self._lock:
            return list(accumulate(self._counts)), self._sum


class Durations(Collector):
    """A histogram with labels."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], *, bounds: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = tuple(labels)
        self._bounds = tuple(bounds)
        self._by_labels: dict[tuple[str, ...], Duration] = {}
        self._lock = threading.Lock()

    def labels(self, **labels: str) -> Duration:
        """Give the durations of one set of labels; the same object every time."""
        values = tuple(labels[name] for name in self._labels)
        with self._lock:
            return self._by_labels.setdefault(values, Duration(self._bounds))

    def counts(self) -> dict[tuple[str, ...], tuple[int, ...]]:
        """Give the counts by bucket of each set of labels, the unbounded one last."""
        with self._lock:
            known = list(self._by_labels.items())
        return {values: durations.counts() for values, durations in known}

    def collect(self) -> Iterator[Metric]:
        """Yield the family with all its sets of labels."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        with self._lock:
            known = list(self._by_labels.items())
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for values, durations in known:
            counts, total = durations.read()
            family.add_metric(values, list(zip(names, map(float, counts), strict=True)), total)
        yield family

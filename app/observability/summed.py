"""The metrics of several processes as those of one: what `/metrics` of a parent shows.

What counts is summed, and what a process that ended had counted stays in: a sum that fell would read as a restart of
all. A gauge of a process's own resources is summed over those that live, any other gauge (of the store, of a loop) is
the largest. Called with exposition text, gives exposition text.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_ADDS_UP = frozenset({"counter", "histogram", "summary"})
_OF_ONE = frozenset({"process_start_time_seconds", "process_max_fds"})

Labels = tuple[tuple[str, str], ...]
Families = dict[str, "_Family"]


class _Family:
    """One metric of one process, or of all."""

    def __init__(self, name: str, kind: str, words: str) -> None:
        self.name = name
        self.kind = kind
        self.words = words
        self.values: dict[tuple[str, Labels], float] = {}

    @property
    def adds_up(self) -> bool:
        """Say whether values of processes are to be summed."""
        return self.kind in _ADDS_UP or (self.name.startswith("process_") and self.name not in _OF_ONE)

    def take(self, other: _Family) -> None:
        """Take another process's values in."""
        for key, value in other.values.items():
            mine = self.values.get(key)
            if mine is None:
                self.values[key] = value
            else:
                self.values[key] = mine + value if self.adds_up else max(mine, value)


class SummedMetrics(Collector):
    """The metrics of a family of processes, by process id. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._living: dict[int, Families] = {}
        self._ended: Families = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def show(self, texts: Mapping[int, str], *, living: Iterable[int]) -> None:
        """Take newer text of some processes; of those that do not live any more, what they had counted is kept."""
        parsed = {pid: _parsed(text) for pid, text in texts.items()}
        stay = set(living)
        with self._lock:
            self._living |= parsed
            for pid in [pid for pid in self._living if pid not in stay]:
                _take(self._ended, {name: one for name, one in self._living.pop(pid).items() if one.kind in _ADDS_UP})

    def render(self) -> bytes:
        """Give the exposition text of all."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the sums."""
        with self._lock:
            sums: Families = {}
            for families in (self._ended, *self._living.values()):
                _take(sums, families)
        for family in sums.values():
            metric = Metric(family.name, family.words, family.kind)
            for (name, labels), value in family.values.items():
                metric.add_sample(name, dict(labels), value)
            yield metric


def _parsed(text: str) -> Families:
    families: Families = {}
    for found in text_string_to_metric_families(text):
        family = families[found.name] = _Family(found.name, found.type, found.documentation)
        for sample in found.samples:
            family.values[sample.name, tuple(sorted(sample.labels.items()))] = float(sample.value)
    return families


def _take(into: Families, families: Families) -> None:
    for name, family in families.items():
        into.setdefault(name, _Family(name, family.kind, family.words)).take(family)

"""The Prometheus metrics, in a registry of their own: counters of what this process did, gauges of the store.

Counters move after the store has answered, never before, so that they agree with the ledger. Gauges of the store come
from the last snapshot handed to `show`; a scrape reads no database. Only `telemetry` and the composition root call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ..domain.flow import ATTEMPT_BUCKETS, WAIT_BUCKETS
from ..domain.outbox import OutboxView
from ..domain.snapshot import OldestSnapshot, QueueView, Stats
from ..domain.state import TERMINAL, State
from .durations import Durations

WakeupMode = Literal["listen", "polling"]

# Queue names come with requests: beyond this many label values a metric goes on under one name that no queue can have.
MAX_LABEL_VALUES = 200
OTHER = "(other)"


class BoundedLabels:
    """Lets the first values of a label through and gathers the rest under one."""

    def __init__(self, limit: int = MAX_LABEL_VALUES) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def admit(self, value: str) -> str:
        """Give the value to label with."""
        if value in self._known:
            return value
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(value)
        return value


class KindMetrics:
    """The metrics of attempts of one job type in one queue, their labels looked up once."""

    def __init__(self, metrics: Metrics, labels: dict[str, str]) -> None:
        self.wait_seconds = metrics.queue_wait_seconds.labels(**labels)
        self.attempt_seconds = metrics.attempt_seconds.labels(**labels)
        self._jobs = metrics.jobs
        self._labels = labels
        self._by_outcome: dict[str, Counter] = {}

    def counted(self, outcome: str) -> None:
        """Count an attempt: ok, failed or dead."""
        counter = self._by_outcome.get(outcome)
        if counter is None:
            counter = self._by_outcome[outcome] = self._jobs.labels(**self._labels, outcome=outcome)
        counter.inc()


class StoreGauges(Collector):
    """The gauges of the store's last snapshot; without one, nothing rather than zeros."""

    def __init__(self) -> None:
        self._stats: Stats | None = None

    def show(self, stats: Stats) -> None:
        """Take a newer snapshot."""
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of the snapshot at hand."""
        stats = self._stats
        if stats is None:
            return
        queues = sorted(stats.queues, key=lambda queue: queue.name)
        named = [(queue.name if place < MAX_LABEL_VALUES else OTHER, queue) for place, queue in enumerate(queues)]
        yield _depths(named)
        yield _oldest(named)
        yield _dead(named)
        yield from _controls(named)
        held = GaugeMetricFamily("outlast_jobs_held", "Jobs that an operator has to decide about.")
        held.add_metric([], float(stats.by_state.get(State.HELD, 0)))
        yield held
        slots = GaugeMetricFamily("outlast_slots_held", "Slots of concurrency limits that are held.")
        slots.add_metric([], float(stats.slots_held))
        yield slots
        if stats.oldest_snapshot is not None:
            yield from _snapshot(stats.oldest_snapshot)


def _snapshot(oldest: OldestSnapshot) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "outlast_oldest_snapshot_seconds",
        "For how long the oldest snapshot of the database has been kept.",
        value=oldest.seconds,
    )
    yield GaugeMetricFamily(
        "outlast_oldest_xmin_age", "How many transactions ago it was taken.", value=float(oldest.xids)
    )


def _summed(values: Iterable[tuple[tuple[str, ...], float]]) -> dict[tuple[str, ...], float]:
    sums: dict[tuple[str, ...], float] = {}
    for labels, value in values:
        sums[labels] = sums.get(labels, 0.0) + value
    return sums


def _depths(named: list[tuple[str, QueueView]]) -> Metric:
    family = GaugeMetricFamily("outlast_queue_depth", "Live jobs by queue and state.", labels=["queue", "state"])
    live = [state for state in State if state not in TERMINAL]
    rows = (((name, state.value), float(queue.depth.get(state, 0))) for name, queue in named for state in live)
    for labels, value in _summed(rows).items():
        family.add_metric(labels, value)
    return family


def _oldest(named: list[tuple[str, QueueView]]) -> Metric:
    family = GaugeMetricFamily(
        "outlast_queue_oldest_ready_seconds", "Age of the oldest ready job, by queue.", labels=["queue"]
    )
    ages: dict[str, float] = {}
    for name, queue in named:
        ages[name] = max(ages.get(name, 0.0), queue.oldest_ready_seconds or 0.0)
    for name, age in ages.items():
        family.add_metric([name], age)
    return family


def _dead(named: list[tuple[str, QueueView]]) -> Metric:
    family = GaugeMetricFamily("outlast_dead_jobs", "Dead letters kept, by queue.", labels=["queue"])
    for labels, value in _summed(((name,), float(queue.depth.get(State.DEAD, 0))) for name, queue in named).items():
        family.add_metric(labels, value)
    return family


def _controls(named: list[tuple[str, QueueView]]) -> Iterator[Metric]:
    """Yield what holds queues back; of queues that share a label, and of those without a setting, nothing."""
    paused = GaugeMetricFamily("outlast_queue_paused", "1 for a queue that is paused.", labels=["queue"])
    running = GaugeMetricFamily("outlast_queue_concurrency", "How many jobs of a queue may run.", labels=["queue"])
    depth = GaugeMetricFamily("outlast_queue_max_depth", "How many jobs may wait in a queue.", labels=["queue"])
    for name, queue in named:
        is_paused = None if queue.paused_at is None else 1
        values = ((paused, is_paused), (running, queue.concurrency), (depth, queue.max_depth))
        for family, value in values if name != OTHER else ():
            if value is not None:
                family.add_metric([name], float(value))
    yield from (paused, running, depth)


class OutboxGauges(Collector):
    """The gauges of the outbox as a relay saw it last; without a relay, nothing rather than zeros."""

    def __init__(self) -> None:
        self._view: OutboxView | None = None

    def show(self, view: OutboxView) -> None:
        """Take a newer view."""
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of the view at hand."""
        view = self._view
        if view is None:
            return
        yield GaugeMetricFamily(
            "outlast_outbox_lag_seconds", "Age of the oldest unpublished row.", value=view.lag.total_seconds()
        )
        yield GaugeMetricFamily(
            "outlast_outbox_quarantined", "Rows that wait for an operator.", value=float(view.quarantined)
        )


class ScheduleGauges(Collector):
    """The gauge of schedules as a scheduler saw them last; without a scheduler, nothing rather than zero."""

    def __init__(self) -> None:
        self._lag_seconds: float | None = None

    def show(self, lag_seconds: float) -> None:
        """Take a newer lag."""
        self._lag_seconds = lag_seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the gauge of the lag at hand."""
        if self._lag_seconds is not None:
            yield GaugeMetricFamily(
                "outlast_schedule_lag_seconds",
                "How long the oldest undecided occurrence has been due.",
                value=self._lag_seconds,
            )


class Metrics:
    """Every metric of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._jobs = BoundedLabels()
        self._queues = BoundedLabels()
        self._store = StoreGauges()
        self._outbox = OutboxGauges()
        self._kinds: dict[tuple[str, str], KindMetrics] = {}
        self.registry.register(self._store)
        self.registry.register(self._outbox)
        self._schedule = ScheduleGauges()
        self.registry.register(self._schedule)
        ProcessCollector(registry=self.registry)
        kind = ["job", "queue"]
        own = self.registry
        self.jobs = Counter(
            "outlast_jobs_total", "Attempts that count: ok, failed, dead.", [*kind, "outcome"], registry=own
        )
        self.interrupted = Counter(
            "outlast_attempts_interrupted_total", "Attempts cut by a worker's own drain.", kind, registry=own
        )
        self.crashed = Counter("outlast_attempts_crashed_total", "Attempts whose worker vanished.", kind, registry=own)
        self.lease_lost = Counter(
            "outlast_attempts_lease_lost_total", "Attempts given back by a worker without a lease.", kind, registry=own
        )
        self.attempt_seconds = Durations(
            "outlast_attempt_seconds", "Time an attempt ran.", kind, bounds=ATTEMPT_BUCKETS
        )
        self.queue_wait_seconds = Durations(
            "outlast_queue_wait_seconds", "Time from due to first claimed.", kind, bounds=WAIT_BUCKETS
        )
        own.register(self.attempt_seconds)
        own.register(self.queue_wait_seconds)
        self.loop_lag = Gauge("outlast_loop_lag_seconds", "Worst recent lag of the event loop.", registry=own)
        self._wakeup = Gauge(
            "outlast_wakeup_mode", "1 for how the worker learns of work: listen, polling.", ["mode"], registry=own
        )
        self.drain_phase = Gauge("outlast_drain_phase", "0 not draining, 1 accept, 2 inflight, 3 close.", registry=own)
        self._count_the_rest()

    def _count_the_rest(self) -> None:
        """Count what is not attempts: rows of the outbox, what is purged, schedules, bulk operations."""
        own = self.registry
        self._outbox_rows = Counter(
            "outlast_outbox_rows_total", "Rows of the outbox by how they ended.", ["end"], registry=own
        )
        self._purged = Counter(
            "outlast_purged_rows_total", "Rows this process deleted, by kind.", ["kind"], registry=own
        )
        self._purge_age = Gauge(
            "outlast_purge_age_seconds", "Since the last full round over a kind began.", ["kind"], registry=own
        )
        self._deferred = Counter(
            "outlast_outbox_deferred_total", "Times that rows were put off because their queue was full.", registry=own
        )
        self._schedules = BoundedLabels()
        self._occurrences = Counter(
            "outlast_schedule_occurrences_total",
            "Occurrences this process decided: fired, skipped.",
            ["schedule", "outcome"],
            registry=own,
        )

        self._bulk_jobs = Counter(
            "outlast_bulk_jobs_total",
            "Jobs that this process came to in bulk operations, by what became of them: done, changed, failed.",
            ["action", "verdict"],
            registry=own,
        )

    def show_wakeup(self, live: WakeupMode) -> None:
        """Show how this process's worker learns of work."""
        for mode in get_args(WakeupMode):
            self._wakeup.labels(mode=mode).set(mode == live)

    def labels(self, job: str, queue: str) -> dict[str, str]:
        """Give the two bounded labels of a job."""
        return {"job": self._jobs.admit(job), "queue": self._queues.admit(queue)}

    def kind(self, job: str, queue: str) -> KindMetrics:
        """Give the metrics of a job type in a queue; as many of them as there are bounded labels."""
        known = self._kinds.get((job, queue))
        if known is not None:
            return known
        key = (self._jobs.admit(job), self._queues.admit(queue))
        known = self._kinds.get(key)
        if known is None:
            known = self._kinds[key] = KindMetrics(self, {"job": key[0], "queue": key[1]})
        return known

    def show(self, stats: Stats) -> None:
        """Let the store's gauges speak from this snapshot on."""
        self._store.show(stats)

    def outbox_rows(self, end: str, count: int) -> None:
        """Count rows that ended: published, deduped or quarantined."""
        if count:
            self._outbox_rows.labels(end=end).inc(count)

    def outbox_deferred(self, count: int) -> None:
        """Count rows that stay because their queue was full."""
        self._deferred.inc(count)

    def show_outbox(self, view: OutboxView) -> None:
        """Let the outbox's gauges speak from this view on."""
        self._outbox.show(view)

    def occurrences(self, schedule: str, outcome: str, count: int) -> None:
        """Count decided occurrences."""
        if count:
            self._occurrences.labels(schedule=self._schedules.admit(schedule), outcome=outcome).inc(count)

    def purged_rows(self, kind: str, count: int) -> None:
        """Count rows that are deleted."""
        if count:
            self._purged.labels(kind=kind).inc(count)

    def show_purge_age(self, kind: str, seconds: float) -> None:
        """Let the gauge of a kind of rows speak from now on."""
        self._purge_age.labels(kind=kind).set(seconds)

    def bulk_jobs(self, action: str, verdict: str, count: int) -> None:
        """Count jobs of bulk operations."""
        if count:
            self._bulk_jobs.labels(action=action, verdict=verdict).inc(count)

    def show_schedule_lag(self, seconds: float) -> None:
        """Let the gauge of schedules speak from now on."""
        self._schedule.show(seconds)

    def render(self) -> bytes:
        """Give the exposition text; no I/O."""
        return generate_latest(self.registry)

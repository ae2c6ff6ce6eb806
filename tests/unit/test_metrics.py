"""The metrics: in a registry of their own, bounded in their labels, and about what the store has answered."""

from __future__ import annotations

from app.domain.snapshot import OldestSnapshot, QueueView, Stats
from app.domain.state import State
from app.observability.metrics import MAX_LABEL_VALUES, OTHER, BoundedLabels, Metrics

NAMES = {
    "outlast_jobs_total",
    "outlast_queue_oldest_ready_seconds",
    "outlast_queue_depth",
    "outlast_dead_jobs",
    "outlast_jobs_held",
    "outlast_slots_held",
    "outlast_attempts_interrupted_total",
    "outlast_attempts_crashed_total",
    "outlast_attempts_lease_lost_total",
    "outlast_attempt_seconds",
    "outlast_queue_wait_seconds",
    "outlast_loop_lag_seconds",
    "outlast_drain_phase",
}


def queue(name: str, *, ready: int = 0, dead: int = 0, age: float | None = None) -> QueueView:
    return QueueView(name=name, depth={State.READY: ready, State.DEAD: dead}, oldest_ready_seconds=age)


def test_every_name_of_the_contract_that_exists_is_served() -> None:
    metrics = Metrics()
    metrics.show(Stats(by_state={}, queues=()))
    text = metrics.render().decode()
    for name in NAMES:
        assert f"# TYPE {name.removesuffix('_total') if f'# TYPE {name} ' not in text else name}" in text


def test_two_processes_parts_have_registries_of_their_own() -> None:
    first, second = Metrics(), Metrics()
    first.jobs.labels(**first.labels("a", "q"), outcome="ok").inc()
    labels = {"job": "a", "queue": "q", "outcome": "ok"}
    assert first.registry.get_sample_value("outlast_jobs_total", labels) == 1
    assert second.registry.get_sample_value("outlast_jobs_total", labels) is None


def test_gauges_speak_from_the_last_snapshot_and_not_before() -> None:
    metrics = Metrics()
    assert b"outlast_queue_depth" not in metrics.render()
    metrics.show(Stats(by_state={State.HELD: 2}, queues=(queue("mail", ready=3, dead=1, age=12.5),), slots_held=4))
    assert metrics.registry.get_sample_value("outlast_oldest_xmin_age") is None, "a store without such"
    get = metrics.registry.get_sample_value
    assert get("outlast_queue_depth", {"queue": "mail", "state": "ready"}) == 3
    assert get("outlast_queue_depth", {"queue": "mail", "state": "delayed"}) == 0
    assert get("outlast_queue_depth", {"queue": "mail", "state": "done"}) is None
    assert get("outlast_queue_oldest_ready_seconds", {"queue": "mail"}) == 12.5
    assert get("outlast_dead_jobs", {"queue": "mail"}) == 1
    assert get("outlast_jobs_held") == 2
    assert get("outlast_slots_held") == 4
    metrics.show(Stats(by_state={}, queues=(), oldest_snapshot=OldestSnapshot(seconds=61.5, xids=7)))
    assert (get("outlast_oldest_snapshot_seconds"), get("outlast_oldest_xmin_age")) == (61.5, 7)
    assert get("outlast_queue_depth", {"queue": "mail", "state": "ready"}) is None


def test_queues_beyond_the_bound_are_gathered_under_one_name() -> None:
    metrics = Metrics()
    queues = tuple(queue(f"q{n:04}", ready=1, dead=2, age=float(n)) for n in range(MAX_LABEL_VALUES + 50))
    metrics.show(Stats(by_state={}, queues=queues))
    get = metrics.registry.get_sample_value
    assert get("outlast_queue_depth", {"queue": OTHER, "state": "ready"}) == 50
    assert get("outlast_dead_jobs", {"queue": OTHER}) == 100
    assert get("outlast_queue_oldest_ready_seconds", {"queue": OTHER}) == MAX_LABEL_VALUES + 49


def test_labels_beyond_the_bound_are_gathered_and_known_ones_stay() -> None:
    labels = BoundedLabels(limit=2)
    assert [labels.admit(value) for value in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]

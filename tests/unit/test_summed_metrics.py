"""The metrics of several processes as one: what counts adds up and never falls, what is shared is not added."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from app.observability.metrics import Metrics
from app.observability.summed import SummedMetrics


def exposed(*, ok: int, rss: float = 10.0, phase: int = 0, seconds: float = 0.2) -> str:
    metrics = Metrics()
    metrics.jobs.labels(job="a", queue="q", outcome="ok").inc(ok)
    metrics.attempt_seconds.labels(job="a", queue="q").observe(seconds)
    metrics.drain_phase.set(phase)
    lines = metrics.render().decode().splitlines()
    kept = [line for line in lines if "process_" not in line]
    own = ["# TYPE process_resident_memory_bytes gauge", f"process_resident_memory_bytes {rss}"]
    return "\n".join([*kept, *own, ""])


def values(summed: SummedMetrics) -> dict[str, float]:
    families = text_string_to_metric_families(summed.render().decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_counters_and_a_processs_own_gauges_add_up_and_others_are_the_largest() -> None:
    summed = SummedMetrics()
    summed.show({1: exposed(ok=3, rss=10, phase=2), 2: exposed(ok=4, rss=20, phase=1)}, living=[1, 2])
    found = values(summed)
    assert found["outlast_jobs_total"] == 7
    assert found["outlast_attempt_seconds_count"] == 2
    assert found["process_resident_memory_bytes"] == 30
    assert found["outlast_drain_phase"] == 2


def test_what_a_process_that_ended_had_counted_stays_and_its_gauges_go() -> None:
    summed = SummedMetrics()
    summed.show({1: exposed(ok=3, rss=10, phase=2), 2: exposed(ok=4, rss=20)}, living=[1, 2])
    summed.show({2: exposed(ok=5, rss=20)}, living=[2])
    summed.show({2: exposed(ok=5, rss=20), 3: exposed(ok=1, rss=1)}, living=[2, 3])
    found = values(summed)
    assert found["outlast_jobs_total"] == 3 + 5 + 1
    assert found["process_resident_memory_bytes"] == 21
    assert found["outlast_drain_phase"] == 0


def test_a_process_that_does_not_answer_is_shown_as_it_was() -> None:
    summed = SummedMetrics()
    summed.show({1: exposed(ok=3), 2: exposed(ok=4)}, living=[1, 2])
    summed.show({1: exposed(ok=5)}, living=[1, 2])
    assert values(summed)["outlast_jobs_total"] == 9


def test_buckets_of_one_histogram_add_up() -> None:
    summed = SummedMetrics()
    summed.show({1: exposed(ok=1, seconds=0.2), 2: exposed(ok=1, seconds=50.0)}, living=[1, 2])
    text = summed.render().decode()
    assert 'outlast_attempt_seconds_bucket{job="a",le="0.25",queue="q"} 1.0' in text
    assert 'outlast_attempt_seconds_bucket{job="a",le="+Inf",queue="q"} 2.0' in text

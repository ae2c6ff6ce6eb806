"""K11: at quiescence the counters of all processes add up to the ledger, and the gauges to the store."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest

from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.faults.history import check
from tests.support.processes import Fleet, Samples, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]

LABEL = {
    OutcomeKind.COMPLETED: "ok",
    OutcomeKind.RETRIED: "failed",
    OutcomeKind.DEAD_LETTERED: "dead",
}
COUNTER = {
    OutcomeKind.INTERRUPTED: "outlast_attempts_interrupted_total",
    OutcomeKind.CRASHED: "outlast_attempts_crashed_total",
    OutcomeKind.LEASE_LOST: "outlast_attempts_lease_lost_total",
}

Books = Counter[tuple[str, str]]


async def test_counters_are_the_ledger(fleet: Fleet, store: Store, dice: random.Random) -> None:
    await store.publish()
    # The killed worker takes its counters with it, so it serves nothing but what it dies of.
    doomed = fleet.worker("--queues", "doomed")
    leaving = fleet.worker("--queues", "leaving", "--drain-timeout", "20")
    staying = fleet.worker("--queues", "default", "--concurrency", "20")
    for service in (doomed, leaving, staying):
        await service.ready()
    await store.driver.pause_queue("default", by="test")
    crashing = [
        await store.enqueue("faults.hold", {"gate": "doom"}, queue="doomed") for _ in range(dice.randrange(1, 4))
    ]
    told = [await store.enqueue("faults.hold", {"gate": "told"}, queue="leaving") for _ in range(dice.randrange(1, 4))]
    late = await store.enqueue("faults.hold", {"gate": "told", "heed": False}, queue="leaving")
    await eventually(lambda: len(fleet.ledger.events("effect")) == len(crashing) + len(told) + 1, "they run")
    doomed.kill()
    await eventually(lambda: _count(store, OutcomeKind.CRASHED), "the crash is on record")
    await store.all_until(crashing, State.READY)
    leaving.terminate()
    await store.all_until(told, State.READY)
    of_leaving = await leaving.metrics()
    fleet.ledger.open("told")
    await store.until(late)
    await eventually(lambda: leaving.said("attempt.completed") != [], "it says so")
    assert await leaving.gone() == 0
    await store.driver.resume_queue("default")
    jobs = [
        *[await store.enqueue("faults.hold") for _ in range(dice.randrange(5, 15))],
        *[await store.enqueue("faults.fail", {"times": 1}) for _ in range(dice.randrange(1, 5))],
        *[await store.enqueue("faults.fail") for _ in range(dice.randrange(1, 5))],
        *[await store.enqueue("faults.fail", {"terminal": True}) for _ in range(dice.randrange(1, 5))],
        *[await store.enqueue("faults.snooze") for _ in range(dice.randrange(1, 5))],
        await store.enqueue("faults.give", {"kind": "nan"}),
    ]
    cancelled = await store.enqueue("faults.hold", delay=timedelta(hours=1))
    running = await store.enqueue("faults.hold", {"gate": "never"})
    await store.until(running, State.RUNNING)
    for job_id in (cancelled, running, *crashing):
        await store.driver.cancel(job_id, reason="enough")
    await store.all_until(jobs)
    await eventually(lambda: staying.said("attempt.superseded") != [], "the cancelled body has ended")
    await eventually(lambda: len(staying.said("attempt.completed")) >= 5, "the log has them")
    wanted = await _ledger(store)
    # `late` completed after the last look at the worker that left; its log says that it counted it.
    wanted[("outlast_jobs_total", "ok")] -= len(leaving.said("attempt.completed"))

    async def agree() -> bool:
        return _books(await staying.metrics()) + _books(of_leaving) == wanted

    try:
        await eventually(agree, "counters and ledger agree", within=5)
    finally:
        report(f"wanted {wanted}, found {_books(await staying.metrics()) + _books(of_leaving)}")
    await _gauges(store, fleet)
    await check(store, fleet.ledger.events(), acked=[*crashing, *told, late, *jobs, cancelled, running])


async def _gauges(store: Store, fleet: Fleet) -> None:
    """A worker that starts counts the store at once: depths and dead letters are the store's own."""
    fresh = await fleet.worker("--queues", "elsewhere").ready()

    async def counted() -> bool:
        return any(name == "outlast_queue_depth" for name, _ in await fresh.metrics())

    await eventually(counted, "the gauges are there")
    samples = await fresh.metrics()
    stats = await store.driver.stats()
    for queue in stats.queues:
        for state in (State.READY, State.RUNNING, State.DELAYED):
            labels = (("queue", queue.name), ("state", state.value))
            assert samples[("outlast_queue_depth", labels)] == queue.depth.get(state, 0)
        assert samples[("outlast_dead_jobs", (("queue", queue.name),))] == queue.depth.get(State.DEAD, 0)


async def _count(store: Store, kind: OutcomeKind) -> bool:
    rows = await store.fetch("select count(*) from outlast.attempt where outcome = $1", kind.value)
    return bool(rows[0][0])


async def _ledger(store: Store) -> Books:
    """Count what the store has on record, under the names the metrics use."""
    books: Books = Counter()
    for row in await store.fetch("select id from outlast.job"):
        for outcome in await store.outcomes(row["id"]):
            if outcome in LABEL:
                books["outlast_jobs_total", LABEL[outcome]] += 1
            elif outcome in COUNTER:
                books[COUNTER[outcome], ""] += 1
    return books


def _books(samples: Samples) -> Books:
    books: Books = Counter()
    for (name, labels), value in samples.items():
        if name == "outlast_jobs_total" or name in COUNTER.values():
            books[name, dict(labels).get("outcome", "")] += round(value)
    return books

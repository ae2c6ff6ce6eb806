"""Has this version run the golden jobs on a PostgreSQL, and gives the traces it leaves."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from app.domain.event import EventId, NewEvent
from app.domain.job import JobId
from app.domain.state import State
from app.drivers.reading import ListQuery
from app.replay.export import Exporter
from app.replay.trace import Trace
from tests.golden.jobs import HANDLES
from tests.roles.harness import Bench
from tests.roles.test_worker_postgres import at

_NOTE = 'two  spaces, "quotes", \u20ac'


async def recorded(url: str, *, version: str) -> tuple[Trace, ...]:
    """Run every job as far as it goes, and give the traces of all of them, by name and age."""
    async with at(url, *HANDLES, version=version) as bench:
        await _run(bench)
        exporter = Exporter(bench.driver, ListQuery(states=frozenset(State)))
        found: list[Trace] = []
        while (page := await exporter.page()) is not None:
            found += page
    return tuple(sorted(found, key=lambda trace: (trace.job.name, trace.job.id)))


async def _run(bench: Bench) -> None:
    values = await bench.enqueue(
        "golden.values", {"number": 7, "note": _NOTE}, meta='{"a": 1}', tags=("a", "b"), key="golden"
    )
    waits = await bench.enqueue("golden.waits", {"key": "7"})
    for payload in ('{"by": "ann", "n": 1e0}', "null"):
        await _emit(bench, "7", payload)
    calls = await bench.enqueue("golden.calls", {"number": 4})
    failed_call = await bench.enqueue("golden.failed-call")
    branches = await bench.enqueue("golden.branches", {"key": "8"})
    joined = await bench.enqueue("golden.joined")
    books = await bench.enqueue("golden.books")
    fails = await bench.enqueue("golden.fails", max_attempts=3)
    retried = await bench.enqueue("golden.retried", max_attempts=9)
    snoozes = await bench.enqueue("golden.snoozes")
    await bench.enqueue("golden.later", {"number": 1}, delay=timedelta(days=1))
    still_open = await bench.enqueue("golden.open", {"key": "9"})
    for job_id in (values, waits, calls, joined, books):
        await bench.until("attempt.completed", job_id)
    await bench.until("attempt.dead", fails)
    await bench.until("attempt.retried", retried)
    await bench.until("attempt.suspended", snoozes)
    await bench.until("attempt.suspended", still_open)
    await bench.until("attempt.suspended", failed_call, count=2)
    await bench.until("attempt.suspended", branches, count=2)
    await _emit(bench, "8", "[1, 2.50]")
    await bench.until("attempt.suspended", branches, count=3)
    await _over(bench, branches, "short", "inner event")


async def _emit(bench: Bench, key: str, payload: str) -> None:
    event = NewEvent(id=EventId(UUID(int=uuid4().int)), tenant="default", name="golden.event", key=key, payload=payload)
    await bench.driver.emit(event)


async def _over(bench: Bench, job_id: JobId, *names: str) -> None:
    """Make sure that these waits of a run are over, or say that what it did was cut short."""
    run = await bench.driver.run(job_id)
    left = set(names) - {step.name for step in run.history.steps} if run is not None else set(names)
    if left:
        raise AssertionError(f"{sorted(left)} are not over")

"""A worker of the product lives through a cut at any statement of its life: it starts, works and leaves as if not.

The whole role, past a blade: its own way of repeating, reconciling and settling again is what is held here. Every job
ends as it would have, in one worker's life, and the worker's row says so.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from app.drivers.opening import open_driver
from app.drivers.postgres import heartbeat
from app.drivers.postgres.connect import COMMAND_TIMEOUT
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.jobs import JobContext, Registry, RetryPolicy, Snooze, job
from app.lifecycle.drain import DrainNotice
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.worker.options import WorkerOptions
from app.worker.worker import Worker
from tests.faults.cuts.bench import Bench, bench_on
from tests.support.blade import Cut
from tests.support.drivers import new_job
from tests.support.processes import eventually

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

_PATIENCE = timedelta(seconds=1)
_BENCHES = 5
_LEASE = timedelta(seconds=30)
# What a statement is told by, of those a worker sends in any life; and those of a life in which something does not end.
_STATEMENTS = {
    "register": 'insert into "outlast".worker',
    "publish job types": 'insert into "outlast".job_type',
    "show": "set wakeup = ",
    "due": "as promote_in",
    "stats": 'from "outlast".ready group by queue, rank',
    "claim": 'insert into "outlast".running',
    "settle": 'insert into "outlast".finished(job_id, state, attempt',
    "settle, failed": "($15::text[])[p]",
    "renew": "set lease_until = \"outlast\".clock() + lease_ms * interval '1 ms', renewed_at",
    "promote": 'delete from "outlast".waiting w',
    "close": 'set closed_at = "outlast".clock() where id',
}
_LEFT = {
    "abandon": "set abandoned = true",
    "report": 'insert into "outlast".drain',
}


@job("cuts.plain", retry=RetryPolicy(max_attempts=3))
async def plain(ctx: JobContext) -> str:
    await asyncio.sleep(0)
    return "done"


@job("cuts.fails", retry=RetryPolicy(max_attempts=2, backoff=timedelta(milliseconds=1)))
async def fails(ctx: JobContext) -> str:
    if ctx.attempt == 1:
        raise ValueError("the first time")
    return "done"


@job("cuts.snoozes")
async def snoozes(ctx: JobContext) -> str:
    if ctx.claim_no == 1:
        raise Snooze(timedelta(milliseconds=1))
    return "done"


@job("cuts.stays", abort="signal")
async def stays(ctx: JobContext) -> None:
    began, may_end = _GATES[str(ctx.id)]
    began.set()
    await may_end.wait()


_GATES: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}
_REGISTRY = Registry([plain, fails, snoozes, stays])


@asynccontextmanager
async def _hired(bench: Bench, cut: Cut) -> AsyncIterator[Worker]:
    """Give a worker that is not started yet, on connections of its own past the blade."""
    patience = _PATIENCE if cut is Cut.SILENT else COMMAND_TIMEOUT
    driver = PostgresDriver(create_engine(bench.way, pool_size=4, command_timeout=patience), owns_engine=True)
    await open_driver(driver, within=timedelta(seconds=30))
    options = WorkerOptions(
        lease=_LEASE,
        heartbeat=timedelta(milliseconds=200),
        sweep=timedelta(milliseconds=100),
        poll=timedelta(milliseconds=50),
        stats_every=timedelta(milliseconds=200),
        code_version="tests",
    )
    try:
        yield Worker(
            driver=driver,
            registry=_REGISTRY,
            options=options,
            telemetry=Telemetry(metrics=Metrics()),
            roll=random.Random(7).random,
        )
    finally:
        await driver.close()


async def _enqueued(bench: Bench, *names: str) -> list[JobId]:
    made = [new_job(name, key=f"order:{number}", max_attempts=3) for number, name in enumerate(names)]
    await bench.straight.driver.enqueue_many(made)
    return [one.id for one in made]


async def _left(worker: Worker) -> None:
    """Drain to the end; a body that stays is given up after a second and a half, with one more to say so."""
    worker.drain(DrainNotice(cause="SIGTERM", started=time.monotonic() - 7.5, seconds=10))
    await worker.stop()


async def _whole_life(bench: Bench, marker: str, cut: Cut) -> None:
    """Start, work, leave; the statement is cut wherever in that it comes."""
    jobs = await _enqueued(bench, *["cuts.plain"] * 3, "cuts.fails", "cuts.snoozes")
    async with _hired(bench, cut) as worker:
        bench.blade.arm_for(marker, cut)
        await worker.start()
        views = await bench.straight.all_until(jobs)
        if marker != _STATEMENTS["close"]:
            await eventually(lambda: bench.blade.hit is not None, "the statement came by")
        await _left(worker)
    assert bench.blade.fault is None, repr(bench.blade.fault)
    assert bench.blade.said, f"the cut was not made: {bench.blade.hit}"
    assert [view.state for view in views] == [State.DONE] * 5
    assert [view.counters.attempt for view in views] == [1, 1, 1, 2, 1]
    assert {view.counters.crashes + view.counters.interrupts for view in views} == {0}
    ledgers = [await bench.straight.outcomes(job_id) for job_id in jobs]
    done, failed = [OutcomeKind.COMPLETED], [OutcomeKind.RETRIED, OutcomeKind.COMPLETED]
    assert ledgers == [done, done, done, failed, done]
    (row,) = await bench.straight.fetch("select closed_at, lost_at from outlast.worker")
    assert (row["closed_at"] is not None, row["lost_at"]) == (True, None), "it left in order, as one worker"
    assert len(await bench.straight.driver.job_types()) == len(_REGISTRY)
    assert await bench.running() == set()
    await bench.check(acked=set(jobs))
    await bench.empty()


async def _life_that_leaves_a_body(bench: Bench, marker: str, cut: Cut) -> None:
    """A body does not end: its claim is abandoned, counted in no budget, and the drain is on record."""
    (job_id,) = await _enqueued(bench, "cuts.stays")
    began, may_end = _GATES[str(job_id)] = asyncio.Event(), asyncio.Event()
    async with _hired(bench, cut) as worker:
        await worker.start()
        await began.wait()
        bench.blade.arm_for(marker, cut)
        await _left(worker)
        may_end.set()
    assert bench.blade.fault is None, repr(bench.blade.fault)
    await eventually(lambda: bench.blade.said != "", f"the cut was made: {bench.blade.hit}", within=5)
    reports = await bench.straight.driver.drains(limit=10)
    fates = [(again.run.job_id, again.run.fate) for report in reports for again in report.runs]
    # Whoever waits in silence for the first word has no time left for the second.
    is_out_of_time = cut is Cut.SILENT and marker == _LEFT["abandon"]
    assert fates == [(job_id, "abandoned")] or (is_out_of_time and not fates)
    # Neither the last phase nor the row's close must be what saves it.
    await bench.straight.fetch(
        "update outlast.worker set lease_until = outlast.clock() - interval '1 s', lease_ms = 1, drain_phase = null"
    )
    (reaped,) = await bench.straight.driver.reap()
    assert (reaped.outcome, reaped.cause) == (OutcomeKind.INTERRUPTED, "abandoned")
    await bench.work_off(set(), parked=0)
    await bench.check(acked={job_id})
    await bench.empty()


_LIVES = {"whole": (_whole_life, _STATEMENTS), "leaves a body": (_life_that_leaves_a_body, _LEFT)}


@pytest.mark.parametrize("life", _LIVES)
async def test_a_worker_lives_through_a_cut_at_any_statement(
    make_database: Callable[..., str],
    folder: Path,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
    life: str,
) -> None:
    """The lives of the cells run side by side; most of each is waiting."""
    monkeypatch.setattr(heartbeat, "COMMAND_TIMEOUT", _PATIENCE)
    play, statements = _LIVES[life]
    cells = [(what, marker, cut) for what, marker in statements.items() for cut in Cut]
    todo = iter(cells)

    async def work_through(number: int) -> None:
        async with bench_on(make_database, folder / str(number)) as bench:
            for what, marker, cut in todo:
                try:
                    await play(bench, marker, cut)
                except BaseException as error:
                    error.add_note(f"cell: {what}, {cut}")
                    raise

    async with asyncio.TaskGroup() as group:
        for number in range(_BENCHES):
            group.create_task(work_through(number))
    told = f"a worker's life, {life}: {len(cells)} cells held, {len(statements)} statements"
    record_property("cuts", {"counts": told, "cells": [f"    {what:20}  {cut}" for what, _, cut in cells]})

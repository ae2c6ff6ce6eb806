"""What runs cost beside a hundred thousand that sleep: figures without noise: statements, and pages looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from app.domain.job import WorkerId
from app.domain.outcome import Completed, Settlement, Suspended
from app.domain.step import MAIN_BRANCH, NewStep, Place, StepKind
from app.drivers.postgres import call_cycle, due, events, run_view, steps, suspend, waits
from app.drivers.postgres.due_mark import DueMark
from tests.conformance.runs import a_sleep, a_step
from tests.postgres.meter import Meter
from tests.postgres.pages import ALONE, Pages, administrator, open_pages, warm_meter
from tests.postgres.test_buffers import _snapshot
from tests.support.made import new_job

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

SLEEPING = 100_000
# Of these, 137 are all there is of the table of what runs: it is read as it lies.
DUE = 160

_PILE = f"""
create table outlast.pile as select gen_random_uuid() as id, i from generate_series(1, {SLEEPING}) i;
insert into outlast.job(id, name_id, queue, priority, tenant, payload, max_attempts, max_crashes)
  select id, 1, 'default', 5, 'default', '{{}}', 3, 3 from outlast.pile;
insert into outlast.suspended(job_id, queue, rank, name_id, claim_no, reason)
  select id, 'default', 10, 1, 1, case when i % 2 = 0 then 2 else 3 end from outlast.pile;
insert into outlast.wait(job_id, name, kind, branch, number, due_at, tenant, event, event_key, code_version)
  select id, 'w', case when i % 2 = 0 then 2 else 3 end, '', 1, outlast.clock() + i * interval '1 second',
    case when i % 2 = 1 then 'default' end, case when i % 2 = 1 then 'go' end, case when i % 2 = 1 then i::text end, '1'
  from outlast.pile;
insert into outlast.step(run_id, name, kind, branch, number, claim_no, code_version, started_at)
  select id, 's' || n, 0, '', n, 1, '1', outlast.clock() from outlast.pile, generate_series(0, 4) n
"""


# --- statements


@pytest.fixture
async def warm(database_url: str) -> AsyncIterator[tuple[Meter, WorkerId]]:
    """A counted driver that has done everything once."""
    async with warm_meter(database_url) as made:
        yield made


@pytest.mark.parametrize(("count", "statements"), [(31, 1), (100, 2)])
async def test_steps_recorded_together_share_a_statement(
    warm: tuple[Meter, WorkerId], count: int, statements: int
) -> None:
    """Many go in halves, so that the bodies of one half run while the server commits the other."""
    meter, worker = warm
    await meter.enqueue(count)
    claimed = await meter.claim(worker, count)
    async with meter.counting():
        answers = await asyncio.gather(*(meter.driver.record_step(one.token, a_step()) for one in claimed))
        assert answers == [True] * count
        assert len(meter.verbs) == statements


async def test_a_run_is_read_in_one_statement(warm: tuple[Meter, WorkerId]) -> None:
    meter, worker = warm
    await meter.enqueue(1)
    (one,) = await meter.claim(worker, 1)
    async with meter.counting():
        await meter.driver.history(one.token.job_id, one.run_id)
        await meter.driver.run(one.token.job_id)
    assert len(meter.verbs) == 2


async def test_a_sleep_is_two_statements_between_begin_and_commit(warm: tuple[Meter, WorkerId]) -> None:
    """The claim is locked in the first; in the second the run looks at what has ended by then."""
    meter, worker = warm
    await meter.enqueue(1)
    (one,) = await meter.claim(worker, 1)
    async with meter.counting():
        await meter.driver.settle([Settlement(one.token, Suspended(waits=(a_sleep(),)))])
    assert [sql.split()[0].strip(";").lower() for sql in meter.verbs] == ["begin", "with", "with", "commit"]


async def test_the_end_of_a_child_that_nobody_called_is_three_statements(warm: tuple[Meter, WorkerId]) -> None:
    """Its settle, and whether anybody waits for it, once who was about to has committed."""
    meter, worker = warm
    await meter.driver.enqueue(new_job(parent_id=new_job().id))
    (one,) = await meter.claim(worker, 1)
    async with meter.counting():
        await meter.driver.settle([Settlement(one.token, Completed(), is_child=True)])
    assert len(meter.verbs) == 3


# --- pages


@pytest.fixture
async def pages(lone_url: str) -> AsyncIterator[Pages]:
    """Statements to be explained, beside a hundred thousand suspended runs of five steps."""
    async with open_pages(lone_url) as made:
        async with administrator(lone_url) as admin:
            await admin.execute(_PILE)
        await made.tidy()
        yield made


async def _one(pages: Pages, number: int) -> Any:
    return await pages.connection.fetchval("select id from outlast.pile where i = $1", number)


async def test_a_look_for_what_is_due_costs_what_it_did_without_any_run(pages: Pages) -> None:
    mark = DueMark(monotonic=float, roll=float)
    assert await pages.of(due._DUE, mark.begin(pages), mark.begin(pages)) <= DUE


async def test_runs_that_were_woken_long_ago_cost_the_next_look_nothing(pages: Pages, lone_url: str) -> None:
    """Their entries stay while somebody keeps a snapshot. A process that looks for the first time walks them."""
    mark = DueMark(monotonic=float, roll=float)
    first = mark.begin(pages)
    async with administrator(lone_url) as admin:
        await admin.execute("create table outlast.kept as select * from outlast.wait")
        await admin.execute("delete from outlast.wait")
    await pages.tidy()
    async with _snapshot(lone_url), administrator(lone_url) as admin:
        await admin.execute(f"update outlast.kept set due_at = due_at - interval '{2 * SLEEPING} seconds'")
        await admin.execute("insert into outlast.wait select * from outlast.kept")
        await admin.execute("delete from outlast.wait")
        mark.learn(await admin.fetchval("select outlast.clock()"))
        assert await pages.of(waits.DUE_WAITS, 100, first) > 300
        assert await pages.of(waits.DUE_WAITS, 100, mark.begin(pages)) <= 10
        assert await pages.of(due._DUE, first, mark.begin(pages)) <= DUE


async def test_a_history_costs_its_own_rows(pages: Pages) -> None:
    run = await _one(pages, 77_777)
    assert await pages.of(run_view.HISTORY, run, run) <= 16
    nobody = uuid4()
    assert await pages.of(run_view.HISTORY, nobody, nobody) <= 8, "asked at the end of attempts that come again"


async def test_waking_costs_what_is_woken(pages: Pages) -> None:
    """Measured about 45 pages a run: its wait, token and envelope, its step, and where it might have been instead."""
    some = [await _one(pages, number) for number in range(50_000, 50_020)]
    assert await pages.of(waits.WAKE, some, ["w"] * 20) <= 20 * 60 + 40


async def test_an_emit_costs_what_it_wakes(pages: Pages) -> None:
    key = "default", "go", "77777"
    assert await pages.of(events.WAITERS, *key) <= 8
    event = await _one(pages, 1)
    assert await pages.of(events.EMIT, *key, event, "{}", None) <= 110
    nobody = "default", "go", "nobody"
    assert await pages.of(events.WAITERS, *nobody) <= 6


@pytest.mark.parametrize("verb", ALONE)
async def test_a_look_for_work_costs_what_it_did_without_any_run(pages: Pages, verb: str) -> None:
    assert await pages.of_idle_look(verb) <= 5


async def test_a_sweep_costs_nothing_for_runs_that_sleep_or_wait_for_an_event(pages: Pages) -> None:
    """One statement for all of them, so that an idle worker sends as many as without any."""
    assert await pages.of(waits.SWEEP, None, 1000) <= 4
    assert (await pages.meter.driver.sweep_waits()).next_after is None


async def test_a_sweep_costs_the_calls_that_it_looks_at(pages: Pages, lone_url: str) -> None:
    """Of a call: its index entry and row, where its child might have ended or be, and whether its run is suspended."""
    async with administrator(lone_url) as admin:
        await admin.execute(
            "update outlast.wait set kind = 4, child_id = gen_random_uuid(), due_at = null, event = null"
            " where job_id = any(array(select id from outlast.pile where i <= 1000))"
        )
    assert await pages.of(waits.SWEEP, None, 100) <= 100 * 12 + 20


async def test_a_look_for_a_circle_costs_the_runs_above_the_caller(pages: Pages, lone_url: str) -> None:
    """Of each: the index entry and row of its call, and whether it has ended. Most callers have nobody above them."""
    async with administrator(lone_url) as admin:
        await admin.execute(
            "update outlast.wait w set kind = 4, due_at = null, event = null, child_id = c.id"
            " from outlast.pile p join outlast.pile c on c.i = p.i + 1 where p.id = w.job_id and p.i <= 100"
        )
    last, nobody = await _one(pages, 101), await _one(pages, 5000)
    assert await pages.of(call_cycle.CALLERS_ABOVE, last) <= 100 * 12 + 20
    assert await pages.of(call_cycle.CALLERS_ABOVE, nobody) <= 6


async def test_recording_a_step_costs_the_same_beside_many(pages: Pages) -> None:
    """A claim locked, a step and its index entry, the envelope and the worker looked up."""
    await pages.meter.enqueue(1)
    (claimed,) = await pages.meter.claim(pages.worker, 1)
    token = claimed.token
    step = NewStep("s", StepKind.RUN, Place(MAIN_BRANCH, 0), "1")
    assert await pages.of(steps.RECORD, *steps.columns_of([steps.Recording(token, step)])) <= 40
    fence = token.job_id, token.fence, token.claim_no, token.worker_id
    assert await pages.of(suspend.FENCE, *fence, ["s"]) <= 30

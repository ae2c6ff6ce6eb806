"""A run of every kind of step, hit at a boundary between two statements: it completes, and no recorded step is redone.

Which boundary, and what happens there, is the seed's: its worker is killed, frozen for longer than its lease, or cut
off from the database, before the statement arrives there or before its answer comes back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

import pytest

from app.cli.devdb import DevPostgres
from app.domain.event import EventId, NewEvent
from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.faults.history import audit, check
from tests.faults.runs import Recorded, Worked, check_steps, done_more_than_once, step_once
from tests.faults.statements import RUNNING
from tests.support.jobs_runs import BOOKING, EVENT, RESULT, STEPS
from tests.support.postgres import migrate
from tests.support.processes import LEASE, Fleet, Service, eventually, fleet_on, report
from tests.support.proxy import Held, Proxy, proxy_to
from tests.support.store import Store, store_on

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(300)]

_QUICK, _LONG, _AT_ONCE = 25, 500, 5
_BOUNDARIES = 26  # statements of a whole run that is not disturbed, and a few that come in between
SEEDS = [
    *(range(first, first + _AT_ONCE) for first in range(0, _QUICK, _AT_ONCE)),
    *(
        pytest.param(range(first, first + _AT_ONCE), marks=pytest.mark.soak)
        for first in range(_QUICK, _QUICK + _LONG, _AT_ONCE)
    ),
]
RESTARTED = [*range(2), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))]
_WAYS = ("kill", "kill", "freeze", "cut")


@dataclass(eq=False, kw_only=True)
class Boundary(Held):
    """Catches one statement of runs, whatever it is, after so many others of them."""

    passes: int

    def wants(self, sql: str, *, is_reply: bool) -> bool:
        """Say whether this is the one."""
        if self.times <= 0 or self.is_reply != is_reply or not any(marker in sql for marker in RUNNING):
            return False
        self.passes -= 1
        return self.passes < 0


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"seeds{seeds[0]}-{seeds[-1]}")
async def test_a_run_that_is_hit_anywhere_completes_and_redoes_no_recorded_step(
    fleet: Fleet, store: Store, seeds: range
) -> None:
    """P31 and P55 among them: between two steps, and in a gather that another worker goes on with.

    One run after the other: whoever goes on with one is who is hit in the next.
    """
    await store.fetch(BOOKING)
    jobs: list[JobId] = []
    frozen: set[int] = set()
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        worker = await fleet.worker("--concurrency", "4", OUTLAST_DATABASE_URL=proxy.url).ready()
        for seed in seeds:
            dice = random.Random(seed)
            boundary = _boundary(proxy, seed, dice)
            jobs.append(await store.enqueue("runs.whole"))
            async with _emitting(store, jobs[-1], dice):
                if await _is_hit(store, jobs[-1], boundary):
                    way = dice.choice(_WAYS)
                    when = "after" if boundary.is_reply else "before"
                    report(f"seed {seed}: {way} {when} statement {seed % _BOUNDARIES}")
                    victim, worker = worker, _hit(fleet, proxy, worker, boundary, way)
                    hit_at = fleet.ledger.record("hit", way)
                    await store.until(jobs[-1], within=90)
                    if way == "freeze":
                        frozen.add(victim.pid)
                        await _lease_passes(fleet, hit_at)
                        victim.resume()
                        await _knows(victim)
                        victim.kill()
            boundary.release()
        await _is_right(fleet, store, jobs, frozen=frozen)


async def _lease_passes(fleet: Fleet, since: float) -> None:
    await eventually(lambda: fleet.ledger.record("wait") - since >= 1.5 * LEASE, "the zombie's lease passes")


async def _knows(victim: Service) -> None:
    await eventually(lambda: victim.said("worker.lease_over") != [], "the zombie knows")


def _boundary(proxy: Proxy, number: int, dice: random.Random) -> Boundary:
    rule = Boundary(marker="", is_reply=dice.random() < 0.5, times=1, passes=number % _BOUNDARIES)
    proxy._rules.append(rule)
    return rule


async def _is_hit(store: Store, job_id: JobId, boundary: Boundary) -> bool:
    """Wait for the boundary; False when the run has ended before it."""

    async def either() -> bool:
        return boundary.caught.is_set() or await store.state(job_id) is State.DONE

    await eventually(either, "the run comes to the boundary, or to its end", within=90)
    return boundary.caught.is_set()


def _hit(fleet: Fleet, proxy: Proxy, worker: Service, boundary: Boundary, way: str) -> Service:
    """Do it to the worker at the boundary, and give who goes on."""
    if way == "cut":
        boundary.lose()
        return worker
    if way == "kill":
        worker.kill()
        boundary.lose()
    else:
        worker.stop()
        boundary.release()
    return fleet.worker("--concurrency", "4", OUTLAST_DATABASE_URL=proxy.url)


@asynccontextmanager
async def _emitting(store: Store, job_id: JobId, dice: random.Random) -> AsyncIterator[None]:
    """Emit what the run waits for, twice, at any time: before, while and after it begins to wait."""

    async def emit() -> None:
        await asyncio.sleep(dice.choice((0.0, 0.2, 0.5, 1.0)))
        for by in ("ann", "bob"):
            event = NewEvent(
                id=EventId(uuid4()), tenant="default", name=EVENT, key=str(job_id), payload=f'{{"by":"{by}"}}'
            )
            await store.driver.emit(event)

    async with asyncio.TaskGroup() as group:
        group.create_task(emit())
        yield


async def _is_right(fleet: Fleet, store: Store, jobs: list[JobId], *, frozen: Collection[int] = ()) -> None:
    """Hold every run to its result, its steps to being done once, and the history to its rules."""
    for job_id in jobs:
        view = await store.view(job_id)
        assert (view.state, view.result) == (State.DONE, RESULT)
        assert OutcomeKind.RETRIED not in [one.outcome for one in await store.attempts(job_id)]
        assert view.counters.attempt == 1, "nothing that was done to it is its own failure"
        steps = await store.fetch("select name from outlast.step where run_id = $1", job_id)
        assert sorted(row[0] for row in steps) == sorted(STEPS)
        booked = await store.fetch("select claim_no from booking where job_id = $1", job_id)
        assert len(booked) == 1, "a transaction's writes are there once, with its record"
        assert await store.fetch("select from outlast.wait where job_id = $1", job_id) == []
        children = await store.fetch("select id from outlast.job where parent_id = $1", job_id)
        assert len(children) == 2
    events = fleet.ledger.events()
    await check_steps(store, events, frozen=frozen)
    await check(store, events, acked=jobs)
    report(f"{done_more_than_once(events)} steps were done again, their records lost")


@pytest.mark.parametrize("turn", RESTARTED)
async def test_runs_outlive_restarts_of_the_database(fleet_of_own: tuple[Fleet, DevPostgres], turn: int) -> None:
    fleet, server = fleet_of_own
    dice = random.Random(turn)
    async with store_on(fleet.url) as store:
        await audit(store)
        await store.fetch(BOOKING)
        workers = [await fleet.worker("--concurrency", "4").ready() for _ in range(2)]
        jobs = [await store.enqueue("runs.whole") for _ in range(6)]
        modes: tuple[Literal["fast", "immediate"], ...] = ("immediate", "fast", "immediate")
        for mode in dice.sample(modes, 2):
            await asyncio.sleep(dice.random())
            await asyncio.to_thread(server.stop, mode)
            await asyncio.to_thread(server.start)
    async with store_on(fleet.url) as store:
        for job_id in jobs:
            async with _emitting(store, job_id, dice):
                pass
        await store.all_until(jobs, within=90)
        await _is_right(fleet, store, jobs)
        assert [worker.code for worker in workers] == [None, None]


@pytest.fixture
async def fleet_of_own(own_postgres: DevPostgres, folder: Path) -> AsyncIterator[tuple[Fleet, DevPostgres]]:
    """Processes on a server that a test may stop."""
    url = own_postgres.dsn()
    await migrate(url)
    with fleet_on(url, folder) as fleet:
        yield fleet, own_postgres


# --- the rule itself --------------------------------------------------------------------------------------------------

_RECORD = Recorded(run="r", step="s", claim_no=2, at=10.0)


def _work(claim_no: int, at: float, pid: int = 1) -> Worked:
    return Worked(run="r", step="s", claim_no=claim_no, at=at, pid=pid)


def test_the_rule_lets_pass_what_was_done_again_because_its_record_was_lost() -> None:
    step_once([_RECORD], [_work(1, 8.0), _work(2, 9.0)])
    step_once([_RECORD], [_work(2, 9.0), _work(1, 11.0, pid=7)], frozen={7})
    step_once([], [_work(1, 8.0)])


@pytest.mark.parametrize(
    ("recorded", "worked", "says"),
    [
        ([_RECORD, _RECORD], [], "recorded twice"),
        ([_RECORD], [_work(2, 8.0), _work(2, 9.0)], "twice in one attempt"),
        ([_RECORD], [_work(2, 9.0), _work(3, 9.5)], "done again"),
        ([_RECORD], [_work(2, 9.0), _work(1, 11.0)], "after its record"),
    ],
)
def test_the_rule_finds_what_is_done_once_too_often(recorded: list[Recorded], worked: list[Worked], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        step_once(recorded, worked)

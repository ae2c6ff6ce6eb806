"""A run of every kind of step, hit at boundaries between two statements: it completes, no recorded step is redone.

Which boundaries, and what happens there, is the seed's. The database restarts in every run. Before it or after it, the
run's worker is killed, frozen for longer than its lease, or cut off from the database, before the statement arrives
there or before its answer comes back; and in some runs whoever goes on with it is hit once more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import uuid4

import pytest

from app.cli.devdb import DevPostgres
from app.domain.errors import DriverUnavailable
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
RESTARTED = [
    *(pytest.param(seed, marks=[pytest.mark.long] * seed) for seed in range(2)),
    *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20)),
]
_WAYS = ("kill", "kill", "freeze", "cut")
_RESTARTS = 12  # statements that every run has, whatever is done to it
_HALF = 0.5


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


@dataclass(frozen=True, kw_only=True)
class Hit:
    """What happens to a run: how, and at which statement, counted from the hit before it; its reply or its call."""

    way: str
    passes: int
    is_reply: bool


def hits_of(seed: int, dice: random.Random) -> list[Hit]:
    """Draw what happens to the run of a seed: a restart of the database, an accident of its worker, and maybe another.

    Accidents come to every statement of a run, seed by seed; the restart to one that every run has.
    """
    at = {"restart": dice.randrange(_RESTARTS), dice.choice(_WAYS): seed % _BOUNDARIES}
    hits: list[Hit] = []
    before = 0
    for way, number in sorted(at.items(), key=lambda hit: hit[1]):
        hits.append(Hit(way=way, passes=number - before, is_reply=dice.random() < _HALF))
        before = number
    if dice.random() < _HALF:
        hits.append(Hit(way=dice.choice(_WAYS), passes=dice.randrange(_RESTARTS), is_reply=dice.random() < _HALF))
    return hits


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"seeds{seeds[0]}-{seeds[-1]}")
async def test_a_run_that_is_hit_anywhere_completes_and_redoes_no_recorded_step(
    fleet_of_own: tuple[Fleet, DevPostgres], seeds: range
) -> None:
    """P31 and P55 among them: between two steps, and in a gather that another worker goes on with.

    One run after the other: whoever goes on with one is who is hit in the next.
    """
    fleet, server = fleet_of_own
    jobs: list[JobId] = []
    frozen: set[int] = set()
    async with store_on(fleet.url) as store, proxy_to(fleet.url, fleet.folder) as proxy:
        await audit(store)
        await store.fetch(BOOKING)
        worker = await fleet.worker("--concurrency", "4", OUTLAST_DATABASE_URL=proxy.url).ready()
        for seed in seeds:
            dice = random.Random(seed)
            hits = hits_of(seed, dice)
            boundary = _boundary(proxy, hits[0])
            jobs.append(await store.enqueue("runs.whole"))
            zombies: list[Zombie] = []
            done: list[str] = []
            async with _emitting(store, jobs[-1], dice):
                for number, hit in enumerate(hits):
                    if number > 0:
                        boundary = _boundary(proxy, hit)
                    if not await _is_hit(store, jobs[-1], boundary):
                        boundary.release()
                        break
                    done.append(hit.way)
                    report(f"seed {seed}: {hit.way} {'after' if hit.is_reply else 'before'} statement {hit.passes}")
                    victim, worker = worker, await _hit(fleet, server, proxy, worker, boundary, hit.way)
                    if hit.way == "freeze":
                        zombies.append(Zombie(victim, fleet.ledger.record("hit", hit.way), _has_lease(victim)))
                await store.until(jobs[-1], within=90)
            assert "restart" in done, "every run is there when its database restarts"
            for zombie in zombies:
                frozen.add(zombie.worker.pid)
                await _wakes(fleet, zombie)
        await _is_right(fleet, store, jobs, frozen=frozen)


class Zombie(NamedTuple):
    """A worker that was frozen, when, and whether it had a lease by then: one that was just starting has none."""

    worker: Service
    since: float
    has_lease: bool


def _has_lease(worker: Service) -> bool:
    return worker.said("worker.started") != []


async def _wakes(fleet: Fleet, zombie: Zombie) -> None:
    """Have a zombie go on once its lease has passed, see that it knows, and end it."""
    await eventually(lambda: fleet.ledger.record("wait") - zombie.since >= 1.5 * LEASE, "the zombie's lease passes")
    zombie.worker.resume()
    if zombie.has_lease:
        await eventually(lambda: zombie.worker.said("worker.lease_over") != [], "the zombie knows")
    zombie.worker.kill()


def _boundary(proxy: Proxy, hit: Hit) -> Boundary:
    rule = Boundary(marker="", is_reply=hit.is_reply, times=1, passes=hit.passes)
    proxy._rules.append(rule)
    return rule


async def _is_hit(store: Store, job_id: JobId, boundary: Boundary) -> bool:
    """Wait for the boundary; False when the run has ended before it."""

    async def either() -> bool:
        return boundary.caught.is_set() or await store.state(job_id) is State.DONE

    await eventually(either, "the run comes to the boundary, or to its end", within=90)
    return boundary.caught.is_set()


async def _hit(
    fleet: Fleet, server: DevPostgres, proxy: Proxy, worker: Service, boundary: Boundary, way: str
) -> Service:
    """Do it to the worker, or to the database, at the boundary, and give who goes on."""
    if way == "restart":
        await asyncio.to_thread(server.restart, "immediate" if boundary.is_reply else "fast")
        boundary.lose()
        return worker
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
            await _again(partial(store.driver.emit, event))

    async with asyncio.TaskGroup() as group:
        group.create_task(emit())
        yield


async def _again(call: Callable[[], Awaitable[object]]) -> None:
    """Make a call that is harmless to repeat until the database is there."""
    while True:
        try:
            await call()
        except DriverUnavailable:
            await asyncio.sleep(0.05)
        else:
            return


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


def test_what_happens_to_a_run_is_its_seeds_and_some_workers_are_hit_twice() -> None:
    drawn = {seed: hits_of(seed, random.Random(seed)) for seed in range(_QUICK)}
    assert drawn == {seed: hits_of(seed, random.Random(seed)) for seed in range(_QUICK)}
    ways = [[hit.way for hit in hits] for hits in drawn.values()]
    assert all(one.count("restart") == 1 for one in ways)
    assert ["restart", "kill", "freeze"] in ways
    assert len([one for one in ways if len(one) > _HALF * 4]) >= _QUICK // 4


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

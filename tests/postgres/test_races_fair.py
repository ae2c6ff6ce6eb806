"""Admissions of a fair queue side by side: no job twice, none forgotten, turns that never go back, nobody waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.domain.job import JobId, WorkerId
from app.domain.limit import Admitted
from app.domain.outcome import Completed
from app.domain.queue import QueueChange
from app.drivers.postgres.gate_free import decide_free
from tests.conformance.gated import admit, ids, limited, request
from tests.postgres.arena import Arena, Seat, Started
from tests.support.drivers import LEASE, QUEUE, new_job

pytestmark = pytest.mark.postgres

_TURNS = "select tenant, starts, started, finish from outlast.turn where queue = $1 order by tenant"
# The row of a running job, which an admission of it waits to insert.
_BRAKE = """
insert into outlast.running(job_id, seq, worker, queue, rank, name_id, attempt, claim_no, crashes, interrupts)
select job_id, 0, 0, queue, rank, name_id, 0, 0, 0, 0 from outlast.gate where job_id = $1"""


async def look(seat: Seat, worker: WorkerId, room: int) -> Admitted:
    return await seat.driver.admit(request(worker, room=room))


async def lined(arena: Arena, **counts: int) -> tuple[WorkerId, dict[str, list[JobId]]]:
    """Give a worker of a fair queue, and the jobs that wait there, by tenant."""
    await arena.driver.set_queue(QUEUE, QueueChange(is_fair=True))
    worker = await arena.register()
    waiting = {}
    for tenant, count in counts.items():
        jobs = [new_job(tenant=tenant) for _ in range(count)]
        waiting[tenant] = [answer.id for answer in await arena.driver.enqueue_many(jobs)]
    return worker, waiting


async def held_up(arena: Arena, brake: Seat, worker: WorkerId, job_id: JobId, *, room: int) -> Started[Admitted]:
    """Give an admission that has decided, and stands still before its commit until the brake is taken off."""
    await brake.connection.execute(_BRAKE, job_id)
    started = await arena.start(lambda seat: look(seat, worker, room))
    await started.is_blocked_by(brake)
    return started


async def turns(arena: Arena) -> dict[str, tuple[int, float, float]]:
    """Give how many starts each tenant had, when the last began, and when it ends."""
    rows = await arena.fetch(_TURNS, QUEUE)
    return {tenant: (starts, started, finish) for tenant, starts, started, finish in rows}


async def test_two_admissions_share_what_waits_and_neither_waits_for_the_other(arena: Arena) -> None:
    worker, waiting = await lined(arena, a=4, b=4)
    async with arena.holding() as brake:
        one = await held_up(arena, brake, worker, waiting["a"][0], room=4)
        second = await arena.at_once(lambda seat: look(seat, worker, 2))
        await brake.rollback()
        first = await one.result()
    assert ids(first.jobs) == [waiting["a"][0], waiting["b"][0], waiting["a"][1], waiting["b"][1]]
    assert ids(second.jobs) == [waiting["a"][2], waiting["b"][2]]
    assert ids(await admit(arena, worker)) == [waiting["a"][3], waiting["b"][3]]


async def test_beside_a_job_with_a_key_two_admissions_share_what_has_none(arena: Arena) -> None:
    """The first keeps as many in its hands as it has room for, and leaves one of them where it is."""
    worker, waiting = await lined(arena, a=4, b=4)
    (keyed,) = await limited(arena, tenant="c")
    async with arena.holding() as brake:
        one = await held_up(arena, brake, worker, waiting["a"][0], room=4)
        second = await arena.at_once(lambda seat: look(seat, worker, 2))
        await brake.rollback()
        first = await one.result()
    assert ids(first.jobs) == [waiting["a"][0], waiting["b"][0], keyed, waiting["a"][1]]
    assert [job.has_slots for job in first.jobs] == [False, False, True, False]
    assert ids(second.jobs) == [waiting["a"][2], waiting["b"][2]]
    assert set(ids(await admit(arena, worker))) == {waiting["b"][1], waiting["a"][3], waiting["b"][3]}


@pytest.mark.parametrize("what", ["pause", "limit", "lease"])
async def test_what_is_held_back_between_look_and_admission_stays_and_has_no_turn(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    worker, waiting = await lined(arena, a=1, b=1)
    meanwhile: dict[str, Callable[[], Awaitable[object]]] = {
        "pause": lambda: arena.driver.pause_queue(QUEUE, by="ops"),
        "limit": lambda: arena.driver.set_queue(QUEUE, QueueChange(concurrency=1)),
        "lease": lambda: arena.advance(LEASE),
    }

    async def late(*given: Any) -> object:
        await meanwhile[what]()
        return await decide_free(*given)

    monkeypatch.setattr("app.drivers.postgres.gate.decide_free", late)
    admitted = await arena.driver.admit(request(worker))
    assert (admitted.jobs, admitted.is_contended) == ((), True)
    assert await turns(arena) == {}
    assert [await arena.bucket(job_id) for jobs in waiting.values() for job_id in jobs] == ["gate", "gate"]


async def test_what_one_admission_takes_back_the_next_one_finds(arena: Arena) -> None:
    worker, waiting = await lined(arena, a=1, b=1)
    async with arena.holding() as one:
        assert len((await look(one, worker, 4)).jobs) == 2
        passed = await arena.at_once(lambda seat: look(seat, worker, 4))
        assert (passed.jobs, passed.is_contended) == ((), True)
        await one.rollback()
    assert ids(await admit(arena, worker)) == [*waiting["a"], *waiting["b"]]
    assert await turns(arena) == {"a": (1, 0.0, 1.0), "b": (1, 0.0, 1.0)}


async def test_a_job_that_is_cancelled_under_an_admission_moves_nobodys_turn(arena: Arena) -> None:
    worker, waiting = await lined(arena, a=1, b=1)
    async with arena.holding() as one:
        await one.driver.cancel(waiting["a"][0], reason="changed my mind")
        assert ids((await arena.at_once(lambda seat: look(seat, worker, 4))).jobs) == waiting["b"]
        await one.commit()
    assert await turns(arena) == {"b": (1, 0.0, 1.0)}


async def test_turns_only_ever_go_on(arena: Arena) -> None:
    """Those of two admissions that saw the same time are counted both."""
    worker, waiting = await lined(arena, a=9, b=1)
    async with arena.holding() as brake:
        one = await held_up(arena, brake, worker, waiting["b"][0], room=3)
        assert ids((await arena.at_once(lambda seat: look(seat, worker, 3))).jobs) == waiting["a"][2:5]
        assert await turns(arena) == {"a": (3, 2.0, 3.0)}
        await brake.rollback()
        assert len((await one.result()).jobs) == 3
    assert await turns(arena) == {"a": (5, 4.0, 5.0), "b": (1, 0.0, 1.0)}
    before = await turns(arena)
    await arena.driver.enqueue(new_job(tenant="b"))
    for job in await admit(arena, worker, room=2):
        await arena.close_attempt(job.token, Completed())
    after = await turns(arena)
    assert after == {"a": (6, 5.0, 6.0), "b": (2, 4.0, 5.0)}
    assert all(after[tenant] >= before[tenant] for tenant in before)


async def test_an_enqueue_that_had_not_seen_the_queue_become_fair_is_lined_up_later(arena: Arena) -> None:
    worker = await arena.register()
    async with arena.holding() as one:
        await one.driver.enqueue_many([new_job(tenant="a"), new_job(tenant="a")])
        await arena.at_once(lambda seat: seat.driver.set_queue(QUEUE, QueueChange(is_fair=True)))
        await one.commit()
    assert (await arena.driver.due()).must_line_up
    assert await arena.driver.line_up() == 2
    assert not (await arena.driver.due()).must_line_up
    await arena.driver.enqueue(new_job(tenant="b"))
    assert [job.tenant for job in await admit(arena, worker)] == ["a", "b", "a"]


async def test_a_job_that_somebody_has_in_hands_is_lined_up_the_next_time(arena: Arena) -> None:
    worker = await arena.register()
    job_ids = [await arena.enqueue(tenant="a") for _ in range(2)]
    async with arena.holding() as one:
        claimed = await one.claim(worker, room=1)
        await arena.at_once(lambda seat: seat.driver.set_queue(QUEUE, QueueChange(is_fair=True)))
        await one.rollback()
    assert ids(claimed) == job_ids[:1]
    assert await arena.driver.line_up() == 1
    assert await arena.claim(worker) == ()
    assert ids(await admit(arena, worker)) == job_ids

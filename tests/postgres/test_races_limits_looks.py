"""What happens between an admission's look and its decision: nothing is stored that did not come true."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from app.domain.outcome import Completed
from app.drivers.postgres import gate
from tests.conformance.gated import RATED, admit, admit_one, declare, held_by, ids, limited, request
from tests.postgres.arena import Arena
from tests.postgres.test_races_limits import known_key, look
from tests.support.drivers import LEASE, QUEUE

pytestmark = pytest.mark.postgres


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], Awaitable[object]]], None]:
    """Give what does something once, before a function of the next admission."""

    def once(name: str, what: Callable[[], Awaitable[object]]) -> None:
        real, left = getattr(gate, name), [what]

        async def late(*given: object) -> object:
            if left:
                await left.pop()()
            return await real(*given)

        monkeypatch.setattr(gate, name, late)

    return once


Between = Callable[[str, Callable[[], Awaitable[object]]], None]


async def test_a_job_that_is_cancelled_meanwhile_uses_up_no_room(arena: Arena) -> None:
    worker, first, second = await known_key(arena)
    async with arena.holding() as operator:
        await operator.driver.cancel(first, reason="stop")
        assert ids((await arena.at_once(lambda seat: look(seat, worker))).jobs) == [second]
        await operator.commit()
    assert await held_by(arena) == [second]


async def test_a_job_that_has_come_and_gone_since_the_look_parks_nobody(arena: Arena, between: Between) -> None:
    worker, _, second = await known_key(arena)

    async def other() -> None:
        held = await admit_one(arena, worker)
        await arena.close_attempt(held.token, Completed())
        await arena.driver.free_slots((held.token,))

    between("_decide", other)
    assert ids(await admit(arena, worker)) == [second]


async def test_a_rate_loses_no_start_to_a_look_that_is_out_of_date(arena: Arena, between: Between) -> None:
    await declare(arena, None, rate=(10, timedelta(hours=1)))
    worker = await arena.register(lease_ms=3_600_000)
    await limited(arena, 10, limits=[RATED])

    async def other() -> None:
        assert len((await arena.driver.admit(request(worker, room=5))).jobs) == 5

    between("_decide", other)
    assert len((await arena.driver.admit(request(worker, room=5))).jobs) == 5


async def test_a_pause_between_decision_and_admission_parks_nobody(arena: Arena, between: Between) -> None:
    worker, first, second = await known_key(arena)
    between("_take", lambda: arena.driver.pause_queue(QUEUE, by="ops"))
    assert (await arena.driver.admit(request(worker))).jobs == ()
    assert await arena.fetch("select from outlast.gate where parked is not null") == []
    await arena.driver.resume_queue(QUEUE)
    assert ids(await admit(arena, worker)) == [first]
    assert await arena.bucket(second) == "gate"


async def test_a_lease_that_ends_before_the_admission_parks_nobody(arena: Arena, between: Between) -> None:
    worker, first, _ = await known_key(arena)
    between("_take", lambda: arena.advance(LEASE))
    assert (await arena.driver.admit(request(worker))).jobs == ()
    assert await arena.fetch("select from outlast.gate where parked is not null") == []
    assert ids(await admit(arena, await arena.register())) == [first]


async def test_a_rate_loses_no_start_to_a_pause(arena: Arena, between: Between) -> None:
    await declare(arena, None, rate=(2, timedelta(hours=1)))
    worker = await arena.register(lease_ms=3_600_000)
    jobs = await limited(arena, 2, limits=[RATED])
    between("_take", lambda: arena.driver.pause_queue(QUEUE, by="ops"))
    assert (await arena.driver.admit(request(worker))).jobs == ()
    await arena.driver.resume_queue(QUEUE)
    assert ids(await admit(arena, worker)) == jobs

"""Runs that close a circle of calls together: the one that commits second sees the first, and is refused."""

from __future__ import annotations

import pytest

from app.domain.job import ClaimedJob
from app.domain.outcome import SettleAnswer
from app.domain.step_errors import CallCycle
from tests.conformance.runs import a_call, a_child, a_sleep, enlist
from tests.postgres.arena import Arena
from tests.postgres.test_races_runs import suspend
from tests.support.drivers import NAME, DriverEnv

pytestmark = pytest.mark.postgres


async def calls(env: DriverEnv, held: ClaimedJob, key: str) -> SettleAnswer:
    return await suspend(env, held, a_call(a_child(held, NAME, key=key)))


async def running(arena: Arena, *keys: str) -> list[ClaimedJob]:
    """Give a running job of each key."""
    worker = await enlist(arena)
    return [await arena.running(worker, key=key) for key in keys]


async def test_of_two_that_call_each_other_the_second_is_refused(arena: Arena) -> None:
    one, other = await running(arena, "one", "other")
    async with arena.holding() as first:
        assert await calls(first, one, "other") is SettleAnswer.SETTLED
        second = await arena.start(lambda seat: calls(seat, other, "one"))
        await second.is_blocked_by(first)
        await first.commit()
    with pytest.raises(CallCycle) as refused:
        await second.result()
    assert refused.value.details["cycle"] == [str(one.token.job_id), str(other.token.job_id)]
    assert [await arena.bucket(held.token.job_id) for held in (one, other)] == ["suspended", "running"]


async def test_of_two_that_call_each_other_the_second_waits_when_the_first_rolls_back(arena: Arena) -> None:
    one, other = await running(arena, "one", "other")
    async with arena.holding() as first:
        await calls(first, one, "other")
        second = await arena.start(lambda seat: calls(seat, other, "one"))
        await second.is_blocked_by(first)
        await first.rollback()
    assert await second.result() is SettleAnswer.SETTLED
    with pytest.raises(CallCycle):
        await calls(arena, one, "other")


async def test_two_that_have_no_job_in_common_close_no_circle_of_four(arena: Arena) -> None:
    """a waits for b and c for d; now b calls c while d calls a: neither names a job that the other does."""
    a, b, c, d = await running(arena, "a", "b", "c", "d")
    await calls(arena, a, "b")
    await calls(arena, c, "d")
    async with arena.holding() as first:
        assert await calls(first, b, "c") is SettleAnswer.SETTLED
        second = await arena.start(lambda seat: calls(seat, d, "a"))
        await second.is_blocked_by(first)
        await first.commit()
    with pytest.raises(CallCycle) as refused:
        await second.result()
    assert refused.value.details["cycle"] == [str(one.token.job_id) for one in (a, b, c, d)]


async def test_a_call_of_a_new_child_waits_for_no_other(arena: Arena) -> None:
    one, other = await running(arena, "one", "other")
    await arena.enqueue(key="there")
    async with arena.holding() as first:
        assert await calls(first, one, "there") is SettleAnswer.SETTLED
        assert await arena.at_once(lambda seat: suspend(seat, other, a_call(a_child(other)), a_sleep(number=1)))
        await first.commit()

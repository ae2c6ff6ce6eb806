"""The short settle, for batches of nothing but ends of jobs without keys: the fence and the effect of the long one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import pytest

from app.domain.job import ClaimToken
from app.domain.outcome import Completed, Interrupted, SettleAnswer, Settlement
from app.drivers.postgres.settle import as_sent
from tests.postgres.arena import Arena
from tests.postgres.meter import asks
from tests.support.drivers import LEASE, new_job, with_token

pytestmark = pytest.mark.postgres

Settle: TypeAlias = Callable[[Arena, Sequence[Settlement]], Coroutine[Any, Any, Sequence[SettleAnswer]]]


async def alone(arena: Arena, settlements: Sequence[Settlement]) -> Sequence[SettleAnswer]:
    return await arena.driver.settle(settlements)


async def beside_a_claim(arena: Arena, settlements: Sequence[Settlement]) -> Sequence[SettleAnswer]:
    answers, claimed = await arena.driver.settle_and_claim(settlements, asks(await arena.register(), 5))
    assert claimed == ()
    return answers


async def beside_a_claim_from_two_queues(arena: Arena, settlements: Sequence[Settlement]) -> Sequence[SettleAnswer]:
    request = asks(await arena.register(), 5, "default", "other")
    answers, claimed = await arena.driver.settle_and_claim(settlements, request)
    assert claimed == ()
    return answers


ways = pytest.mark.parametrize("settle", [alone, beside_a_claim, beside_a_claim_from_two_queues])


def done(token: ClaimToken, result: str | None = None, *, late: bool = False) -> Settlement:
    return Settlement(token, Completed(result=result, late=late), is_keyed=False)


async def running(arena: Arena) -> list[Any]:
    return await arena.fetch("select * from outlast.running order by job_id")


@ways
@pytest.mark.parametrize("part", ["fence", "lower fence", "claim_no", "worker_id", "job_id"])
async def test_a_token_wrong_in_one_part_settles_nothing(arena: Arena, settle: Settle, part: str) -> None:
    worker, other = await arena.register(), await arena.register()
    token, beside = (await arena.running(worker)).token, (await arena.running(worker)).token
    wrong: dict[str, object] = {
        "fence": token.fence + 1000,
        "lower fence": token.fence - 1,
        "claim_no": 2,
        "worker_id": other,
        "job_id": beside.job_id,
    }
    before = await running(arena)
    (answer,) = await settle(arena, [done(with_token(token, **{part.removeprefix("lower "): wrong[part]}))])
    assert answer is SettleAnswer.REAPED
    assert await running(arena) == before


@ways
async def test_two_tokens_with_swapped_sequences_settle_nothing(arena: Arena, settle: Settle) -> None:
    worker = await arena.register()
    one, two = (await arena.running(worker)).token, (await arena.running(worker)).token
    before = await running(arena)
    swapped = [done(with_token(one, fence=two.fence)), done(with_token(two, fence=one.fence))]
    assert list(await settle(arena, swapped)) == [SettleAnswer.REAPED] * 2
    assert await running(arena) == before


@ways
async def test_after_the_lease_nothing_is_settled(arena: Arena, settle: Settle) -> None:
    token = (await arena.running()).token
    await arena.advance(LEASE)
    before = await running(arena)
    assert list(await settle(arena, [done(token)])) == [SettleAnswer.REAPED]
    assert await running(arena) == before


@ways
@pytest.mark.parametrize("mark", ["lost_at", "closed_at"])
async def test_a_worker_that_is_out_settles_nothing(arena: Arena, settle: Settle, mark: str) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    await arena.execute(f"update outlast.worker set {mark} = outlast.clock() where id = {worker}")
    assert list(await settle(arena, [done(token)])) == [SettleAnswer.REAPED]
    assert await arena.bucket(token.job_id) == "running"


@ways
async def test_each_attempt_gets_its_own_result_and_one_that_is_gone_leaves_the_others(
    arena: Arena, settle: Settle
) -> None:
    worker = await arena.register()
    jobs = [new_job() for _ in range(30)]
    await arena.driver.enqueue_many(jobs)
    tokens = sorted((held.token for held in await arena.claim(worker, room=30)), key=lambda each: each.job_id.int % 7)
    gone = tokens[11]
    await arena.driver.cancel(gone.job_id, reason="no")
    answers = await settle(arena, [done(token, f'"{token.job_id}"', late=token is tokens[3]) for token in tokens])
    assert [answer is SettleAnswer.SETTLED for answer in answers] == [token is not gone for token in tokens]
    assert answers[11] is SettleAnswer.CANCELLED
    for token in tokens:
        view = await arena.describe(token.job_id)
        assert (view.result, view.late) == (
            (None, False) if token is gone else (f'"{token.job_id}"', token is tokens[3])
        )


async def test_both_statements_leave_the_same_behind(arena: Arena) -> None:
    worker = await arena.register()
    short, long = (await arena.running(worker)).token, (await arena.running(worker)).token
    ends = (done(short, "1", late=True), Settlement(long, Completed(result="1", late=True)))
    for end in ends:
        assert await arena.driver.settle([end]) == (SettleAnswer.SETTLED,)
    same = (
        "attempt, claim_no, crashes, interrupts, state, worker, result, reason, late, seq = $2, started_at is not null"
    )
    left = [
        await arena.fetch(f"select {same} from outlast.finished where job_id = $1", token.job_id, token.fence)
        for token in (short, long)
    ]
    assert left[0] == left[1]
    for table in ("ready", "waiting", "running", "held", "attempt"):
        assert await arena.fetch(f"select from outlast.{table}") == []


async def test_a_key_is_freed_unless_it_is_known_that_there_is_none(arena: Arena) -> None:
    held = await arena.running(key="k")
    assert held.key == "k"
    assert await arena.driver.settle([Settlement(held.token, Completed())]) == (SettleAnswer.SETTLED,)
    assert await arena.fetch("select from outlast.live_key") == []


async def test_it_is_only_for_ends_of_one_worker_s_jobs_without_keys(arena: Arena) -> None:
    one, two = (await arena.running(await arena.register())).token, (await arena.running(await arena.register())).token
    assert as_sent([done(one), done(one)]).is_plain
    assert not as_sent([done(one), Settlement(one, Completed())]).is_plain
    assert not as_sent([done(one), Settlement(one, Interrupted(cause="drain"), is_keyed=False)]).is_plain
    both = sorted([done(one), done(two)], key=lambda each: each.token.fence)
    assert not as_sent(both).is_plain
    assert await arena.driver.settle(both) == (SettleAnswer.SETTLED,) * 2

"""Settle and claim in one statement, waiting behind somebody who has its claims: each half is judged by itself.

What it waits for is the settle's half, which comes first; the claim's waits for nobody and holds nothing meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.domain.job import ClaimedJob, ClaimToken, WorkerId
from app.domain.outcome import CancelVerdict, Completed, OutcomeKind, SettleAnswer, Settlement
from app.domain.state import State
from tests.postgres.arena import Arena, Seat
from tests.postgres.meter import asks
from tests.support.made import QUEUE

pytestmark = pytest.mark.postgres

Answer = tuple[tuple[SettleAnswer, ...], tuple[ClaimedJob, ...]]


async def fused(
    seat: Seat,
    worker: WorkerId,
    tokens: Sequence[ClaimToken],
    *,
    is_keyed: bool = True,
    queues: Sequence[str] = (QUEUE,),
) -> Answer:
    """Complete claims and take what is ready."""
    done = [Settlement(token, Completed(result='"fused"'), is_keyed) for token in tokens]
    return await seat.driver.settle_and_claim(done, asks(worker, 10, *queues))


async def holds(arena: Arena, worker: WorkerId, answer: Answer, waiting: Sequence[object]) -> None:
    """The claim's half came through: these very jobs, and no other, are the worker's now."""
    _, claimed = answer
    assert [one.token.job_id for one in claimed] == list(waiting)
    rows = await arena.fetch("select job_id, seq from outlast.running where worker = $1 order by seq", worker)
    assert [(row[0], row[1]) for row in rows] == [(one.token.job_id, one.token.fence) for one in claimed]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("queues", [(QUEUE,), (QUEUE, "other")], ids=["one queue", "several"])
@pytest.mark.parametrize("is_keyed", [True, False], ids=["keyed", "plain"])
async def test_a_fused_call_behind_a_cancel_claims_whatever_becomes_of_its_settle(
    arena: Arena, is_keyed: bool, queues: tuple[str, ...], commits: bool
) -> None:
    """In each of its four texts."""
    worker = await arena.register()
    key = "k" if is_keyed else None
    first, second = (await arena.running(worker, key=key)).token, (await arena.running(worker)).token
    waiting = [await arena.enqueue() for _ in range(2)]
    async with arena.holding() as canceller:
        assert await canceller.driver.cancel(first.job_id, reason="first") is CancelVerdict.SIGNALLED
        both = await arena.start(lambda seat: fused(seat, worker, [first, second], is_keyed=is_keyed, queues=queues))
        await both.is_blocked_by(canceller)
        free = await arena.fetch("select from outlast.ready for update skip locked")
        await (canceller.commit() if commits else canceller.rollback())
    assert len(free) == 2, "nothing is locked in the queue while it waits"
    answer = await both.result()
    assert answer[0] == (SettleAnswer.CANCELLED if commits else SettleAnswer.SETTLED, SettleAnswer.SETTLED)
    await holds(arena, worker, answer, waiting)
    states = [(await arena.describe(token.job_id)).state for token in (first, second)]
    assert states == [State.CANCELLED if commits else State.DONE, State.DONE]
    assert await arena.key_holder("k") is None


async def test_a_fused_call_behind_a_reapers_mark_leaves_the_reaper_what_it_took_and_the_next_what_it_claimed(
    arena: Arena,
) -> None:
    worker = await arena.register()
    first, second = (await arena.running(worker)).token, (await arena.running(worker)).token
    waiting = [await arena.enqueue() for _ in range(2)]
    # Held up at the first claim, it has judged the lease before it passed and meets the reaper at the second.
    async with arena.holding() as gate, arena.holding() as reaper:
        await gate.connection.execute("select from outlast.running where job_id = $1 for update", first.job_id)
        both = await arena.start(lambda seat: fused(seat, worker, [first, second]))
        await both.is_blocked_by(gate)
        await arena.vanish()
        (reaped,) = await reaper.driver.reap()
        await gate.rollback()
        await both.is_blocked_by(reaper)
        await reaper.commit()
    answer = await both.result()
    assert answer[0] == (SettleAnswer.SETTLED, SettleAnswer.REAPED)
    assert (reaped.job_id, reaped.outcome) == (second.job_id, OutcomeKind.CRASHED)
    assert [await arena.bucket(token.job_id) for token in (first, second)] == ["finished", "ready"]
    await holds(arena, worker, answer, waiting)
    # Its worker is lost for good: what it claimed is swept by whoever comes next, each job once.
    assert [one.job_id for one in await arena.driver.reap()] == sorted(one.token.job_id for one in answer[1])
    assert [await arena.bucket(job_id) for job_id in (one.token.job_id for one in answer[1])] == ["ready"] * 2
    assert await arena.claim(worker) == ()


async def test_a_fused_call_that_begins_after_a_reapers_mark_does_neither_half(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    waiting = await arena.enqueue()
    await arena.vanish()
    async with arena.holding() as reaper:
        assert len(await reaper.driver.reap()) == 1
        assert await arena.at_once(lambda seat: fused(seat, worker, [token])) == ((SettleAnswer.REAPED,), ())
        await reaper.commit()
    assert [await arena.bucket(job_id) for job_id in (token.job_id, waiting)] == ["ready", "ready"]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("by", ["settle", "fused call"])
async def test_of_a_settle_and_a_fused_call_on_the_same_claims_the_second_stores_nothing_and_claims(
    arena: Arena, by: str, commits: bool
) -> None:
    worker = await arena.register()
    tokens = [(await arena.running(worker)).token for _ in range(3)]
    waiting = [await arena.enqueue() for _ in range(2)]
    async with arena.holding() as settler:
        if by == "settle":
            for token in tokens:
                await settler.close_attempt(token, Completed(result='"first"'))
        else:
            one = [Settlement(token=token, outcome=Completed(result='"first"')) for token in tokens]
            answers, taken = await settler.driver.settle_and_claim(one, asks(worker, 1))
            assert (set(answers), [job.token.job_id for job in taken]) == ({SettleAnswer.SETTLED}, waiting[:1])
        both = await arena.start(lambda seat: fused(seat, worker, tokens))
        await both.is_blocked_by(settler)
        await (settler.commit() if commits else settler.rollback())
    answer = await both.result()
    assert set(answer[0]) == {SettleAnswer.REAPED if commits else SettleAnswer.SETTLED}
    results = [(await arena.describe(token.job_id)).result for token in tokens]
    assert results == ['"first"' if commits else '"fused"'] * 3
    # What the first claimed is gone if it committed; if not, the second, which looks after its wait, takes it.
    assert [one.token.job_id for one in answer[1]] == (waiting[1:] if by == "fused call" and commits else waiting)
    assert [await arena.bucket(job_id) for job_id in waiting] == ["running", "running"]

"""The fence of a settle: one whole token, one unexpired lease, judged by the database when the statement runs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.outcome import (
    Cancelled,
    CancelVerdict,
    Completed,
    DeadLettered,
    Held,
    Interrupted,
    Outcome,
    Retried,
    SettleAnswer,
    Settlement,
    Snoozed,
)
from app.domain.state import DeadReason, State
from app.drivers.protocol import PurgeQuery
from tests.postgres.arena import Arena
from tests.support.drivers import ERROR, LEASE, new_job, with_token

pytestmark = pytest.mark.postgres

EVERY_OUTCOME: list[Outcome] = [
    Completed(result="1"),
    Retried(error=ERROR, delay=timedelta(seconds=1)),
    DeadLettered(error=ERROR, reason=DeadReason.TERMINAL),
    Snoozed(delay=timedelta(seconds=1)),
    Interrupted(cause="drain"),
    Interrupted(cause="drain", delay=timedelta(seconds=1)),
    Cancelled(reason="caller"),
    Held(reason="other code"),
]


async def everything(arena: Arena) -> list[object]:
    """Give all a settle may change."""
    tables = ("ready", "waiting", "running", "held", "finished", "attempt", "live_key")
    return [await arena.fetch(f"select * from outlast.{table} order by 1, 2") for table in tables]


@pytest.mark.parametrize("outcome", EVERY_OUTCOME, ids=repr)
@pytest.mark.parametrize("part", ["fence", "lower fence", "claim_no", "worker_id"])
async def test_a_token_wrong_in_one_part_settles_nothing(arena: Arena, outcome: Outcome, part: str) -> None:
    token = (await arena.running(key="k")).token
    other = await arena.register()
    wrong = {"fence": token.fence + 1, "lower fence": token.fence - 1, "claim_no": 2, "worker_id": other}[part]
    stale = with_token(token, **{part.removeprefix("lower "): wrong})
    before = await everything(arena)
    assert await arena.settle(stale, outcome) is SettleAnswer.REAPED
    assert await everything(arena) == before


@pytest.mark.parametrize("outcome", EVERY_OUTCOME, ids=repr)
async def test_a_settle_that_arrives_after_the_lease_settles_nothing(arena: Arena, outcome: Outcome) -> None:
    token = (await arena.running(key="k")).token
    await arena.advance(LEASE)  # the packet was on its way: no renewal, no reaper yet
    before = await everything(arena)
    assert await arena.settle(token, outcome) is SettleAnswer.REAPED
    assert await everything(arena) == before


async def test_two_tokens_with_swapped_sequences_settle_nothing(arena: Arena) -> None:
    worker = await arena.register()
    one, two = (await arena.running(worker)).token, (await arena.running(worker)).token
    before = await everything(arena)
    swapped = (with_token(one, fence=two.fence), with_token(two, fence=one.fence))
    answers = await arena.driver.settle([Settlement(token=token, outcome=Completed()) for token in swapped])
    assert list(answers) == [SettleAnswer.REAPED] * 2
    assert await everything(arena) == before


async def test_a_token_under_the_name_of_another_worker_of_the_batch_settles_nothing(arena: Arena) -> None:
    mine, theirs = await arena.register(), await arena.register()
    one, two = (await arena.running(mine)).token, (await arena.running(mine)).token
    three = (await arena.running(theirs)).token
    answers = await arena.driver.settle(
        [Settlement(token=token, outcome=Completed()) for token in (with_token(one, worker_id=theirs), two, three)]
    )
    assert list(answers) == [SettleAnswer.REAPED, SettleAnswer.SETTLED, SettleAnswer.SETTLED]
    assert await arena.bucket(one.job_id) == "running"


async def test_a_stale_token_beside_the_new_one_of_the_same_job_settles_nothing(arena: Arena) -> None:
    worker = await arena.register()
    old = (await arena.running(worker)).token
    await arena.driver.release([old], cause="test")
    new = (await arena.claim_one(worker)).token
    answers = await arena.driver.settle(
        [
            Settlement(token=old, outcome=Completed(result='"old"')),
            Settlement(token=new, outcome=Completed(result='"new"')),
        ]
    )
    assert list(answers) == [SettleAnswer.REAPED, SettleAnswer.SETTLED]
    assert (await arena.describe(new.job_id)).result == '"new"'


async def test_a_batch_in_any_order_gives_each_attempt_its_own_outcome(arena: Arena) -> None:
    worker = await arena.register()
    jobs = [new_job() for _ in range(40)]
    await arena.driver.enqueue_many(jobs)
    held = await arena.claim(worker, room=40)
    shuffled = sorted(held, key=lambda claim: claim.token.job_id.int % 7)
    answers = await arena.driver.settle(
        [Settlement(token=claim.token, outcome=Completed(result=f'"{claim.token.job_id}"')) for claim in shuffled]
    )
    assert set(answers) == {SettleAnswer.SETTLED}
    for job in jobs:
        assert (await arena.describe(job.id)).result == f'"{job.id}"'


async def test_answers_say_what_superseded_each_claim(arena: Arena) -> None:
    worker = await arena.register()
    cancelled, deleted, reaped, held = [(await arena.running(worker)).token for _ in range(4)]
    await arena.driver.cancel(cancelled.job_id, reason="gone")
    await arena.close_attempt(deleted, Completed())
    await arena.advance(timedelta(seconds=1))
    await arena.driver.purge(PurgeQuery(state=State.DONE, older_than=timedelta()))
    await arena.driver.release([reaped], cause="test")
    answers = await arena.driver.settle(
        [Settlement(token=token, outcome=Completed()) for token in (held, reaped, deleted, cancelled)]
    )
    assert list(answers) == [
        SettleAnswer.SETTLED,
        SettleAnswer.REAPED,
        SettleAnswer.DELETED,
        SettleAnswer.CANCELLED,
    ]


async def test_a_settle_held_up_behind_a_cancel_is_told_of_the_cancel(arena: Arena) -> None:
    token = (await arena.running()).token
    async with arena.holding() as canceller:
        assert await canceller.driver.cancel(token.job_id, reason="no") is CancelVerdict.SIGNALLED
        settling = await arena.start(lambda seat: seat.settle(token, Completed(result="1")))
        await settling.is_blocked_by(canceller)
        await canceller.commit()
    assert await settling.result() is SettleAnswer.CANCELLED
    view = await arena.describe(token.job_id)
    assert (view.state, view.result) == (State.CANCELLED, None)


async def test_a_settle_held_up_behind_a_reaper_finds_its_lease_over(arena: Arena) -> None:
    token = (await arena.running()).token
    async with arena.holding() as reaper:
        await arena.fetch("update outlast.worker set lease_until = outlast.clock() - interval '1 s'")
        assert len(await reaper.driver.reap()) == 1
        # The lease is over already, so the settle need not even wait.
        assert await arena.at_once(lambda seat: seat.settle(token, Completed())) is SettleAnswer.REAPED
        await reaper.commit()
    assert await arena.bucket(token.job_id) == "ready"


async def test_one_value_that_cannot_be_stored_leaves_its_batch_to_be_repeated_one_by_one(arena: Arena) -> None:
    worker = await arena.register()
    good, bad = [(await arena.running(worker)).token for _ in range(2)]
    batch = [
        Settlement(token=good, outcome=Completed(result="1")),
        Settlement(token=bad, outcome=Completed(result="\0")),
    ]
    with pytest.raises(Exception, match="REQUEST_INVALID"):
        await arena.driver.settle(batch)
    assert await arena.settle(good, Completed(result="1")) is SettleAnswer.SETTLED
    assert await arena.bucket(bad.job_id) == "running"


async def test_of_a_long_ledger_the_first_and_the_last_rows_are_kept(arena: Arena) -> None:
    worker = await arena.register()
    job_id = await arena.enqueue(max_attempts=1000)
    for _ in range(105):
        token = (await arena.claim_one(worker)).token
        await arena.close_attempt(token, Interrupted(cause="drain"))
    numbers = [row.number for row in await arena.ledger(job_id)]
    assert numbers == [*range(1, 21), *range(26, 106)]

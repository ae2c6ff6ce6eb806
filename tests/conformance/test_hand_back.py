from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

import pytest

from app.domain.drain import DrainShown
from app.domain.job import Counters, WorkerId
from app.domain.outcome import (
    HAND_BACK,
    CancelVerdict,
    Completed,
    Interrupted,
    Outcome,
    OutcomeKind,
    Retried,
    Snoozed,
)
from app.domain.state import State
from tests.conformance.runs import (
    HOUR,
    SECOND,
    a_sleep,
    an_event,
    enlist,
    order,
    record,
    settle,
    state_of,
    steps,
    suspend,
    waits,
)
from tests.conformance.versions import REASON, diverged, fleet, handed_back, held_for, publish
from tests.support.drivers import ERROR, LEASE, NAME, DriverEnv

# --- handed back


async def test_a_job_is_handed_back_to_the_code_that_recorded_it(env: DriverEnv) -> None:
    held, old, new = await handed_back(env)
    view = await env.describe(held.token.job_id)
    assert (view.state, view.name, view.counters) == (State.READY, NAME, Counters(attempt=0, claim_no=1))
    assert await env.claim(new) == ()
    claimed = await env.claim_one(old)
    assert (claimed.token.job_id, claimed.token.claim_no, claimed.name) == (held.token.job_id, 2, NAME)
    await env.close_attempt(claimed.token, Completed(result="1"))
    assert (await env.describe(held.token.job_id)).counters == Counters(attempt=1, claim_no=2)


async def test_its_attempt_is_on_the_ledger_uncounted(env: DriverEnv) -> None:
    held, _, new = await handed_back(env)
    (row,) = await env.ledger(held.token.job_id)
    assert (row.number, row.outcome, row.cause, row.counted) == (1, OutcomeKind.HELD, "handed_back", False)
    assert (row.worker_id, row.code_version, row.error) == (new, "new", ERROR)
    view = await env.describe(held.token.job_id)
    assert (view.last_outcome, view.error) == (OutcomeKind.HELD, ERROR)


async def test_it_is_one_ready_job_of_its_name_and_queue(env: DriverEnv) -> None:
    await handed_back(env)
    stats = await env.driver.stats()
    assert {state: count for state, count in stats.by_state.items() if count} == {State.READY: 1}
    (queue,) = stats.queues
    assert queue.oldest_ready_seconds == 0
    assert [doc.name for doc in await env.driver.job_types()] == [NAME]


async def test_it_comes_before_new_work(env: DriverEnv) -> None:
    held, old, _ = await handed_back(env)
    first, second = await env.enqueue(), await env.enqueue()
    assert await order(env, old) == [held.token.job_id, first, second]


async def test_workers_of_other_code_go_past_it(env: DriverEnv) -> None:
    _, _, new = await handed_back(env)
    other = await env.enqueue()
    assert await order(env, new) == [other]


async def test_any_live_worker_of_the_code_will_do(env: DriverEnv) -> None:
    held, _, _ = await handed_back(env)
    another = await enlist(env, code_version="old")
    assert await order(env, another) == [held.token.job_id]


async def test_a_worker_of_the_code_that_does_not_know_the_name_leaves_it(env: DriverEnv) -> None:
    _, old, _ = await handed_back(env)
    assert await env.claim(old, names=("other.job",)) == ()


async def test_a_handed_back_job_can_be_cancelled(env: DriverEnv) -> None:
    held, old, _ = await handed_back(env)
    assert await env.driver.cancel(held.token.job_id, reason="stop") is CancelVerdict.CANCELLED_WHILE_WAITING
    assert await env.claim(old) == ()
    await env.advance(HAND_BACK)
    assert await env.driver.release_due() == 0
    assert not (await env.driver.due()).must_release


async def test_a_handed_back_run_keeps_its_steps_and_waits(env: DriverEnv) -> None:
    old, new = await fleet(env)
    held = await env.running(old)
    await record(env, held.token, "fetch")
    await suspend(env, held, an_event(number=1), a_sleep(number=2, delay=SECOND))
    await env.advance(SECOND)
    await env.driver.wake()
    held = await env.claim_one(new)
    await settle(env, held, diverged(), has_waits=True)
    assert (await steps(env, held.token.job_id), await waits(env, held.token.job_id)) == (
        ["fetch", "nap"],
        ["approval"],
    )
    assert await order(env, old) == [held.token.job_id]


@pytest.mark.parametrize(
    "outcome",
    [Interrupted(cause="drain"), Retried(error=ERROR, delay=SECOND), Snoozed(delay=SECOND)],
    ids=lambda outcome: type(outcome).__name__,
)
async def test_a_claim_ends_the_hand_back(env: DriverEnv, outcome: Outcome) -> None:
    held, old, new = await handed_back(env)
    await env.close_attempt((await env.claim_one(old)).token, outcome)
    await env.advance(SECOND)
    await env.driver.promote()
    assert await env.driver.release_due() == 0
    assert await order(env, new) == [held.token.job_id]


async def test_a_woken_run_is_for_everybody(env: DriverEnv) -> None:
    held, old, new = await handed_back(env)
    await suspend(env, await env.claim_one(old), a_sleep(delay=2 * HOUR))
    await env.advance(2 * HOUR)
    assert await env.driver.release_due() == 0
    await env.driver.wake()
    assert await order(env, new) == [held.token.job_id]


async def test_a_crashed_claim_is_for_everybody(env: DriverEnv) -> None:
    held, _, new = await handed_back(env)
    await env.claim_one(await env.register(code_version="old"))
    await env.vanish()
    (reaped,) = await env.driver.reap()
    assert (reaped.name, reaped.outcome) == (NAME, OutcomeKind.CRASHED)
    assert await env.driver.release_due() == 0
    assert await order(env, new) == [held.token.job_id]


@pytest.mark.parametrize("how", ["release", "reconcile", "surrender"])
async def test_a_claim_that_was_given_back_is_for_everybody(env: DriverEnv, how: str) -> None:
    held, old, new = await handed_back(env)
    claimed = await env.claim_one(old)
    match how:
        case "release":
            assert await env.driver.release((claimed.token,), cause="test") == 1
        case "reconcile":
            assert await env.driver.reconcile(old, ()) == 1
        case _:
            assert [one.name for one in await env.driver.surrender(old)] == [NAME]
    assert await env.driver.release_due() == 0
    assert await order(env, new) == [held.token.job_id]


async def test_a_claim_that_runs_is_not_called_back_when_its_time_is_over(env: DriverEnv) -> None:
    held, old, _ = await handed_back(env)
    claimed = await env.claim_one(old)
    await env.advance(2 * HAND_BACK)
    assert not (await env.driver.due()).must_release
    assert await env.driver.release_due() == 0
    await env.close_attempt(claimed.token, Completed())
    assert await state_of(env, held.token.job_id) is State.DONE


# --- nobody to hand it to


async def test_without_a_live_worker_of_the_code_the_job_is_held(env: DriverEnv) -> None:
    job_id, _ = await held_for(env, "old")
    view = await env.describe(job_id)
    assert (view.state_reason, view.last_outcome, view.error) == (REASON, OutcomeKind.HELD, ERROR)
    assert view.counters == Counters(attempt=0, claim_no=1)
    (row,) = await env.ledger(job_id)
    assert (row.outcome, row.cause, row.counted) == (OutcomeKind.HELD, "held", False)


async def closed(env: DriverEnv, worker: WorkerId) -> None:
    await env.driver.close_worker(worker)


async def lapsed(env: DriverEnv, worker: WorkerId) -> None:
    await env.advance(LEASE)
    assert not (await env.renew(worker)).is_held


async def lost(env: DriverEnv, worker: WorkerId) -> None:
    await env.vanish()
    await env.driver.reap()


async def asked_to_drain(env: DriverEnv, worker: WorkerId) -> None:
    await env.driver.ask_drain(worker, by="ann")


async def draining(env: DriverEnv, worker: WorkerId) -> None:
    shown = DrainShown(phase="accept", reason="SIGTERM", left=10 * SECOND)
    await env.driver.show_worker(worker, wakeup="polling", drain=shown)


Leaving: TypeAlias = Callable[[DriverEnv, WorkerId], Awaitable[None]]
LEAVING: tuple[Leaving, ...] = (closed, lapsed, lost, asked_to_drain, draining)
every_leaving = pytest.mark.parametrize("leave", [pytest.param(way, id=way.__name__) for way in LEAVING])


@pytest.mark.parametrize("when", ["before", "after"])
@every_leaving
async def test_a_worker_that_leaves_takes_no_job_back(env: DriverEnv, leave: Leaving, when: str) -> None:
    new = await enlist(env, code_version="new")
    old = await env.register(code_version="old")
    await publish(env, "old")
    held = await env.running(new)
    if when == "before":
        await leave(env, old)
    await env.close_attempt(held.token, diverged())
    if when == "after":
        assert await state_of(env, held.token.job_id) is State.READY
        assert not (await env.driver.due()).must_release
        await leave(env, old)
        assert (await env.driver.due()).must_release
        assert await env.driver.release_due() == 1
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason) == (State.HELD, REASON)
    assert not (await env.driver.due()).must_release
    assert await env.driver.release_due() == 0


async def test_a_worker_of_another_queue_is_no_help(env: DriverEnv) -> None:
    await enlist(env, code_version="old", queues=("mail",))
    await held_for(env, "old")


async def test_the_hand_back_is_over_after_an_hour(env: DriverEnv) -> None:
    held, old, _ = await handed_back(env)
    await env.advance(HAND_BACK - timedelta(milliseconds=1))
    assert not (await env.driver.due()).must_release
    assert await env.driver.release_due() == 0
    await env.advance(timedelta(milliseconds=1))
    assert (await env.driver.due()).must_release
    assert await env.driver.release_due() == 1
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason) == (State.HELD, REASON)
    assert view.counters == Counters(attempt=0, claim_no=1)
    # Those who did not take it in that hour are not asked again.
    assert not (await env.driver.due()).must_release
    assert await env.driver.release_due() == 0
    assert await env.claim(old) == ()

"""What operators do to jobs that wait in the gate, one by one and many at once: they stay where no claim finds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from app.domain.bulk import BulkAction
from app.domain.edit import JobPatch, RunNowVerdict
from app.domain.job import JobId
from app.domain.limit import GateReason
from app.domain.outcome import Completed, Held
from app.domain.state import State
from app.drivers.reading import ListQuery
from tests.conformance.gated import admit, admit_one, declare, held_by, ids, limited, reason_of
from tests.conformance.runs import a_sleep, suspend
from tests.support.bulk import a_bulk, done, store_of
from tests.support.drivers import DriverEnv

HOUR = timedelta(hours=1)


async def order(env: DriverEnv) -> list[JobId]:
    """Give the jobs of the gate in the order they leave it; a claim finds none of them."""
    worker = await env.register()
    assert await env.claim(worker) == ()
    return ids(await admit(env, worker))


async def parked(env: DriverEnv, count: int) -> list[JobId]:
    """Give jobs that are parked behind a full limit of one, and let the limit be raised then."""
    await declare(env)
    holder, *waiting = await limited(env, count + 1)
    assert ids(await admit(env, await env.register())) == [holder]
    return waiting


async def test_a_parked_job_of_another_priority_leaves_in_its_new_place(env: DriverEnv) -> None:
    first, second = await parked(env, 2)
    await env.driver.patch(second, JobPatch(priority=1))
    assert await reason_of(env, second) == GateReason.SLOT
    await declare(env, 10)
    assert await order(env) == [second, first]


async def test_a_job_that_is_given_a_priority_it_has_left_is_the_last_there(env: DriverEnv) -> None:
    await declare(env, 10)
    first, second = await limited(env, 2)
    await env.driver.patch(first, JobPatch(priority=1))
    await env.driver.patch(first, JobPatch(priority=5))
    assert await order(env) == [second, first]


async def test_a_gated_job_is_put_off_and_comes_back_into_the_gate(env: DriverEnv) -> None:
    await declare(env, 10)
    (job_id,) = await limited(env)
    await env.driver.patch(job_id, JobPatch(run_at=env.now() + HOUR, priority=2))
    assert (await env.describe(job_id)).state is State.DELAYED
    assert await order(env) == []
    await env.advance(HOUR)
    assert await env.driver.promote() == 1
    assert await order(env) == [job_id]


async def test_a_delayed_limited_job_that_is_to_run_now_waits_in_the_gate(env: DriverEnv) -> None:
    await declare(env, 10)
    one, other = await limited(env, 2, delay=HOUR)
    assert await env.driver.run_now(one) is RunNowVerdict.MADE_READY
    assert await env.driver.run_now(one) is RunNowVerdict.ALREADY_READY
    await env.driver.patch(other, JobPatch(run_at=env.now()))
    assert await order(env) == [one, other]


async def test_a_slot_outlives_the_delete_of_its_job(env: DriverEnv) -> None:
    await declare(env)
    await limited(env)
    held = await admit_one(env, await env.register())
    await env.close_attempt(held.token, Completed())
    await env.driver.delete(held.token.job_id)
    assert await held_by(env) == [held.token.job_id]
    assert await env.driver.free_slots((held.token,)) == 1


async def _cancelled(env: DriverEnv, jobs: list[JobId]) -> None:
    assert [(await env.describe(job_id)).state for job_id in jobs] == [State.CANCELLED] * len(jobs)
    assert await order(env) == []


async def _delayed(env: DriverEnv, jobs: list[JobId]) -> None:
    assert [(await env.describe(job_id)).state for job_id in jobs] == [State.DELAYED] * len(jobs)
    await env.advance(HOUR)
    assert await env.driver.promote() == len(jobs)
    assert await order(env) == jobs


async def _in_order(env: DriverEnv, jobs: list[JobId]) -> None:
    assert await order(env) == jobs


@pytest.mark.parametrize(
    ("action", "fields", "then"),
    [
        (BulkAction.CANCEL, {}, _cancelled),
        (BulkAction.RESCHEDULE, {"later": HOUR}, _delayed),
        (BulkAction.RESCHEDULE, {"later": -HOUR}, _in_order),
        (BulkAction.SET_PRIORITY, {"priority": 3}, _in_order),
    ],
)
async def test_many_gated_jobs_are_acted_on_at_once(
    env: DriverEnv,
    action: BulkAction,
    fields: dict[str, object],
    then: Callable[[DriverEnv, list[JobId]], Awaitable[None]],
) -> None:
    jobs = await parked(env, 3)
    given = {"run_at": env.now() + later} if isinstance(later := fields.get("later"), timedelta) else fields
    view = await done(store_of(env), a_bulk(action, State.READY, **given))
    assert (view.selected, view.done, view.failed) == (3, 3, 0)
    await declare(env, 10)
    await then(env, jobs)


async def test_a_new_priority_for_many_puts_them_before_others(env: DriverEnv) -> None:
    await declare(env, 10)
    first, second, third = await limited(env, 3)
    await done(store_of(env), a_bulk(BulkAction.SET_PRIORITY, ids=[second, third], priority=1))
    assert await order(env) == [second, third, first]


@pytest.mark.parametrize("action", [BulkAction.RUN_NOW, BulkAction.RESCHEDULE])
async def test_many_delayed_limited_jobs_that_are_to_run_go_into_the_gate(env: DriverEnv, action: BulkAction) -> None:
    await declare(env, 10)
    jobs = await limited(env, 3, delay=HOUR)
    given: dict[str, Any] = {"run_at": env.now()} if action is BulkAction.RESCHEDULE else {}
    view = await done(store_of(env), a_bulk(action, State.DELAYED, **given))
    assert (view.done, view.failed) == (3, 0)
    assert sorted(await order(env)) == sorted(jobs)


async def test_a_priority_keeps_a_limited_job_limited_wherever_it_is(env: DriverEnv) -> None:
    await declare(env, 10)
    worker = await env.register()
    (delayed,) = await limited(env, delay=HOUR)
    held, asleep = await limited(env, 2)
    by_id = {job.token.job_id: job for job in await admit(env, worker)}
    await env.close_attempt(by_id[held].token, Held(reason="does not fit"))
    await suspend(env, by_id[asleep], a_sleep(delay=HOUR))
    await env.driver.free_slots([job.token for job in by_id.values()])
    await done(store_of(env), a_bulk(BulkAction.SET_PRIORITY, ids=[delayed, held, asleep], priority=1))
    await env.driver.patch(held, JobPatch(priority=2))
    await env.driver.patch(asleep, JobPatch(priority=3))
    await env.driver.release_held(held)
    await env.driver.run_now(delayed)
    await env.driver.run_now(asleep)
    assert await order(env) == [delayed, held, asleep]


@pytest.mark.parametrize("action", [BulkAction.RETRY, BulkAction.RELEASE])
async def test_many_jobs_get_another_life_in_the_gate(env: DriverEnv, action: BulkAction) -> None:
    await declare(env, 10)
    jobs = await limited(env, 3)
    for claimed in await admit(env, await env.register()):
        if action is BulkAction.RELEASE:
            await env.close_attempt(claimed.token, Held(reason="does not fit"))
        else:
            await env.driver.cancel(claimed.token.job_id, reason="stop")
        await env.driver.free_slots((claimed.token,))
    state = State.HELD if action is BulkAction.RELEASE else State.CANCELLED
    view = await done(store_of(env), a_bulk(action, state))
    assert (view.done, view.failed) == (3, 0)
    listed = (await env.driver.list(ListQuery(states=frozenset({State.READY})))).items
    assert {job.id for job in listed} == set(jobs)
    assert sorted(await order(env)) == sorted(jobs)

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.audit import Action
from app.domain.edit import JobPatch, version_of
from app.domain.errors import JobNotFound, JobStateConflict, PreconditionFailed
from app.domain.job import JobId
from app.domain.outcome import Completed, Held, Interrupted, Retried
from app.domain.state import State
from tests.conformance.endings import Ending, every_ending
from tests.conformance.runs import HOUR, a_sleep, enlist, suspended
from tests.support.audit import an_entry, details_of, outcomes, rows_of
from tests.support.drivers import ERROR, DriverEnv, new_id

MINUTE = timedelta(minutes=1)


async def _patch(env: DriverEnv, job_id: JobId, **fields: Any) -> None:
    await env.driver.patch(job_id, JobPatch(**fields), audit=an_entry(Action.JOB_UPDATE, job_id))


async def _order(env: DriverEnv, room: int = 10) -> list[JobId]:
    return [job.token.job_id for job in await env.claim(await env.register(), room=room)]


async def test_a_ready_job_takes_its_place_by_its_new_priority(env: DriverEnv) -> None:
    first, second, third = [await env.enqueue() for _ in range(3)]
    await _patch(env, third, priority=0)
    await _patch(env, first, priority=9)
    assert await _order(env) == [third, second, first]
    (row,) = await rows_of(env.driver, third)
    assert details_of(row) == {"before": {"priority": 5}, "after": {"priority": 0}}


async def test_a_job_with_another_priority_is_the_last_of_it(env: DriverEnv) -> None:
    job_id, other = await env.enqueue(priority=3), await env.enqueue(priority=4)
    await _patch(env, job_id, priority=4)
    assert await _order(env) == [other, job_id]


async def test_a_job_with_another_priority_is_as_old_as_before(env: DriverEnv) -> None:
    job_id = await env.enqueue()
    await env.advance(MINUTE)
    for priority in (3, 4):
        await _patch(env, job_id, priority=priority)
        (queue,) = await env.driver.queues()
        assert queue.oldest_ready_seconds == MINUTE.total_seconds()


async def test_the_same_priority_changes_no_place(env: DriverEnv) -> None:
    first, second = await env.enqueue(), await env.enqueue()
    await _patch(env, first, priority=5)
    assert await outcomes(env.driver, first) == [("job.update", "unchanged")]
    assert await _order(env) == [first, second]


async def test_the_same_priority_beside_a_change_changes_no_place(env: DriverEnv) -> None:
    first, second = await env.enqueue(), await env.enqueue()
    await _patch(env, first, priority=5, tags=("a",))
    assert await _order(env) == [first, second]


async def test_resumed_work_stays_before_new_work_of_its_new_priority(env: DriverEnv) -> None:
    token = (await env.running()).token
    await env.close_attempt(token, Interrupted(cause="drain"))
    new = await env.enqueue(priority=7)
    await _patch(env, token.job_id, priority=7)
    assert await _order(env) == [token.job_id, new]


async def test_a_patched_ready_job_is_found_by_every_verb(env: DriverEnv) -> None:
    job_id = await env.enqueue()
    await _patch(env, job_id, priority=1)
    await _patch(env, job_id, priority=2)
    view = await env.describe(job_id)
    assert (view.state, view.priority) == (State.READY, 2)
    await env.driver.cancel(job_id, reason="stop")
    assert (await env.describe(job_id)).state is State.CANCELLED
    assert await _order(env) == []


async def test_a_delayed_job_has_its_new_priority_when_its_time_comes(env: DriverEnv) -> None:
    late = await env.enqueue(delay=MINUTE)
    await _patch(env, late, priority=1)
    assert (await env.describe(late)).state is State.DELAYED
    early = await env.enqueue()
    await env.advance(2 * MINUTE)
    assert await env.driver.promote() == 1
    assert await _order(env) == [late, early]


async def test_a_suspended_job_has_its_new_priority_when_it_wakes(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, a_sleep(delay=MINUTE), worker=worker)
    await _patch(env, held.token.job_id, priority=1, max_attempts=3, tags=("vip",))
    other = await env.enqueue()
    await env.advance(2 * MINUTE)
    await env.driver.wake()
    claimed = await env.claim(worker)
    assert [job.token.job_id for job in claimed] == [held.token.job_id, other]
    assert (claimed[0].priority, claimed[0].max_attempts, claimed[0].tags) == (1, 3, ("vip",))


async def test_a_held_job_has_its_new_priority_when_it_is_released(env: DriverEnv) -> None:
    token = (await env.running()).token
    await env.close_attempt(token, Held(reason="does not fit"))
    await _patch(env, token.job_id, priority=1)
    assert (await env.describe(token.job_id)).state is State.HELD
    other = await env.enqueue(priority=2)
    await env.driver.release_held(token.job_id)
    assert await _order(env) == [token.job_id, other]


async def test_a_retry_of_a_patched_job_is_by_its_new_priority(env: DriverEnv) -> None:
    job_id = await env.enqueue()
    await _patch(env, job_id, priority=1)
    await env.driver.cancel(job_id, reason="stop")
    other = await env.enqueue(priority=2)
    await env.driver.retry(job_id)
    assert await _order(env) == [job_id, other]


async def test_a_delayed_job_is_given_another_time(env: DriverEnv) -> None:
    job_id = await env.enqueue(delay=MINUTE)
    before = env.now()
    await _patch(env, job_id, run_at=env.now() + HOUR)
    view = await env.describe(job_id)
    assert (view.state, view.run_at, view.state_reason) == (State.DELAYED, before + HOUR, "scheduled")
    (row,) = await rows_of(env.driver, job_id)
    assert details_of(row) == {
        "before": {"run_at": (before + MINUTE).isoformat()},
        "after": {"run_at": (before + HOUR).isoformat()},
    }
    await env.advance(2 * MINUTE)
    assert await env.driver.promote() == 0
    await env.advance(HOUR)
    assert await env.driver.promote() == 1
    assert (await env.describe(job_id)).run_at == before + HOUR


async def test_a_retry_that_waits_is_given_another_time_and_keeps_why(env: DriverEnv) -> None:
    token = (await env.running()).token
    await env.close_attempt(token, Retried(error=ERROR, delay=HOUR))
    before = await env.describe(token.job_id)
    await _patch(env, token.job_id, run_at=env.now() + MINUTE)
    view = await env.describe(token.job_id)
    assert (view.state_reason, view.counters, view.run_at) == ("retry", before.counters, env.now() + MINUTE)


async def test_a_time_that_has_passed_makes_a_delayed_job_ready(env: DriverEnv) -> None:
    job_id = await env.enqueue(delay=HOUR)
    other = await env.enqueue(priority=2)
    await _patch(env, job_id, run_at=env.now() - MINUTE, priority=1)
    assert (await env.describe(job_id)).state is State.READY
    assert await _order(env) == [job_id, other]


async def test_the_time_it_has_leaves_a_job_that_is_due_to_its_promote(env: DriverEnv) -> None:
    job_id = await env.enqueue(delay=MINUTE)
    due = env.now() + MINUTE
    await env.advance(2 * MINUTE)
    await _patch(env, job_id, run_at=due)
    assert (await env.describe(job_id)).state is State.DELAYED
    assert await outcomes(env.driver, job_id) == [("job.update", "unchanged")]


async def test_a_ready_job_is_given_a_time_to_come(env: DriverEnv) -> None:
    job_id, other = await env.enqueue(key="k"), await env.enqueue()
    await _patch(env, job_id, run_at=env.now() + MINUTE, priority=1)
    view = await env.describe(job_id)
    assert (view.state, view.state_reason, view.run_at) == (State.DELAYED, "scheduled", env.now() + MINUTE)
    assert await _order(env, room=1) == [other]
    assert (await env.enqueue_again(key="k")).deduped
    await env.advance(2 * MINUTE)
    await env.driver.promote()
    assert await _order(env) == [job_id]


async def test_a_time_that_has_passed_leaves_a_ready_job_where_it_is(env: DriverEnv) -> None:
    first, second = await env.enqueue(), await env.enqueue()
    await _patch(env, first, run_at=env.now() - MINUTE)
    assert await _order(env) == [first, second]


async def test_budget_and_tags_are_what_the_next_claim_finds(env: DriverEnv) -> None:
    job_id = await env.enqueue(tags=("old",), max_attempts=25)
    await _patch(env, job_id, max_attempts=2, tags=("a", "b"))
    claimed = await env.claim_one(await env.register())
    assert (claimed.max_attempts, claimed.tags) == (2, ("a", "b"))
    (row,) = await rows_of(env.driver, job_id)
    assert details_of(row)["before"] == {"max_attempts": 25, "tags": ["old"]}


async def test_tags_are_taken_away(env: DriverEnv) -> None:
    job_id = await env.enqueue(tags=("old",))
    await _patch(env, job_id, tags=())
    assert (await env.describe(job_id)).tags == ()


async def test_of_two_patches_of_one_version_the_second_is_refused(env: DriverEnv) -> None:
    job_id = await env.enqueue()
    seen = frozenset({version_of(await env.describe(job_id)), "another"})
    await env.driver.patch(job_id, JobPatch(tags=("a",)), versions=seen)
    with pytest.raises(PreconditionFailed):
        await env.driver.patch(job_id, JobPatch(tags=("b",)), versions=seen, audit=an_entry(Action.JOB_UPDATE, job_id))
    assert (await env.describe(job_id)).tags == ("a",)
    assert await rows_of(env.driver, job_id) == []


@pytest.mark.parametrize("fields", [{"priority": 1}, {"tags": ("a",)}, {"max_attempts": 3}])
async def test_every_patch_makes_another_version(env: DriverEnv, fields: dict[str, Any]) -> None:
    job_id = await env.enqueue()
    before = version_of(await env.describe(job_id))
    await _patch(env, job_id, **fields)
    assert version_of(await env.describe(job_id)) != before


async def test_a_running_job_is_refused(env: DriverEnv) -> None:
    held = await env.running()
    with pytest.raises(JobStateConflict) as refused:
        await _patch(env, held.token.job_id, priority=1)
    assert refused.value.details["state"] == State.RUNNING
    assert (await env.describe(held.token.job_id)).priority == 5
    await env.close_attempt(held.token, Completed())


@every_ending
async def test_an_ended_job_is_refused(env: DriverEnv, ending: Ending) -> None:
    job_id = await ending(env, {})
    before = await env.describe(job_id)
    with pytest.raises(JobStateConflict):
        await _patch(env, job_id, tags=("late",))
    assert await env.describe(job_id) == before
    assert await rows_of(env.driver, job_id) == []


async def test_what_waits_for_no_time_is_given_none(env: DriverEnv) -> None:
    sleeping = (await suspended(env, a_sleep())).token.job_id
    token = (await env.running()).token
    await env.close_attempt(token, Held(reason="does not fit"))
    for job_id in (sleeping, token.job_id):
        with pytest.raises(JobStateConflict):
            await _patch(env, job_id, run_at=env.now() + HOUR, priority=1)
        assert (await env.describe(job_id)).priority == 5


async def test_absent_and_foreign_jobs_are_not_found_alike(env: DriverEnv) -> None:
    job_id = await env.enqueue(tenant="acme")
    for wanted in (new_id(), job_id):
        with pytest.raises(JobNotFound):
            await env.driver.patch(wanted, JobPatch(priority=1), tenant="other")
    await env.driver.patch(job_id, JobPatch(priority=1), tenant="acme")
    assert (await env.describe(job_id)).priority == 1

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import Internal, TransactionForeign
from app.domain.job import Counters
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from app.domain.step import MAIN_BRANCH, NewStep, Place, StepKind
from app.drivers.memory.clock import SystemClock
from app.drivers.memory.driver import MemoryDriver
from app.drivers.memory.rows import Finished
from tests.support.drivers import MemoryEnv, memory_env, new_job


def test_the_system_clock_is_aware_and_never_steps_back() -> None:
    clock = SystemClock()
    assert clock.now().utcoffset() == timedelta()
    first = clock.monotonic()
    assert first <= clock.monotonic()


async def test_without_a_clock_the_driver_keeps_the_machines_time() -> None:
    driver = MemoryDriver()
    before = SystemClock().now()
    job = new_job()
    await driver.enqueue(job)
    view = await driver.describe(job.id)
    assert view is not None
    assert before <= view.created_at <= SystemClock().now()


async def test_a_reopened_driver_still_has_its_jobs() -> None:
    async with memory_env() as env:
        job_id = await env.enqueue()
        await env.driver.close()
        await env.driver.open()
        assert (await env.describe(job_id)).state is State.READY


async def test_a_move_that_is_not_in_the_table_is_a_bug_and_changes_nothing() -> None:
    async with memory_env() as env:
        assert isinstance(env, MemoryEnv)
        job_id = await env.enqueue()
        done = Finished(counters=Counters(), state=State.DONE, finished_at=env.now())
        with pytest.raises(Internal, match="ready to done"):
            env.memory._store.place(job_id, done)
        assert (await env.describe(job_id)).state is State.READY
        assert len(await env.claim(await env.register())) == 1


async def test_a_claim_that_turns_up_after_its_worker_was_lost_and_surrendered_is_no_crash() -> None:
    async with memory_env() as env:
        worker = await env.register()
        token = (await env.running(worker)).token
        claim = env.memory._store.tokens[token.job_id]
        await env.driver.release((token,), cause="test")
        await env.vanish()
        assert await env.driver.reap() == ()
        assert await env.driver.surrender(worker) == ()
        env.memory._store.place(token.job_id, claim)
        (reaped,) = await env.driver.reap()
        assert (reaped.outcome, reaped.cause) == (OutcomeKind.LEASE_LOST, "lease_lost")
        view = await env.describe(token.job_id)
        assert (view.state, view.counters.attempt, view.counters.crashes) == (State.READY, 0, 0)


async def test_a_transaction_of_the_caller_s_cannot_hold_a_step_here() -> None:
    async with memory_env() as env:
        held = await env.running()
        step = NewStep(name="book", kind=StepKind.TRANSACTION, place=Place(MAIN_BRANCH, 0), value=None)
        with pytest.raises(TransactionForeign):
            async with env.driver.step_transaction(held.token, step, bind=object()):
                pytest.fail("the body must not begin")
        assert (await env.driver.history(held.token.job_id, held.run_id)).steps == ()

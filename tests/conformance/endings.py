"""Every way a job can end, for tests that must hold for all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from app.domain.job import JobId
from app.domain.outcome import Cancelled, CancelVerdict, Completed, DeadLettered, Held, Suspended
from app.domain.state import DeadReason, State
from app.domain.step import MAIN_BRANCH, NewWait, Place, StepKind
from tests.support.drivers import ERROR, DriverEnv

Ending: TypeAlias = Callable[[DriverEnv, dict[str, Any]], Awaitable[JobId]]


async def completed(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    token = (await env.running(**fields)).token
    await env.close_attempt(token, Completed(result='"ok"'))
    return token.job_id


async def dead_lettered(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    token = (await env.running(**fields)).token
    await env.close_attempt(token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))
    return token.job_id


async def cancelled_by_caller(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    token = (await env.running(**fields)).token
    await env.close_attempt(token, Cancelled(reason="not needed"))
    return token.job_id


async def cancelled_before_start(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    job_id = await env.enqueue(**fields)
    assert await env.driver.cancel(job_id, reason="not needed") is CancelVerdict.CANCELLED_BEFORE_START
    return job_id


async def cancelled_while_running(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    token = (await env.running(**fields)).token
    assert await env.driver.cancel(token.job_id, reason="not needed") is CancelVerdict.SIGNALLED
    return token.job_id


async def cancelled_while_held(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    token = (await env.running(**fields)).token
    await env.close_attempt(token, Held(reason="payload does not fit"))
    assert await env.driver.cancel(token.job_id, reason="not needed") is CancelVerdict.CANCELLED_WHILE_WAITING
    return token.job_id


async def cancelled_while_suspended(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    token = (await env.running(**fields)).token
    nap = NewWait(name="nap", kind=StepKind.SLEEP, place=Place(MAIN_BRANCH, 0), delay=timedelta(hours=1))
    await env.close_attempt(token, Suspended(waits=(nap,)))
    assert await env.driver.cancel(token.job_id, reason="not needed") is CancelVerdict.CANCELLED_WHILE_WAITING
    return token.job_id


async def crashed_too_often(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    held = await env.running(**{"max_crashes": 1, **fields})
    assert await env.driver.isolate(held.token)
    await env.vanish()
    (reaped,) = await env.driver.reap()
    assert reaped.is_dead
    return held.token.job_id


async def expired(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    job_id = await env.enqueue(**{"max_queue_time": timedelta(seconds=1), **fields})
    await env.advance(timedelta(seconds=2))
    assert len(await env.driver.expire()) == 1
    return job_id


async def past_deadline_while_suspended(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    token = (await env.running(**{"deadline": timedelta(seconds=1), **fields})).token
    forever = NewWait(name="e", kind=StepKind.EVENT, place=Place(MAIN_BRANCH, 0), event="order.approved", key="7")
    await env.close_attempt(token, Suspended(waits=(forever,)))
    await env.advance(timedelta(seconds=2))
    assert len(await env.driver.expire()) == 1
    return token.job_id


async def past_deadline(env: DriverEnv, fields: dict[str, Any]) -> JobId:
    job_id = await env.enqueue(**{"deadline": timedelta(seconds=1), **fields})
    await env.advance(timedelta(seconds=2))
    assert len(await env.driver.expire()) == 1
    return job_id


STATE_AFTER: dict[Ending, State] = {
    completed: State.DONE,
    dead_lettered: State.DEAD,
    crashed_too_often: State.DEAD,
    expired: State.DEAD,
    past_deadline: State.DEAD,
    past_deadline_while_suspended: State.DEAD,
    cancelled_by_caller: State.CANCELLED,
    cancelled_before_start: State.CANCELLED,
    cancelled_while_running: State.CANCELLED,
    cancelled_while_held: State.CANCELLED,
    cancelled_while_suspended: State.CANCELLED,
}

every_ending = pytest.mark.parametrize("ending", [pytest.param(way, id=way.__name__) for way in STATE_AFTER])
every_retryable_ending = pytest.mark.parametrize(
    "ending", [pytest.param(way, id=way.__name__) for way, state in STATE_AFTER.items() if state is not State.DONE]
)

"""A fleet of two code versions, and jobs that one of them does not fit."""

from __future__ import annotations

from app.domain.job import ClaimedJob, JobId, WorkerId
from app.domain.outcome import (
    Held,
)
from app.domain.snapshot import JobTypeDoc
from app.domain.state import State
from tests.conformance.runs import (
    enlist,
    state_of,
)
from tests.support.drivers import ERROR, NAME, DriverEnv

REASON = "step 'load' at number 0 was recorded as 'fetch'"


def diverged(version: str | None = "old") -> Held:
    return Held(reason=REASON, error=ERROR, version=version)


async def fleet(env: DriverEnv) -> tuple[WorkerId, WorkerId]:
    """Register a worker of the old code and one of the new, both knowing the job type."""
    old, new = await enlist(env, code_version="old"), await enlist(env, code_version="new")
    await publish(env, "old")
    await publish(env, "new")
    return old, new


async def publish(env: DriverEnv, version: str, name: str = NAME) -> None:
    await env.driver.publish_job_types([JobTypeDoc(name=name, code_version=version, document="{}")])


async def handed_back(env: DriverEnv) -> tuple[ClaimedJob, WorkerId, WorkerId]:
    """Give a job that the new code handed back to the old, and both workers."""
    old, new = await fleet(env)
    held = await env.running(new)
    await env.close_attempt(held.token, diverged())
    assert await state_of(env, held.token.job_id) is State.READY
    return held, old, new


async def held_for(env: DriverEnv, version: str | None) -> tuple[JobId, WorkerId]:
    """Give a job that is held, for code that nobody has when it says which, and the worker that held it."""
    new = await enlist(env, code_version="new")
    await publish(env, "new")
    held = await env.running(new)
    await env.close_attempt(held.token, diverged(version))
    assert await state_of(env, held.token.job_id) is State.HELD
    return held.token.job_id, new

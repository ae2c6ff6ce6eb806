"""Steps, waits and events made for a test, and the sentences that tests of runs are written in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from app.domain.event import Emitted, EventId, NewEvent
from app.domain.job import ClaimedJob, ClaimToken, JobId, NewJob, WorkerId
from app.domain.outcome import DeadLettered, Outcome, SettleAnswer, Settlement, Suspended
from app.domain.state import DeadReason, State
from app.domain.step import NewStep, NewWait, Place, RunHistory, StepKind, StepView, WaitView
from tests.support.drivers import ERROR, NAME, DriverEnv, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
EVENT = "order.approved"
KEY = "7"
CHILD = "child.job"
EVERY_NAME = (NAME, CHILD)


def at(number: int, branch: str = "") -> Place:
    return Place(branch=branch, number=number)


def a_step(name: str = "load", number: int = 0, **fields: Any) -> NewStep:
    """Give a step of the kind run; any field of `NewStep` can be named."""
    defaults: dict[str, Any] = {"kind": StepKind.RUN, "place": at(number), "value": f'"{name}"'}
    return NewStep(name=name, **{**defaults, **fields})


def a_sleep(name: str = "nap", number: int = 0, **fields: Any) -> NewWait:
    """Give a sleep of an hour, unless `delay` or `until` says otherwise."""
    if "until" not in fields:
        fields.setdefault("delay", HOUR)
    fields.setdefault("place", at(number))
    return NewWait(name=name, kind=StepKind.SLEEP, **fields)


def an_event(name: str = "approval", number: int = 0, **fields: Any) -> NewWait:
    """Give a wait for `EVENT` with `KEY`, without a timeout unless `delay` or `until` gives it one."""
    defaults: dict[str, Any] = {"place": at(number), "event": EVENT, "key": KEY}
    return NewWait(name=name, kind=StepKind.EVENT, **{**defaults, **fields})


def a_call(child: NewJob, name: str = "call", number: int = 0, **fields: Any) -> NewWait:
    """Give a call of a child."""
    fields.setdefault("place", at(number))
    return NewWait(name=name, kind=StepKind.CALL, child=child, **fields)


def known(wait: NewWait) -> NewWait:
    """Give a wait as a later suspension names it: by name, kind and place alone."""
    return NewWait(name=wait.name, kind=wait.kind, place=wait.place, is_known=True)


def a_child(parent: ClaimedJob, name: str = CHILD, **fields: Any) -> NewJob:
    """Give a job that a run calls."""
    return new_job(name, parent_id=parent.token.job_id, **fields)


# --- what a worker does


async def enlist(env: DriverEnv, **fields: Any) -> WorkerId:
    """Register a worker whose lease outlasts the test."""
    return await env.register(lease_ms=10 * 24 * 3600 * 1000, **fields)


async def settle(env: DriverEnv, held: ClaimedJob, outcome: Outcome, **facts: Any) -> None:
    """Settle an attempt as a worker does, which knows whose child the job is; `facts` are of `Settlement`."""
    is_child = held.parent_id is not None
    (answer,) = await env.driver.settle(
        [Settlement(token=held.token, outcome=outcome, **{"is_child": is_child, **facts})]
    )
    assert answer is SettleAnswer.SETTLED


async def suspend(env: DriverEnv, held: ClaimedJob, *waits: NewWait) -> State:
    """Settle an attempt as suspended, and give the state of its job after that."""
    await settle(env, held, Suspended(waits=waits), has_waits=True)
    return await state_of(env, held.token.job_id)


async def suspended(env: DriverEnv, *waits: NewWait, worker: WorkerId | None = None, **fields: Any) -> ClaimedJob:
    """Enqueue and claim a job, the only one that is ready, and suspend its run."""
    held = await env.running(await enlist(env) if worker is None else worker, **fields)
    assert await suspend(env, held, *waits) is State.SUSPENDED
    return held


async def called(env: DriverEnv, worker: WorkerId | None = None, **fields: Any) -> tuple[ClaimedJob, ClaimedJob]:
    """Give a run that is suspended over a call, and its child in a worker's hands."""
    worker = await enlist(env) if worker is None else worker
    parent = await env.running(worker)
    child = a_child(parent, **fields)
    assert await suspend(env, parent, a_call(child)) is State.SUSPENDED
    return parent, await claim_child(env, worker, child.id)


async def claim_child(env: DriverEnv, worker: WorkerId, child_id: JobId) -> ClaimedJob:
    """Claim a child, the only one that is ready."""
    held = await env.claim_one(worker, names=(CHILD,))
    assert held.token.job_id == child_id
    return held


async def die(env: DriverEnv, held: ClaimedJob, **facts: Any) -> None:
    """Settle an attempt as a terminal failure."""
    await settle(env, held, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL), **facts)


async def record(env: DriverEnv, token: ClaimToken, *names: str) -> None:
    """Record steps, the first one at number 0."""
    for number, name in enumerate(names):
        assert await env.driver.record_step(token, a_step(name, number))


# --- what others do


async def emit(env: DriverEnv, payload: str = '{"by": "ann"}', **fields: Any) -> Emitted:
    """Emit `EVENT` with `KEY` for the default tenant, unless a field says otherwise."""
    return await env.driver.emit(new_event(payload, **fields))


def new_event(payload: str = '{"by": "ann"}', **fields: Any) -> NewEvent:
    defaults: dict[str, Any] = {"id": EventId(uuid4()), "tenant": "default", "name": EVENT, "key": KEY}
    return NewEvent(payload=payload, **{**defaults, **fields})


# --- what is seen


async def state_of(env: DriverEnv, job_id: JobId) -> State:
    return (await env.describe(job_id)).state


async def history(env: DriverEnv, job_id: JobId) -> RunHistory:
    """Give what is recorded of the run that a job has now."""
    return await env.driver.history(job_id, (await env.describe(job_id)).run_id)


async def steps(env: DriverEnv, job_id: JobId) -> list[str]:
    """Give the names of the recorded steps, in order."""
    return [step.name for step in (await history(env, job_id)).steps]


async def waits(env: DriverEnv, job_id: JobId) -> list[str]:
    """Give the names of what a run waits for, in order."""
    return [wait.name for wait in (await history(env, job_id)).waits]


async def the_step(env: DriverEnv, job_id: JobId) -> StepView:
    """Give the one step that is recorded."""
    (step,) = (await history(env, job_id)).steps
    return step


async def the_wait(env: DriverEnv, job_id: JobId) -> WaitView:
    """Give the one wait that there is."""
    (wait,) = (await history(env, job_id)).waits
    return wait


async def order(env: DriverEnv, worker: WorkerId, names: tuple[str, ...] = EVERY_NAME) -> list[JobId]:
    """Claim everything that is ready, and give it in the order it came in."""
    return [held.token.job_id for held in await env.claim(worker, names=names, room=50)]

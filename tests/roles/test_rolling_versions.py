"""A rolling deploy that changes the order of steps, or the payload: whose workers take which runs, on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import uuid_utils
from pydantic import BaseModel

from app.domain.errors import JobStateConflict
from app.domain.job import JobId
from app.domain.ledger import CAUSE_ERROR, CAUSE_HANDED_BACK, CAUSE_HELD
from app.domain.outcome import OutcomeKind
from app.domain.snapshot import AttemptView
from app.domain.state import DeadReason, State
from app.domain.step import RetryMode
from app.jobs.handle import JobHandle, job
from app.lifecycle.drain import DrainNotice
from tests.roles.harness import Bench
from tests.roles.test_steps_runs import event
from tests.roles.test_worker_postgres import at
from tests.support import jobs_ship, jobs_ship_changed
from tests.support.processes import eventually

pytestmark = pytest.mark.postgres

OLD, NEW = jobs_ship.ship, jobs_ship_changed.ship
EXACT = "the code asks for run step 'weigh' as number 0, where run step 'pack', number 0, is recorded by code 1.0.0"


class Busy:
    """Keeps a worker with one place busy: it lives, and claims nothing until it is let go."""

    def __init__(self) -> None:
        self._free = asyncio.Event()

        @job("busy.job")
        async def body() -> None:
            await self._free.wait()

        self.job: JobHandle[Any, Any] = body

    async def occupy(self, bench: Bench) -> None:
        """Fill the worker's place."""
        await bench.until("attempt.started", await bench.enqueue("busy.job"))

    def free(self) -> None:
        """Let it claim again."""
        self._free.set()


@asynccontextmanager
async def old_but_busy(url: str, *handles: JobHandle[Any, Any]) -> AsyncIterator[tuple[Bench, Busy]]:
    """Run a worker of the old code that has no room now."""
    busy = Busy()
    async with at(url, *handles, busy.job, version="1.0.0", concurrency=1) as bench:
        await busy.occupy(bench)
        try:
            yield bench, busy
        finally:
            busy.free()


async def suspended(url: str, order: int = 7) -> JobId:
    """Have the old code begin a run, which waits for its approval, and leave."""
    async with at(url, OLD, version="1.0.0") as bench:
        job_id = await bench.enqueue(jobs_ship.NAME, {"order": order}, max_attempts=3)
        await bench.until("attempt.suspended", job_id)
    return job_id


async def approve(bench: Bench, order: int = 7) -> None:
    await bench.driver.emit(event(jobs_ship.EVENT, str(order), '{"by":"ann"}'))


def told(attempt: AttemptView) -> tuple[object, ...]:
    """Give what the ledger says of an attempt."""
    code = None if attempt.error is None else attempt.error.code
    return (attempt.outcome, attempt.cause, attempt.counted, attempt.code_version, attempt.step, code)


async def seen(bench: Bench, job_id: JobId, state: State) -> None:
    """Wait until a job is in a state; what moves it there says nothing on this worker."""

    async def is_there() -> bool:
        return (await bench.view(job_id)).state is state

    await eventually(is_there, f"the job is {state.value}", within=10)


async def test_a_run_goes_back_to_the_old_code_while_that_lives(database_url: str) -> None:
    job_id = await suspended(database_url)
    async with old_but_busy(database_url, OLD) as (old, busy), at(database_url, NEW, version="2.0.0") as new:
        await approve(new)
        await new.until("attempt.held", job_id)
        assert (await new.view(job_id)).state is State.READY
        busy.free()
        await old.until("attempt.completed", job_id)
        view = await new.view(job_id)
        assert (view.result, view.counters.attempt) == ('"box 7 sent by the old code"', 1)
        (handed,) = await new.ledger(job_id)
        assert told(handed) == (OutcomeKind.HELD, CAUSE_HANDED_BACK, False, "2.0.0", "weigh", "REPLAY_DIVERGED")
        assert handed.error is not None
        assert handed.error.message.startswith(EXACT)
        other = await new.enqueue(jobs_ship.NAME, {"order": 8})
        await seen(new, other, State.SUSPENDED)  # begun by either, it suits both
        assert len(new.probe.of("attempt.held")) == 1


async def test_a_run_is_held_with_the_exact_step_when_the_old_code_leaves(database_url: str) -> None:
    job_id = await suspended(database_url)
    async with at(database_url, NEW, version="2.0.0") as new:
        async with old_but_busy(database_url, OLD) as (old, _):
            await approve(new)
            await new.until("attempt.held", job_id)
            assert (await new.view(job_id)).state is State.READY
            old.worker.drain(DrainNotice(cause="SIGTERM", started=old.worker._monotonic(), seconds=5.0))
        await seen(new, job_id, State.HELD)
        assert (await new.view(job_id)).state_reason == EXACT


async def test_a_run_is_held_when_the_old_code_is_gone_and_released_when_it_comes_back(database_url: str) -> None:
    job_id = await suspended(database_url)
    async with at(database_url, NEW, version="2.0.0") as new:
        await approve(new)
        await new.until("attempt.held", job_id)
        view = await new.view(job_id)
        assert (view.state, view.state_reason, view.counters.attempt) == (State.HELD, EXACT, 0)
        (held,) = await new.ledger(job_id)
        assert told(held) == (OutcomeKind.HELD, CAUSE_HELD, False, "2.0.0", "weigh", "REPLAY_DIVERGED")
        assert new.probe.of("attempt.held")[0].facts["recorded_by"] == "1.0.0"
        with pytest.raises(JobStateConflict):
            await new.driver.retry(job_id, mode=RetryMode.RESUME)
        async with at(database_url, OLD, version="1.0.0") as old:  # the new code is there still, and does not take it
            await old.until("attempt.completed", job_id)
            assert (await old.view(job_id)).result == '"box 7 sent by the old code"'
        assert len(new.probe.of("attempt.held")) == 1


async def test_a_release_by_hand_is_for_whatever_code_fits(database_url: str) -> None:
    job_id = await suspended(database_url)
    async with at(database_url, NEW, version="2.0.0") as new:
        await approve(new)
        await new.until("attempt.held", job_id)
        await new.driver.release_held(job_id)
        await new.until("attempt.held", job_id, count=2)
        assert (await new.view(job_id)).state is State.HELD
    async with at(database_url, OLD, version="3.0.0") as mended:
        assert (await mended.view(job_id)).state is State.HELD
        await mended.driver.release_held(job_id)
        await mended.until("attempt.completed", job_id)
        assert [attempt.counted for attempt in await mended.ledger(job_id)] == [False, False]


async def test_a_held_run_is_begun_afresh_by_the_new_code(database_url: str) -> None:
    job_id = await suspended(database_url)
    async with at(database_url, NEW, version="2.0.0") as new:
        await approve(new)
        await new.until("attempt.held", job_id)
        before = (await new.view(job_id)).run_id
        await new.driver.retry(job_id, mode=RetryMode.FRESH)
        await new.until("attempt.completed", job_id)
        view = await new.view(job_id)
        assert (view.result, view.run_id != before) == ('"box 7 sent by the new code"', True)
        run = await new.driver.run(job_id)
        assert run is not None
        assert [step.name for step in run.history.steps] == ["weigh", "pack", "approval", "send"]


async def test_a_held_run_is_gone_on_with_from_a_step(database_url: str) -> None:
    job_id = await suspended(database_url)
    async with at(database_url, NEW, version="2.0.0") as new:
        await approve(new)
        await new.until("attempt.held", job_id)
        await new.driver.retry(job_id, from_step="pack")
        await new.until("attempt.completed", job_id)
        assert (await new.view(job_id)).result == '"box 7 sent by the new code"'


async def test_a_held_run_is_forked_for_the_new_code_and_stays(database_url: str) -> None:
    job_id = await suspended(database_url)
    async with at(database_url, NEW, version="2.0.0") as new:
        await approve(new)
        await new.until("attempt.held", job_id)
        copied = await new.driver.fork(job_id, new_id=_new_id())
        await new.until("attempt.held", copied.id)  # with the whole history, the copy fits no better
        forked = await new.driver.fork(job_id, new_id=_new_id(), from_step="pack")
        await new.until("attempt.suspended", forked.id)
        await approve(new)
        await new.until("attempt.completed", forked.id)
        view = await new.view(forked.id)
        assert (view.result, view.parent_id) == ('"box 7 sent by the new code"', job_id)
        assert (await new.view(job_id)).state is State.HELD


async def test_the_same_version_that_asks_for_other_steps_waits_for_an_operator(database_url: str) -> None:
    job_id = await suspended(database_url)
    async with at(database_url, NEW, version="1.0.0") as other:
        await approve(other)
        await other.until("attempt.held", job_id)
        assert other.probe.of("attempt.held")[0].facts["recorded_by"] is None
    async with at(database_url, OLD, version="1.0.0") as old:
        assert (await old.view(job_id)).state is State.HELD
        await old.driver.release_held(job_id)
        await old.until("attempt.completed", job_id)


# --- payloads ---------------------------------------------------------------------------------------------------------


class Wide(BaseModel):
    """What the old code wants."""

    number: int
    shop: str


class Narrow(BaseModel):
    """What the new code wants, and sends."""

    number: int


@job("order.job")
async def older(payload: Wide) -> str:
    return payload.shop


@job("order.job")
async def newer(payload: Narrow) -> str:
    return f"order {payload.number}"


async def test_a_payload_of_the_new_model_goes_to_the_newest_code_that_lives(database_url: str) -> None:
    busy = Busy()
    async with (
        at(database_url, older, version="1.0.0") as old,
        at(database_url, newer, busy.job, version="2.0.0", concurrency=1) as new,
    ):
        await busy.occupy(new)
        job_id = await old.enqueue("order.job", {"number": 7})
        await old.until("attempt.held", job_id)
        assert (await old.view(job_id)).state is State.READY
        busy.free()
        await new.until("attempt.completed", job_id)
        assert (await new.view(job_id)).result == '"order 7"'
        (handed,) = await new.ledger(job_id)
        assert told(handed) == (OutcomeKind.HELD, CAUSE_HANDED_BACK, False, "1.0.0", None, "PAYLOAD_INVALID")


async def test_a_payload_that_only_older_code_lives_for_is_dead(database_url: str) -> None:
    async with at(database_url, newer, version="2.0.0"):
        pass
    async with at(database_url, older, version="1.0.0") as old:
        job_id = await old.enqueue("order.job", {"number": 7}, max_attempts=25)
        await old.until("attempt.dead", job_id)
        view = await old.view(job_id)
        assert (view.state, view.state_reason) == (State.DEAD, DeadReason.TERMINAL)
        (dead,) = await old.ledger(job_id)
        assert told(dead) == (OutcomeKind.DEAD_LETTERED, CAUSE_ERROR, True, "1.0.0", None, "PAYLOAD_INVALID")
        assert "/shop" in (dead.error.message if dead.error else "")


async def test_a_payload_whose_code_leaves_before_it_was_taken_is_dead(database_url: str) -> None:
    busy = Busy()
    async with at(database_url, older, version="1.0.0") as old:
        async with at(database_url, newer, busy.job, version="2.0.0", concurrency=1) as new:
            await busy.occupy(new)
            job_id = await old.enqueue("order.job", {"number": 7})
            await old.until("attempt.held", job_id)
            new.worker.drain(DrainNotice(cause="SIGTERM", started=new.worker._monotonic(), seconds=5.0))
            busy.free()
        await seen(old, job_id, State.DEAD)
        view = await old.view(job_id)
        assert view.error is not None
        assert view.error.code == "PAYLOAD_INVALID"


def _new_id() -> JobId:
    return JobId(UUID(bytes=uuid_utils.uuid7().bytes))

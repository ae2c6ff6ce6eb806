"""Runs with steps, whole: a worker over the memory driver, from the first attempt to the result."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from app.domain.event import EventId, NewEvent
from app.domain.state import State
from app.jobs.context import JobContext
from app.jobs.handle import job
from tests.roles.harness import working

TICK = timedelta(milliseconds=30)


def event(name: str, key: str, payload: str, tenant: str = "default") -> NewEvent:
    return NewEvent(id=EventId(UUID(int=uuid4().int)), tenant=tenant, name=name, key=key, payload=payload)


async def test_a_run_sleeps_waits_for_an_event_and_does_each_step_once() -> None:
    calls: list[str] = []

    async def load(number: int) -> dict[str, int]:
        calls.append("load")
        return {"number": number}

    def double(number: int) -> tuple[int, int]:
        calls.append("double")
        return (number, number * 2)

    @job("whole.job")
    async def body(ctx: JobContext, number: int) -> list[object]:
        loaded = await ctx.step.run("load", load, number)
        await ctx.step.sleep("nap", TICK)
        pair = await ctx.step.run("double", double, loaded["number"])
        ok = await ctx.step.wait_for_event("approval", "order.approved", key=str(number))
        return [pair, ok, ctx.claim_no]

    async with working(body) as bench:
        job_id = await bench.enqueue("whole.job", {"number": 7})
        await bench.until("attempt.suspended", job_id, count=2)
        assert (await bench.view(job_id)).state is State.SUSPENDED
        await bench.driver.emit(event("order.approved", "7", '{"by":"ann"}'))
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert view.result == '[[7,14],{"by":"ann"},3]'
        assert calls == ["load", "double"]
        assert view.counters.attempt == 1

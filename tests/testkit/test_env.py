"""The world of one test: drains, the clock, events, views and inline runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from pydantic import BaseModel

from app.domain.errors import JobFailed, JobStateConflict, JobTimeout, RequestInvalid
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from app.jobs import JobContext, RetryPolicy, job
from app.testing import Env, open_env


class Order(BaseModel):
    number: int
    shop: str = "north"


@job("kit.plain")
async def plain(number: int) -> int:
    return number * 2


@job("kit.relay")
async def relay(ctx: JobContext, number: int) -> None:
    await ctx.enqueue(plain, {"number": number + 1})


@job("kit.long")
async def long(ctx: JobContext, payload: Order) -> list[object]:
    await ctx.step.sleep("nap", timedelta(days=2))
    ok = await ctx.step.wait_for_event("ok", "order.ok", key=str(payload.number), timeout=timedelta(days=5))
    return [payload.number, ok, await ctx.step.call("twice", plain, {"number": payload.number})]


@job("kit.flaky", retry=RetryPolicy(max_attempts=3, backoff=timedelta(minutes=1)))
async def flaky(ctx: JobContext) -> int:
    if ctx.attempt < 3:
        raise ValueError(f"attempt {ctx.attempt}")
    return ctx.attempt


async def test_a_drain_runs_what_is_ready_and_what_that_makes_ready(env: Env) -> None:
    queued = await env.enqueue(relay, {"number": 4})
    await env.drain()
    assert (await env.job(queued)).state is State.DONE
    (child,) = await env.jobs(plain)
    assert (child.state, child.result, child.parent_id) == (State.DONE, "10", queued.id)
    await env.drain()


async def test_handles_enqueue_with_the_kits_client(env: Env) -> None:
    queued = await plain.enqueue({"number": 1})
    assert await env.result(queued) == 2


async def test_time_wakes_a_run_in_order_and_an_event_ends_its_wait(env: Env) -> None:
    began = env.now()
    queued = await env.enqueue(long, Order(number=7))
    await env.advance("1d")
    assert (await env.job(queued)).state_reason == "sleep"
    await env.advance(timedelta(days=1))
    assert (await env.job(queued)).state_reason == "event"
    with pytest.raises(JobStateConflict, match="has no result yet"):
        await env.result(queued)
    assert (await env.emit("order.ok", "7", {"by": "ann"})).matched == 1
    assert await env.result(queued) == [7, {"by": "ann"}, 14]
    assert [step.name for step in (await env.steps(queued)).steps] == ["nap", "ok", "twice"]
    assert env.now() == began + timedelta(days=2) == (await env.job(queued)).finished_at


async def test_each_thing_that_becomes_due_runs_at_its_own_instant(env: Env) -> None:
    began = env.now()
    seen: list[tuple[str, timedelta]] = []

    @job("kit.marks")
    async def marks(ctx: JobContext, name: str, days: int) -> None:
        await ctx.step.sleep("nap", timedelta(days=days))
        seen.append((name, env.now() - began))

    await env.enqueue(marks, {"name": "b", "days": 20})
    await env.enqueue(marks, {"name": "a", "days": 3})
    await env.enqueue(marks, {"name": "late", "days": 300}, delay=timedelta(days=1))
    await env.advance("1w 1d")
    assert seen == [("a", timedelta(days=3))]
    await env.advance("52w")
    assert seen[1:] == [("b", timedelta(days=20)), ("late", timedelta(days=301))]


async def test_retries_wait_their_backoff(env: Env) -> None:
    queued = await env.enqueue(flaky)
    await env.drain()
    assert (await env.job(queued)).state is State.DELAYED
    assert repr(env.error(queued)) == "ValueError('attempt 1')"
    await env.advance("59s")
    assert len(await env.attempts(queued)) == 1
    await env.advance("1s")
    assert len(await env.attempts(queued)) == 2
    await env.advance("2m")
    assert await env.result(queued) == 3
    assert [one.outcome for one in await env.attempts(queued)] == [
        OutcomeKind.RETRIED,
        OutcomeKind.RETRIED,
        OutcomeKind.COMPLETED,
    ]


async def test_the_result_of_a_dead_job_is_its_error(env: Env) -> None:
    @job("kit.dies", retry=RetryPolicy(max_attempts=1))
    async def dies() -> None:
        raise KeyError("gone")

    with pytest.raises(JobFailed, match=r"kit\.dies .* is dead: KeyError") as failed:
        await env.result(await env.enqueue(dies))
    assert isinstance(failed.value.__cause__, KeyError)


async def test_a_timeout_follows_the_clock(env: Env) -> None:
    @job("kit.hangs", timeout=timedelta(minutes=2), retry=RetryPolicy(max_attempts=1))
    async def hangs() -> None:
        await asyncio.Event().wait()

    queued = await env.enqueue(hangs)
    await env.start(queued)
    await env.advance("1m 59s")
    assert (await env.job(queued)).state is State.RUNNING
    await env.advance("1s")
    assert (await env.job(queued)).state is State.RUNNING  # told, and has its grace
    await env.advance("2s")
    view = await env.job(queued)
    assert view.state is State.DEAD
    assert view.error is not None
    assert view.error.code == "JOB_TIMEOUT"


async def test_a_step_timeout_follows_the_clock(env: Env) -> None:
    @job("kit.slow_step", step_timeout=timedelta(hours=1), retry=RetryPolicy(max_attempts=1))
    async def slow_step(ctx: JobContext) -> None:
        await ctx.step.run("slow", asyncio.Event().wait)

    queued = await env.enqueue(slow_step)
    await env.start(queued)
    await env.advance("1h")
    view = await env.job(queued)
    assert view.error is not None
    assert view.error.code == "STEP_TIMEOUT"


async def test_a_deadline_ends_a_job_at_its_instant(env: Env) -> None:
    @job("kit.mortal", deadline=timedelta(hours=1))
    async def mortal(ctx: JobContext) -> None:
        await ctx.step.sleep("long", timedelta(days=1))

    began = env.now()
    queued = await env.enqueue(mortal)
    await env.advance("2d")
    view = await env.job(queued)
    assert (view.state, view.state_reason, view.finished_at) == (State.DEAD, "deadline", began + timedelta(hours=1))


@pytest.mark.outlast(patience=timedelta(seconds=1))
async def test_a_drain_names_what_does_not_end(env: Env) -> None:
    @job("kit.stuck")
    async def stuck() -> None:
        await asyncio.Event().wait()

    queued = await env.enqueue(stuck)
    with pytest.raises(JobTimeout, match=f"kit.stuck {queued.id}"):
        await env.drain()


async def test_inline_runs_at_once_and_raises_what_the_body_raised(env: Env) -> None:
    with env.inline():
        queued = await plain.enqueue({"number": 3})
        assert (await env.job(queued)).state is State.DONE
        with pytest.raises(ValueError, match="attempt 1"):
            await env.enqueue(flaky)
        await env.enqueue(relay, {"number": 8})
    assert (await env.jobs(plain))[-1].result == "18"


def sync_double(number: int) -> int:
    return number * 2


@job("kit.threaded")
def threaded(number: int) -> int:
    return number + 1


async def test_plain_functions_run_in_threads(env: Env) -> None:
    @job("kit.steps_in_thread")
    async def in_thread(ctx: JobContext, number: int) -> int:
        return await ctx.step.run("double", sync_double, number)

    assert await env.result(await env.enqueue(in_thread, {"number": 4})) == 8
    assert await env.result(await env.enqueue(threaded, {"number": 4})) == 5


async def test_what_was_enqueued_can_be_asked_for(env: Env) -> None:
    await env.enqueue(long, Order(number=1, shop="south"))
    await env.enqueue(long, Order(number=2))
    (found,) = await env.assert_enqueued(long, {"shop": "south"})
    assert found.queue == "default"
    await env.assert_enqueued(long, count=2)
    await env.assert_enqueued("kit.plain", count=0)
    with pytest.raises(AssertionError, match=r"expected at least one job kit\.long with .*, found 0\n.*\"south\""):
        await env.assert_enqueued(long, {"number": 3})
    with pytest.raises(AssertionError, match=r"no job kit\.plain was enqueued at all"):
        await env.assert_enqueued(plain)


async def test_misuse_says_what_to_do(env: Env) -> None:
    with pytest.raises(RequestInvalid, match="'3 days' is not a duration"):
        await env.advance("3 days")
    with pytest.raises(RequestInvalid, match="time only goes forward"):
        await env.advance(timedelta(seconds=-1))
    with pytest.raises(RequestInvalid, match="is not a job"):
        await env.job("nothing")
    with pytest.raises(RequestInvalid, match="is not a state"):
        await env.jobs(state="lost")
    with pytest.raises(RequestInvalid, match="is not the name of an event"):
        await env.emit("Not A Name", "k")
    with pytest.raises(TypeError, match="'key'"):
        await env.emit("order.ok")  # type: ignore[call-arg]


async def test_a_body_that_ends_by_nothing_does_not_keep_the_test() -> None:
    may_end = asyncio.Event()

    @job("kit.refuses")
    async def refuses() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    async with open_env() as env:
        queued = await env.enqueue(refuses)
        await env.start(queued)
        assert (await env.job(queued)).state is State.RUNNING
    may_end.set()
    await asyncio.sleep(0)

"""Runs with steps, whole: a worker over the memory driver, from the first attempt to the result."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

from app.domain.errors import ChildFailed
from app.domain.event import EventId, NewEvent
from app.domain.job import JobId, OnConflict
from app.domain.json_text import fingerprint
from app.domain.outcome import OutcomeKind
from app.domain.retry import RetryPolicy
from app.domain.state import State
from app.domain.step import RetryMode
from app.jobs.context import JobContext
from app.jobs.exits import Snooze
from app.jobs.handle import job
from tests.roles.harness import working

TICK = timedelta(milliseconds=30)
HOUR = timedelta(hours=1)
SOON = RetryPolicy(max_attempts=3, backoff=timedelta(milliseconds=20), jitter="none")


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
        facts = bench.probe.of("attempt.completed")[-1].facts
        assert (facts["steps"], facts["replayed"]) == (4, 4)
        assert bench.probe.of("attempt.suspended")[0].facts["waits"] == ["sleep nap"]


async def test_waiting_takes_no_place_in_the_worker() -> None:
    @job("waits.job")
    async def waits(ctx: JobContext) -> None:
        await ctx.step.sleep("long", HOUR)

    @job("quick.job")
    async def quick() -> None: ...

    async with working(waits, quick) as bench:
        ids = [await bench.enqueue("waits.job") for _ in range(30)]
        for job_id in ids:
            await bench.until("attempt.suspended", job_id)
        after = await bench.enqueue("quick.job")
        await bench.until("attempt.completed", after)


async def test_an_event_that_came_before_the_run_waited_for_it_is_taken() -> None:
    @job("event.job")
    async def body(ctx: JobContext) -> object:
        return await ctx.step.wait_for_event("paid", "order.paid", key="1", timeout=HOUR)

    async with working(child) as bench:
        job_id = await bench.enqueue("event.job")
        await bench.driver.emit(event("order.paid", "1", "5"))
        async with working(body, driver=bench.driver) as other:
            await other.until("attempt.completed", job_id)
            assert (await other.view(job_id)).result == "5"


async def test_an_event_that_does_not_come_gives_none() -> None:
    @job("late.job")
    async def body(ctx: JobContext) -> object:
        return [await ctx.step.wait_for_event("paid", "order.paid", key="1", timeout=TICK)]

    async with working(body) as bench:
        job_id = await bench.enqueue("late.job")
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == "[null]"


@job("child.job", retry=RetryPolicy(max_attempts=1))
async def child(number: int) -> tuple[int, str]:
    if number < 0:
        raise ValueError("negative")
    return (number * 2, "doubled")


async def test_children_run_side_by_side_and_give_their_results() -> None:
    @job("parent.job")
    async def parent(ctx: JobContext) -> list[object]:
        both = await ctx.step.gather(
            ctx.step.call("one", child, {"number": 1}), ctx.step.call("two", child, {"number": 2})
        )
        assert isinstance(both[0], tuple)
        return list(both)

    async with working(parent, child) as bench:
        job_id = await bench.enqueue("parent.job", tenant="acme")
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert view.result == '[[2,"doubled"],[4,"doubled"]]'
        run = await bench.driver.run(job_id)
        assert run is not None
        children = [await bench.view(one) for one in run.children]
        assert [(one.parent_id, one.tenant, one.state) for one in children] == [(job_id, "acme", State.DONE)] * 2


async def test_a_child_that_fails_is_made_anew_by_the_next_attempt() -> None:
    @job("parent.job", retry=SOON)
    async def parent(ctx: JobContext) -> object:
        return await ctx.step.call("one", child, {"number": -1 if ctx.attempt == 1 else 1})

    async with working(parent, child) as bench:
        job_id = await bench.enqueue("parent.job", max_attempts=3)
        await bench.until("attempt.completed", job_id)
        (failed,) = await bench.ledger(job_id)
        assert failed.error is not None
        assert (failed.error.code, failed.step, failed.counted) == ("CHILD_FAILED", "one", True)
        run = await bench.driver.run(job_id)
        assert run is not None
        assert len(run.children) == 2


async def test_a_child_that_fails_can_be_dealt_with_and_stays_failed() -> None:
    seen: list[int] = []

    @job("parent.job", retry=SOON)
    async def parent(ctx: JobContext) -> str:
        try:
            await ctx.step.call("one", child, {"number": -1})
        except ChildFailed:
            said = await ctx.step.run("instead", lambda: "by hand")
            seen.append(ctx.attempt)
            if ctx.attempt == 1:
                raise ConnectionError("once") from None
            return said
        return "never"

    async with working(parent, child) as bench:
        job_id = await bench.enqueue("parent.job", max_attempts=3)
        await bench.until("attempt.completed", job_id)
        assert seen == [1, 2]
        run = await bench.driver.run(job_id)
        assert run is not None
        assert len(run.children) == 1


async def test_a_parents_cancel_cancels_the_child_it_waits_for_and_not_one_it_only_enqueued() -> None:
    @job("parent.job")
    async def parent(ctx: JobContext) -> None:
        await ctx.enqueue(waits, {}, queue="elsewhere")
        await ctx.step.call("one", waits, {}, queue="elsewhere")

    @job("waits.job")
    async def waits() -> None: ...

    async with working(parent, waits) as bench:
        job_id = await bench.enqueue("parent.job")
        await bench.until("attempt.suspended", job_id)
        await bench.driver.cancel(job_id, reason="no longer needed")
        run = await bench.driver.run(job_id)
        assert run is not None
        states = [(await bench.view(one)).state for one in run.children]
        assert sorted(states) == [State.CANCELLED, State.READY]


async def test_a_fresh_retry_begins_a_new_run_with_nothing_of_the_old_one() -> None:
    @job("parent.job", retry=RetryPolicy(max_attempts=1))
    async def parent(ctx: JobContext) -> list[int]:
        marked = await ctx.step.run("mark", lambda: ctx.claim_no)
        if ctx.claim_no == 1:
            raise ValueError("for a fresh start")
        await ctx.step.sleep("nap", TICK)
        return [marked, ctx.claim_no]

    async with working(parent) as bench:
        job_id = await bench.enqueue("parent.job", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        await bench.driver.retry(job_id, mode=RetryMode.FRESH)
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == "[2,3]"


async def test_a_retry_goes_on_from_what_is_recorded_or_from_a_step() -> None:
    @job("again.job", retry=RetryPolicy(max_attempts=1))
    async def again(ctx: JobContext) -> list[int]:
        first = await ctx.step.run("first", lambda: ctx.claim_no)
        second = await ctx.step.run("second", lambda: ctx.claim_no)
        if ctx.claim_no < 3:
            raise ValueError("not yet")
        return [first, second]

    async with working(again) as bench:
        job_id = await bench.enqueue("again.job", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        await bench.driver.retry(job_id)
        await bench.until("attempt.dead", job_id, count=2)
        await bench.driver.retry(job_id, from_step="second")
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == "[1,3]"


async def test_a_fork_begins_with_the_history_of_another() -> None:
    @job("fork.job")
    async def body(ctx: JobContext) -> list[int]:
        calls.append(1)
        return [await ctx.step.run("first", lambda: ctx.claim_no), await ctx.step.run("second", lambda: 2)]

    calls: list[int] = []
    async with working(body) as bench:
        job_id = await bench.enqueue("fork.job")
        await bench.until("attempt.completed", job_id)
        forked = await bench.driver.fork(job_id, new_id=JobId(uuid4()), from_step="second")
        await bench.until("attempt.completed", forked.id)
        facts = bench.probe.of("attempt.completed")[-1].facts
        assert (facts["steps"], facts["replayed"]) == (2, 1)


async def test_a_snooze_keeps_what_is_recorded() -> None:
    @job("snooze.job")
    async def body(ctx: JobContext) -> int:
        marked = await ctx.step.run("mark", lambda: ctx.claim_no)
        if ctx.claim_no == 1:
            raise Snooze(TICK)
        return marked

    async with working(body) as bench:
        job_id = await bench.enqueue("snooze.job")
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == "1"


async def test_a_suspension_found_in_a_group_is_one() -> None:
    @job("group.job")
    async def body(ctx: JobContext) -> str:
        async with asyncio.TaskGroup():
            await ctx.step.sleep("nap", TICK)
        return "awake"

    async with working(body) as bench:
        job_id = await bench.enqueue("group.job")
        await bench.until("attempt.completed", job_id)
        assert bench.probe.of("suspension.swallowed") == []
        assert (await bench.view(job_id)).counters.attempt == 1


async def test_a_swallowed_suspension_is_said() -> None:
    @job("swallow.job")
    async def body(ctx: JobContext) -> str:
        try:
            await ctx.step.sleep("nap", TICK)
        except BaseException:  # noqa: BLE001 - what the test shows
            return "swallowed"
        return "awake"

    async with working(body) as bench:
        job_id = await bench.enqueue("swallow.job")
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == '"awake"'
        assert len(bench.probe.of("suspension.swallowed")) == 1


async def test_a_child_with_a_key_that_is_taken_is_waited_for_or_refused() -> None:
    @job("keyed.job", idempotency_key="{number}")
    async def keyed(number: int) -> int:
        return number

    @job("parent.job", retry=RetryPolicy(max_attempts=1))
    async def parent(ctx: JobContext, conflict: str) -> int:
        on_conflict: OnConflict = "error" if conflict == "error" else "return"
        return await ctx.step.call("one", keyed, {"number": 7}, on_conflict=on_conflict)

    async with working(parent, keyed) as bench:
        payload = {"number": 7}
        taken = await bench.enqueue("keyed.job", payload, key="7", queue="elsewhere", fingerprint=fingerprint(payload))
        waiting = await bench.enqueue("parent.job", {"conflict": "return"})
        await bench.until("attempt.suspended", waiting)
        refused = await bench.enqueue("parent.job", {"conflict": "error"}, max_attempts=1)
        await bench.until("attempt.dead", refused)
        (attempt,) = await bench.ledger(refused)
        assert attempt.error is not None
        assert (attempt.error.code, attempt.outcome) == ("JOB_DUPLICATE", OutcomeKind.DEAD_LETTERED)
        run = await bench.driver.run(waiting)
        assert run is not None
        assert [wait.child_id for wait in run.history.waits] == [taken]

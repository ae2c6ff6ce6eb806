"""Crash testing: jobs that survive pass, and each kind of mistake is found where it is."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from app.domain.errors import RequestInvalid
from app.jobs import JobContext, job
from app.testing import Crash, CrashDifference, Env, crash_everywhere
from app.testing.stores import KitStore

charged: dict[str, int] = {}
sent: list[str] = []


async def charge(key: str) -> int:
    charged[key] = 10
    return charged[key]


async def send(text: str) -> None:
    sent.append(text)


def reset() -> None:
    charged.clear()
    sent.clear()


def effects() -> object:
    return dict(charged), list(sent)


@job("crash.child")
async def child(number: int) -> int:
    return number + 1


@job("crash.careful")
async def careful(ctx: JobContext, order: int) -> list[object]:
    amount = await ctx.step.run("charge", charge, f"order-{order}")
    await ctx.step.sleep("cool-off", timedelta(hours=1))
    ok = await ctx.step.wait_for_event("approval", "order.approved", key=str(order))
    more = await ctx.step.call("child", child, {"number": order})
    return [amount, ok, more]


@job("crash.careless")
async def careless(ctx: JobContext, order: int) -> None:
    await ctx.step.run("charge", charge, f"order-{order}")
    await ctx.step.run("send", send, "receipt")


@job("crash.outside")
async def outside(ctx: JobContext, order: int) -> None:
    await ctx.step.run("charge", charge, f"order-{order}")
    sent.append("outside")
    await ctx.step.run("again", charge, f"again-{order}")


async def test_a_job_whose_steps_can_be_repeated_survives_everything() -> None:
    report = await crash_everywhere(
        careful, {"order": 7}, check=effects, before=reset, events=[("order.approved", "7", {"by": "ann"})]
    )
    assert not report.differences
    assert len(report.tried) == 4 * len({spot for spot, _ in report.tried})
    assert {spot.step for spot, _ in report.tried} == {"charge", "cool-off", "approval", "child"}
    assert report.expected.effects == ({"order-7": 10}, [])
    report = await crash_everywhere(careful, {"order": 7}, events=[("order.approved", "7", {"by": "ann"})])
    assert report.expected.effects == [10, {"by": "ann"}, 8]


async def test_a_step_that_cannot_be_repeated_is_found() -> None:
    with pytest.raises(CrashDifference) as found:
        await crash_everywhere(careless, {"order": 7}, check=effects, before=reset)
    differences = found.value.report.differences
    assert {(one.spot.moment.value, one.spot.step, one.crash) for one in differences} == {
        ("inside", "send", Crash.KILLED),
        ("inside", "send", Crash.LEASE_LOST),
        ("after", "charge", Crash.TWICE),
        ("before", "send", Crash.TWICE),
        ("inside", "send", Crash.TWICE),
    }


async def test_work_outside_of_steps_is_found() -> None:
    with pytest.raises(CrashDifference) as found:
        await crash_everywhere(outside, {"order": 7}, check=effects, before=reset)
    places = {(one.spot.moment.value, one.spot.step, one.crash) for one in found.value.report.differences}
    assert ("before", "again", Crash.KILLED) in places
    assert ("before", "again", Crash.SIGTERM) in places
    assert ("before", "charge", Crash.KILLED) not in places


async def test_misuse_says_what_to_do() -> None:
    with pytest.raises(RequestInvalid, match="two undisturbed runs do not have the same effects"):
        await crash_everywhere(careless, {"order": 7}, check=lambda: list(sent))
    with pytest.raises(RequestInvalid, match=r"it waits for the event 'order\.approved' with key '7'"):
        await crash_everywhere(careful, {"order": 7})
    with pytest.raises(RequestInvalid, match="is not a job"):
        await crash_everywhere(charge)  # type: ignore[arg-type] # the mistake


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_crashes_are_the_same_on_every_store(store: KitStore) -> None:
    @job("crash.one_step")
    async def one_step(ctx: JobContext) -> None:
        await ctx.step.run("send", send, "receipt")

    with pytest.raises(CrashDifference) as found:
        await crash_everywhere(one_step, check=effects, before=reset, store=store)
    assert {(one.spot.moment.value, one.spot.step, one.crash) for one in found.value.report.differences} == {
        ("inside", "send", Crash.KILLED),
        ("inside", "send", Crash.LEASE_LOST),
        ("inside", "send", Crash.TWICE),
        ("before", "send", Crash.TWICE),
    }


async def test_jobs_that_are_enqueued_twice_are_found_and_those_with_a_key_are_not() -> None:
    @job("crash.enqueues")
    async def enqueues(ctx: JobContext, key: str) -> None:
        await ctx.enqueue(child, {"number": 1}, idempotency_key=key or None)
        await ctx.step.run("charge", charge, "order")

    async def count(env: Env) -> int:
        return len(await env.jobs(child))

    @job("crash.enqueues_once", idempotency_key="once", dedupe_for=timedelta(days=1))
    async def once(number: int) -> int:
        return number

    @job("crash.enqueues_with_key")
    async def with_key(ctx: JobContext) -> None:
        await ctx.enqueue(once, {"number": 1})
        await ctx.step.run("charge", charge, "order")

    async def count_once(env: Env) -> int:
        return len(await env.jobs(once))

    with pytest.raises(CrashDifference) as found:
        await crash_everywhere(enqueues, {"key": ""}, check=count)
    assert found.value.report.expected.effects == 1
    assert "move it into a step" in str(found.value)
    await crash_everywhere(with_key, check=count_once)


async def test_a_killed_worker_runs_nothing_more_of_a_body() -> None:
    @job("crash.cleans_up")
    async def cleans_up(ctx: JobContext) -> None:
        try:
            await ctx.step.run("charge", charge, "order")
        except BaseException:
            sent.append("caught")
            raise
        finally:
            sent.append("finally")

    with pytest.raises(CrashDifference) as found:
        await crash_everywhere(cleans_up, check=effects, before=reset, crashes=[Crash.KILLED])
    (difference,) = found.value.report.differences
    assert difference.spot.moment == "end"  # where it had run already


async def test_branches_and_plain_functions_are_crashed_too() -> None:
    def write(key: str) -> None:
        charged[key] = 1

    @job("crash.branches")
    async def branches(ctx: JobContext) -> list[int]:
        async def left() -> int:
            await ctx.step.run("left", write, "left")
            return await ctx.step.call("child", child, {"number": 1})

        async def right() -> int:
            await ctx.step.sleep("right", timedelta(hours=2))
            return 2

        return list(await ctx.step.gather(left(), right()))

    report = await crash_everywhere(branches, check=effects, before=reset)
    assert {spot.step for spot, _ in report.tried} >= {"left", "child", "right"}
    assert report.expected.effects == ({"left": 1}, [])

    @job("crash.plain")
    def plain(number: int) -> int:
        charged["plain"] = number
        return number

    report = await crash_everywhere(plain, {"number": 3}, check=effects, before=reset)
    assert [spot.moment for spot, _ in report.tried] == ["end"] * 4


async def test_a_body_that_ends_by_no_signal_is_cut_off_by_the_clock() -> None:
    async def stubborn(ctx: JobContext) -> None:
        if ctx.signal.aborted:
            await asyncio.Event().wait()

    @job("crash.stubborn")
    async def body(ctx: JobContext) -> int:
        await ctx.step.run("charge", charge, "order")
        await stubborn(ctx)
        return 1

    await crash_everywhere(body, check=effects, before=reset)

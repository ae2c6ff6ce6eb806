"""Branches side by side: their orders, their errors and their waits."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import Aborted, ReplayDiverged, RequestInvalid
from app.domain.step import Place
from app.domain.verdict import Reason
from app.steps.api import Steps
from app.steps.suspension import Suspension
from tests.unit.steps_fakes import FakeRun

HOUR = timedelta(hours=1)
OUTER = "0.0"  # the first branch of a gather that is first


async def one() -> int:
    return 1


async def fails() -> int:
    raise ConnectionError("this branch fails")


async def fails_later() -> int:
    await asyncio.sleep(0.01)
    raise ValueError("this one too, later")


async def branch(step: Steps, name: str) -> str:
    await step.run(f"{name}.1", one)
    await asyncio.sleep(0)
    await step.run(f"{name}.2", one)
    return name


async def test_branches_have_places_of_their_own_and_the_gather_one_in_its_branch() -> None:
    run = FakeRun()

    async def body(step: Steps) -> tuple[str, str]:
        await step.run("before", one)
        both = await step.gather(branch(step, "x"), branch(step, "y"))
        await step.run("after", one)
        return both

    assert await run.attempt(body) == ("x", "y")
    assert {step.name: step.place for step in run.steps.values()} == {
        "before": Place("", 0),
        "x.1": Place("1.0", 0),
        "x.2": Place("1.0", 1),
        "y.1": Place("1.1", 0),
        "y.2": Place("1.1", 1),
        "after": Place("", 2),
    }
    assert await run.attempt(body) == ("x", "y")
    assert run.recorder.replayed == 6


async def test_branches_nest() -> None:
    run = FakeRun()

    async def inner(step: Steps) -> tuple[int, int]:
        return await step.gather(step.run("a", one), step.run("b", one))

    async def body(step: Steps) -> object:
        return await step.gather(inner(step), step.run("c", one))

    assert await run.attempt(body) == ((1, 1), 1)
    assert {step.name: step.place for step in run.steps.values()} == {
        "a": Place(f"{OUTER}.0.0", 0),
        "b": Place(f"{OUTER}.0.1", 0),
        "c": Place("0.1", 0),
    }
    assert await run.attempt(body) == ((1, 1), 1)


async def test_all_branches_end_and_record_before_the_first_error_in_declared_order_is_raised() -> None:
    run = FakeRun()

    async def body(step: Steps) -> object:
        return await step.gather(step.run("late", fails_later), step.run("soon", fails), branch(step, "x"))

    with pytest.raises(ValueError, match="later"):
        await run.attempt(body)
    assert sorted(run.steps) == ["x.1", "x.2"]


async def test_a_branch_that_waits_suspends_the_run_with_all_waits_and_before_any_error() -> None:
    run = FakeRun()

    async def body(step: Steps) -> object:
        return await step.gather(
            step.sleep("nap", HOUR), step.run("bad", fails), step.wait_for_event("paid", "order.paid", key="1")
        )

    with pytest.raises(Suspension):
        await run.attempt(body)
    assert sorted(run.waits) == ["nap", "paid"]
    run.over("nap")
    with pytest.raises(Suspension):
        await run.attempt(body)
    assert [(wait.name, wait.is_known) for wait in run.recorder.waits] == [("paid", True)]
    run.over("paid", "3", has_event=True)
    with pytest.raises(ConnectionError):
        await run.attempt(body)


async def test_a_sleep_lasts_from_when_it_was_asked_for_beside_a_branch_that_goes_on() -> None:
    run = FakeRun()

    async def long() -> int:
        await asyncio.sleep(0.15)
        return 1

    with pytest.raises(Suspension):
        await run.attempt(lambda step: step.gather(step.sleep("nap", HOUR), step.run("a", long)))
    (wait,) = run.recorder.waits
    assert wait.delay is not None
    assert timedelta(milliseconds=140) < HOUR - wait.delay < timedelta(seconds=10)


async def test_a_branch_that_swallows_its_suspension_waits_all_the_same() -> None:
    run = FakeRun()

    async def swallows(step: Steps) -> str:
        with suppress(BaseException):
            await step.sleep("nap", HOUR)
        return "awake"

    with pytest.raises(Suspension):
        await run.attempt(lambda step: step.gather(swallows(step), step.run("a", one)))


async def test_a_branch_that_was_told_to_stop_ends_the_attempt_although_another_waits() -> None:
    run = FakeRun()

    async def told(step: Steps) -> None:
        await step.run("a", one)
        run.signal.first = Reason.DRAIN
        await step.run("b", one)

    with pytest.raises(Aborted):
        await run.attempt(lambda step: step.gather(step.sleep("nap", HOUR), told(step)))
    assert not run.recorder.waits


async def test_a_cancelled_gather_ends_its_branches() -> None:
    run, ended = FakeRun(), []

    async def long() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(1)
        return 1

    task = asyncio.ensure_future(run.attempt(lambda step: step.gather(step.run("a", long), step.run("b", long))))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [1, 1]


async def test_a_branch_that_is_cancelled_alone_is_an_error_and_no_value() -> None:
    run = FakeRun()

    async def cancelled() -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return 1

    with pytest.raises(asyncio.CancelledError):
        await run.attempt(lambda step: step.gather(cancelled(), step.run("a", one)))
    assert list(run.steps) == ["a"]


async def fewer(step: Steps) -> object:
    return await step.gather(branch(step, "x"))


async def other_order(step: Steps) -> object:
    return await step.gather(branch(step, "y"), branch(step, "x"))


async def a_step_instead(step: Steps) -> object:
    return await step.run("new", one)


async def a_wait_instead(step: Steps) -> object:
    await step.sleep("new", HOUR)
    return await step.gather(branch(step, "x"), branch(step, "y"))


async def half(step: Steps) -> object:
    return await step.gather(branch(step, "x"), step.run("y.1", one))


@pytest.mark.parametrize(
    "body", [fewer, other_order, a_step_instead, a_wait_instead, half], ids=lambda body: body.__name__
)
async def test_branches_that_differ_from_the_record_are_found(body: Any) -> None:
    run = FakeRun()
    await run.attempt(lambda step: step.gather(branch(step, "x"), branch(step, "y")))
    with pytest.raises(ReplayDiverged):
        await run.attempt(body)


async def test_a_gather_inside_a_step_is_refused_and_leaves_no_coroutine_unawaited() -> None:
    run = FakeRun()

    async def body(step: Steps) -> None:
        async def inner() -> None:
            await step.gather(step.run("b", one))

        await step.run("a", inner)

    with pytest.raises(RequestInvalid):
        await run.attempt(body)


async def test_an_exit_in_a_branch_is_raised_like_any_error() -> None:
    run = FakeRun()

    async def leaves() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await run.attempt(lambda step: step.gather(leaves(), step.run("a", one)))
    assert list(run.steps) == ["a"]


async def test_a_gather_of_nothing_gives_nothing() -> None:
    assert await FakeRun().attempt(lambda step: step.gather()) == ()


async def test_branches_where_a_step_is_recorded_are_found_before_they_begin() -> None:
    run, begun = FakeRun(), []

    async def counted() -> None:
        begun.append(1)

    await run.attempt(lambda step: step.run("a", one))
    with pytest.raises(ReplayDiverged, match="1 branches as number 0, where run step 'a'"):
        await run.attempt(lambda step: step.gather(counted()))
    assert begun == []


async def test_branches_deep_inside_are_found_too() -> None:
    run = FakeRun()

    async def nested(step: Steps) -> object:
        return await step.gather(step.run("a", one), step.gather(step.run("b", one), step.run("c", one)))

    async def flat(step: Steps) -> object:
        return await step.gather(step.run("a", one), step.sleep("new", HOUR))

    await run.attempt(nested)
    with pytest.raises(ReplayDiverged):
        await run.attempt(flat)
    assert not run.recorder.waits

"""What a run's steps make of its being told to stop, whatever the body does with the exception."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from app.domain.errors import Aborted
from app.domain.verdict import Reason
from app.steps.api import Steps
from tests.unit.steps_fakes import FakeRun


async def one() -> int:
    return 1


async def fails_later() -> int:
    await asyncio.sleep(0.01)
    raise ValueError("later")


async def test_a_branch_that_catches_its_being_told_to_stop_ends_the_gather_all_the_same() -> None:
    run = FakeRun()

    async def told(step: Steps) -> str:
        run.signal.first = Reason.DRAIN
        with suppress(Exception):
            return str(await step.run("b", one))
        return "declined"

    with pytest.raises(Aborted):
        await run.attempt(lambda step: step.gather(step.run("a", one), told(step)))
    assert sorted(run.steps) == ["a"]


async def test_a_way_that_was_cut_short_is_no_divergence() -> None:
    run = FakeRun()

    async def first(step: Steps, *, is_told: bool) -> None:
        if is_told:
            run.signal.first = Reason.DRAIN
        await step.run("first", fails_later)

    async def second(step: Steps) -> None:
        await asyncio.sleep(0)
        await step.run("second", one)

    async def body(step: Steps, *, is_told: bool = False) -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(first(step, is_told=is_told))
                group.create_task(second(step))
        except* (ValueError, Aborted):
            pass
        return "declined"

    assert await run.attempt(body) == "declined"
    assert sorted(run.steps) == ["second"]
    assert await run.attempt(lambda step: body(step, is_told=True)) == "declined"
    assert "second" not in run.recorder.asked
    assert isinstance(run.recorder.stop.error, Aborted)

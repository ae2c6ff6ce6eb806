"""Transactions: the body's writes and the step together or neither, and a recorded block left out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from types import FrameType
from typing import Any

import pytest

from app.domain.errors import LeaseLost, RequestInvalid, StepTimeout
from app.steps.api import Steps
from tests.unit.steps_fakes import FakeRun


class Body:
    """A body with one transaction, written in one of the ways Python has for it; `runs` counts the block's runs."""

    def __init__(self) -> None:
        self.runs = 0

    def write(self, session: list[str]) -> None:
        """Be the block."""
        self.runs += 1
        session.append("row")

    async def plain(self, step: Steps) -> str:
        """Write a block."""
        async with step.transaction("book") as session:
            self.write(session)
        return "after"

    async def one_line(self, step: Steps) -> str:
        """Write a block on one line."""
        # fmt: off
        async with step.transaction("book") as session: self.write(session)  # noqa: E701 - what the test is about
        # fmt: on
        return "after"

    async def two_at_once(self, step: Steps) -> str:
        """Enter another context after it."""
        async with step.transaction("book") as session, _other():
            self.write(session)
        return "after"

    async def within_another(self, step: Steps) -> str:
        """Enter it inside another context, and handle errors around."""
        try:
            async with _other():  # noqa: SIM117 - what the test is about
                async with step.transaction("book") as session:
                    self.write(session)
        except ValueError:
            return "wrong"
        return "after"

    async def in_a_loop(self, step: Steps) -> str:
        """Write it in a loop, and a loop in it."""
        for _ in range(1):
            async with step.transaction("book") as session:
                self.write(session)
                for _ in range(2):
                    continue
        return "after"

    async def without_a_name(self, step: Steps) -> str:
        """Take the session from nowhere."""
        async with step.transaction("book"):
            self.runs += 1
            await asyncio.sleep(0)
        return "after"

    async def in_a_branch(self, step: Steps) -> str:
        """Write it in a branch."""
        await step.gather(self.plain(step))
        return "after"


@asynccontextmanager
async def _other() -> AsyncIterator[None]:
    yield


LEFT_OUT = ["plain", "one_line", "two_at_once", "within_another", "in_a_loop", "without_a_name", "in_a_branch"]


@pytest.mark.parametrize("way", LEFT_OUT)
async def test_a_recorded_block_is_left_out(way: str) -> None:
    run, body = FakeRun(), Body()
    for _ in range(3):
        assert await run.attempt(getattr(body, way)) == "after"
    assert body.runs == 1
    assert (len(run.committed), run.rolled_back) == (1, [])
    assert run.recorder.replayed == 1


@pytest.mark.parametrize("way", LEFT_OUT)
async def test_whatever_traces_goes_on_to_trace_after_a_block_was_left_out(way: str) -> None:
    run, body = FakeRun(), Body()
    await run.attempt(getattr(body, way))
    before, seen = sys.gettrace(), set[str]()

    def tracer(frame: FrameType, event: str, arg: object) -> Any:
        seen.add(frame.f_code.co_name)
        return tracer

    async def traced(step: Steps) -> None:
        await getattr(body, way)(step)
        assert sys.gettrace() is tracer
        _marker()

    sys.settrace(tracer)
    try:
        await run.attempt(traced)
    finally:
        sys.settrace(before)
    assert body.runs == 1
    assert "_marker" in seen


def _marker() -> None:
    pass


async def test_a_block_that_cannot_be_left_out_is_rolled_back() -> None:
    run, body = FakeRun(), Body()

    @asynccontextmanager
    async def wrapped(step: Steps) -> AsyncIterator[list[str]]:
        async with step.transaction("book") as session:
            yield session

    async def in_a_generator(step: Steps) -> str:
        async with wrapped(step) as session:
            body.write(session)
        return "after"

    async def on_a_stack(step: Steps) -> str:
        async with AsyncExitStack() as stack:
            body.write(await stack.enter_async_context(step.transaction("book")))
        return "after"

    for way in (in_a_generator, on_a_stack):
        run, body.runs = FakeRun(), 0
        for _ in range(2):
            assert await run.attempt(way) == "after"
        assert body.runs == 2
        assert (run.committed, run.rolled_back) == ([["row"]], [["row"]])
        assert sys.gettrace() is None or "trace" in repr(sys.gettrace()).lower()


async def test_a_block_that_fails_leaves_nothing_and_runs_again() -> None:
    run, body = FakeRun(), Body()

    async def fails(step: Steps) -> None:
        async with step.transaction("book") as session:
            body.write(session)
            raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        await run.attempt(fails)
    assert (run.committed, run.rolled_back, run.steps) == ([], [["row"]], {})
    assert await run.attempt(body.plain) == "after"
    assert run.committed == [["row"]]


async def test_a_block_under_a_claim_that_is_gone_commits_nothing() -> None:
    run = FakeRun()
    run.is_held = False
    with pytest.raises(LeaseLost):
        await run.attempt(Body().plain)
    assert run.committed == []


async def test_a_block_that_takes_too_long_is_rolled_back() -> None:
    run = FakeRun(step_timeout=timedelta(milliseconds=10))

    async def slow(step: Steps) -> None:
        async with step.transaction("book"):
            await asyncio.sleep(60)

    with pytest.raises(StepTimeout, match="book"):
        await run.attempt(slow)
    assert (run.committed, len(run.rolled_back)) == ([], 1)


async def test_a_step_inside_a_transaction_is_refused() -> None:
    run = FakeRun()

    async def nested(step: Steps) -> None:
        async with step.transaction("book"):
            await step.run("a", str)

    with pytest.raises(RequestInvalid, match="inside step 'book'"):
        await run.attempt(nested)
    assert run.committed == []


async def test_the_callers_engine_is_handed_to_the_store() -> None:
    run = FakeRun()

    async def bound(step: Steps) -> None:
        async with step.transaction("book", bind="engine") as session:
            session.append("row")

    await run.attempt(bound)
    assert run.committed == [["engine", "row"]]

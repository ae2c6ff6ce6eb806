"""What a run says of itself: lines and progress, kept in the background and before its attempt is settled."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from app.domain.errors import DriverUnavailable, RequestInvalid
from app.domain.state import State
from app.domain.step import LOG_LINE_MOST, PROGRESS_MESSAGE_MOST
from app.jobs.context import JobContext
from app.jobs.handle import job
from tests.roles.harness import Flaky, Gate, working


async def test_lines_and_the_last_progress_are_there_once_the_attempt_is_settled() -> None:
    @job("notes.job")
    async def body(ctx: JobContext) -> None:
        for number in range(3):
            ctx.log(f"line {number}")
            ctx.progress(number / 4, "on it")
        ctx.progress(1, "x" * 1000)
        ctx.log("y" * 5000)

    async with working(body) as bench:
        job_id = await bench.enqueue("notes.job")
        await bench.until("attempt.completed", job_id)
        run = await bench.driver.run(job_id)
        assert run is not None
        assert [line.message for line in run.lines] == ["line 0", "line 1", "line 2", "y" * LOG_LINE_MOST]
        assert run.progress is not None
        assert (run.progress.value, run.progress.message) == (1.0, "x" * PROGRESS_MESSAGE_MOST)


async def test_notes_of_a_running_body_are_kept_a_few_times_a_second_in_one_call() -> None:
    go_on = asyncio.Event()

    @job("notes.job")
    async def body(ctx: JobContext) -> None:
        for number in range(500):
            ctx.log(str(number))
            ctx.progress(number / 500)
        await go_on.wait()

    driver = Flaky()
    async with working(body, driver=driver) as bench:
        job_id = await bench.enqueue("notes.job")
        while (view := await bench.view(job_id)).progress is None:
            await asyncio.sleep(0.01)
        assert view.progress.value == 499 / 500
        assert driver.calls.count("note") == 1
        go_on.set()
        await bench.until("attempt.completed", job_id)
        assert driver.calls.count("note") == 1


@pytest.mark.parametrize(("said", "kept"), [(-1, 0.0), (7, 1.0), (float("nan"), 0.0), (float("inf"), 1.0)])
async def test_progress_is_brought_between_nothing_and_all(said: float, kept: float) -> None:
    @job("notes.job")
    async def body(ctx: JobContext) -> None:
        ctx.progress(said)

    async with working(body) as bench:
        job_id = await bench.enqueue("notes.job")
        await bench.until("attempt.completed", job_id)
        progress = (await bench.view(job_id)).progress
        assert progress is not None
        assert progress.value == kept


async def test_a_body_in_a_thread_says_things_too_and_has_no_steps() -> None:
    @job("thread.job")
    def body(ctx: JobContext) -> str:
        ctx.log("from a thread \0 \ud800")
        ctx.progress(0.5)
        try:
            _ = ctx.step
        except RequestInvalid as error:
            return error.fix
        return ""

    async with working(body) as bench:
        job_id = await bench.enqueue("thread.job")
        await bench.until("attempt.completed", job_id)
        assert "use async def" in ((await bench.view(job_id)).result or "")
        run = await bench.driver.run(job_id)
        assert run is not None
        assert [line.message for line in run.lines] == ["from a thread \ufffd \ufffd"]


async def test_notes_that_cannot_be_kept_never_fail_the_body() -> None:
    @job("notes.job")
    async def body(ctx: JobContext) -> None:
        ctx.log("lost")

    driver = Flaky()
    driver.before["note"] = DriverUnavailable("away", fix="none")
    async with working(body, driver=driver) as bench:
        job_id = await bench.enqueue("notes.job")
        await bench.until("attempt.completed", job_id)
        assert bench.probe.of("store.call_failed", verb="note")


async def test_what_is_no_number_and_no_text_never_fails_the_body() -> None:
    class Wordless:
        def __str__(self) -> str:
            raise ValueError("no words")

    @job("notes.job")
    async def body(ctx: JobContext) -> None:
        for value in ("half", None, 10**400):
            ctx.progress(value, Wordless())  # type: ignore[arg-type] # what the test shows
        ctx.log(Wordless())  # type: ignore[arg-type] # same

    async with working(body) as bench:
        job_id = await bench.enqueue("notes.job")
        await bench.until("attempt.completed", job_id)
        run = await bench.driver.run(job_id)
        assert run is not None
        assert [line.message for line in run.lines] == ["<Wordless>"]
        assert run.progress is not None
        assert (run.progress.value, run.progress.message) == (0.0, "<Wordless>")


async def test_an_attempt_is_settled_after_what_it_said_also_while_more_is_being_written_down() -> None:
    both = asyncio.Barrier(2)

    @job("notes.job")
    async def body(ctx: JobContext) -> None:
        await both.wait()
        ctx.log("a line")

    driver = Flaky()
    gate = Gate(driver, "note")
    async with working(body, driver=driver) as bench:
        ids = [await bench.enqueue("notes.job") for _ in range(2)]
        await gate.entered.wait()
        assert driver.calls.count("settle") == 0
        assert {(await bench.view(job_id)).state for job_id in ids} == {State.RUNNING}
        gate.go_on.set()
        for job_id in ids:
            await bench.until("attempt.completed", job_id)
            run = await driver.inner.run(job_id)
            assert run is not None
            assert [line.message for line in run.lines] == ["a line"]


async def test_a_body_that_says_nothing_costs_no_call() -> None:
    @job("silent.job")
    async def body(ctx: JobContext) -> None:
        await asyncio.sleep(0)

    driver = Flaky()
    async with working(body, driver=driver) as bench:
        job_id = await bench.enqueue("silent.job")
        await bench.until("attempt.completed", job_id)
    assert not {"note", "history", "record_step"} & set(driver.calls)


async def test_steps_of_a_body_that_has_ended_are_refused() -> None:
    kept: list[JobContext] = []

    @job("kept.job")
    async def body(ctx: JobContext) -> None:
        kept.append(ctx)

    async with working(body) as bench:
        job_id = await bench.enqueue("kept.job")
        await bench.until("attempt.completed", job_id)
        with pytest.raises(RequestInvalid, match="has ended"):
            await kept[0].step.sleep("nap", timedelta(seconds=1))

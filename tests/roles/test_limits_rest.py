"""A worker with limited jobs rests when nothing can be done: it neither spins nor asks the store over and over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.state import State
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.jobs.limits import Limit, Rate
from app.worker.claim_loop import ClaimLoop
from tests.roles.harness import QUICK, Flaky, working
from tests.roles.test_limits import ALL, RATED

SELDOM = replace(QUICK, poll=timedelta(seconds=60), sweep=timedelta(seconds=60), lease=timedelta(seconds=60))


@job("plain.job")
async def plain(ctx: JobContext) -> None:
    await ctx.signal.wait()


async def test_a_worker_without_room_does_not_spin_when_the_time_of_a_rate_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests, rest = [0], ClaimLoop._rest

    async def counted(loop: ClaimLoop) -> None:
        rests[0] += 1
        await rest(loop)

    monkeypatch.setattr(ClaimLoop, "_rest", counted)

    @job("rated.job", rate=Rate(1, per=timedelta(milliseconds=300)))
    async def rated() -> None: ...

    async with working(rated, plain, options=replace(SELDOM, concurrency=2)) as bench, asyncio.timeout(10):
        first = await bench.enqueue("plain.job")
        await bench.until("attempt.started", first)
        await bench.until("attempt.completed", await bench.enqueue("rated.job", limits=RATED))
        parked = await bench.enqueue("rated.job", limits=RATED)
        second = await bench.enqueue("plain.job")
        await bench.until("attempt.started", second)
        await asyncio.sleep(0.5)  # its time comes
        before = rests[0]
        await asyncio.sleep(0.5)
        spins = rests[0] - before
        await bench.driver.cancel(second, reason="a place")
        await bench.until("attempt.completed", parked)
        await bench.driver.cancel(first, reason="the end")
    assert spins <= 3


async def test_a_limited_job_that_must_run_alone_is_asked_for_again_when_the_worker_is_empty() -> None:
    @job("frail.job", limits=[Limit(2)])
    async def frail() -> None: ...

    flaky = Flaky()
    async with working(frail, plain, driver=flaky, options=SELDOM) as bench, asyncio.timeout(10):
        other = await bench.enqueue("plain.job")
        await bench.until("attempt.started", other)
        alone = await bench.enqueue("frail.job", limits=ALL, max_crashes=1)
        await asyncio.sleep(0.3)
        asked, view = flaky.calls.count("admit"), await bench.view(alone)
        await bench.driver.cancel(other, reason="a place")
        await bench.until("attempt.completed", alone)
    assert asked <= 5
    assert (view.state, view.counters.claim_no <= 1) == (State.READY, True)

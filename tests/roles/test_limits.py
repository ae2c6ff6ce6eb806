"""The worker and limits: slots are held while a body runs, given back once it has ended, and never waited for."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.job import JobId, LimitKey
from app.domain.limit import SlotQuery
from app.domain.state import State
from app.jobs.context import JobContext
from app.jobs.exits import Snooze
from app.jobs.handle import JobHandle, job
from app.jobs.limits import Limit, Rate
from app.jobs.registry import Registry
from app.lifecycle.drain import DrainNotice
from tests.roles.harness import Bench, Flaky, working
from tests.roles.test_worker_postgres import at

ALL = (LimitKey("limit", ""),)
RATED = (LimitKey("rate", ""),)
HOUR = timedelta(hours=1)


class Counted:
    """How many bodies of each key run now, and ever did at once."""

    def __init__(self) -> None:
        self.now = self.most = self.begun = 0

    async def one(self, seconds: float = 0.002) -> None:
        self.now += 1
        self.begun += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.now -= 1


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def start(request: pytest.FixtureRequest) -> Any:
    """Give what opens a worker over one of the stores."""
    if request.param == "memory":
        return working
    url = request.getfixturevalue("database_url")

    def opened(*handles: JobHandle[Any, Any]) -> AbstractAsyncContextManager[Bench]:
        return at(url, *handles)

    return opened


async def _slots(bench: Bench) -> list[JobId]:
    return [slot.job_id for slot in await bench.driver.slots(SlotQuery(limit=200))]


async def _until_no_slots(bench: Bench) -> None:
    async with asyncio.timeout(5):
        while await _slots(bench):
            await asyncio.sleep(0.01)


async def test_limited_jobs_run_one_at_a_time_and_all_of_them(start: Any) -> None:
    counted = Counted()

    @job("one.job", limits=[Limit(1)])
    async def one() -> None:
        await counted.one()

    async with start(one) as bench:
        ids = [await bench.enqueue("one.job", limits=ALL) for _ in range(30)]
        for job_id in ids:
            await bench.until("attempt.completed", job_id)
        await _until_no_slots(bench)
    assert (counted.most, counted.begun) == (1, 30)


async def test_a_limit_of_three_is_used_and_kept(start: Any) -> None:
    counted = Counted()

    @job("three.job", limits=[Limit(3)])
    async def three() -> None:
        await counted.one(0.02)

    async with start(three) as bench:
        ids = [await bench.enqueue("three.job", limits=ALL) for _ in range(30)]
        for job_id in ids:
            await bench.until("attempt.completed", job_id)
    assert counted.most == 3


async def test_limited_and_other_jobs_share_the_places(start: Any) -> None:
    counted = Counted()

    @job("one.job", limits=[Limit(1)])
    async def one() -> None:
        await counted.one()

    @job("plain.job")
    async def plain() -> None:
        await asyncio.sleep(0)

    async with start(one, plain) as bench:
        under = [await bench.enqueue("one.job", limits=ALL) for _ in range(20)]
        others = [await bench.enqueue("plain.job") for _ in range(300)]
        for job_id in (*under, *others):
            await bench.until("attempt.completed", job_id)
    assert counted.most == 1


async def test_a_worker_without_limits_runs_what_waits_in_the_gate(start: Any) -> None:
    @job("was.limited")
    async def was() -> None: ...

    async with start(was) as bench:
        job_id = await bench.enqueue("was.limited", limits=ALL)
        await bench.until("attempt.completed", job_id)
        await _until_no_slots(bench)


async def test_a_rate_lets_jobs_start_one_after_the_other(start: Any) -> None:
    @job("rated.job", rate=Rate(2, per=timedelta(milliseconds=600)))
    async def rated() -> None: ...

    async with start(rated) as bench:
        ids = [await bench.enqueue("rated.job", limits=RATED) for _ in range(4)]
        for job_id in ids:
            await bench.until("attempt.completed", job_id)
        starts = [(await bench.view(job_id)).started_at for job_id in ids]
    waited = [at - starts[0] for at in starts if at is not None and starts[0] is not None]
    slack = timedelta(milliseconds=50)  # the rate counts from a statement before the one that starts the attempt
    assert waited[2] >= timedelta(milliseconds=300) - slack
    assert waited[3] >= timedelta(milliseconds=600) - slack


async def test_a_cancelled_body_that_runs_on_keeps_its_slot(start: Any) -> None:
    go_on = asyncio.Event()
    ran: list[str] = []

    @job("stubborn.job", limits=[Limit(1)], abort="signal")
    async def stubborn(ctx: JobContext) -> None:
        ran.append(str(ctx.id))
        if len(ran) == 1:
            await go_on.wait()

    async with start(stubborn) as bench:
        first = await bench.enqueue("stubborn.job", limits=ALL)
        await bench.until("attempt.started", first)
        second = await bench.enqueue("stubborn.job", limits=ALL)
        await bench.driver.cancel(first, reason="stop")
        await bench.until("attempt.abandoned", first)
        await asyncio.sleep(0.3)
        assert (ran, await _slots(bench)) == ([str(first)], [first])
        go_on.set()
        await bench.until("attempt.completed", second)


async def test_a_snoozed_job_holds_no_slot(start: Any) -> None:
    seen: list[JobId] = []

    @job("lazy.job", limits=[Limit(1)])
    async def lazy(ctx: JobContext) -> None:
        seen.append(ctx.id)
        if len(seen) == 1:
            raise Snooze(HOUR)

    async with start(lazy) as bench:
        first = await bench.enqueue("lazy.job", limits=ALL)
        second = await bench.enqueue("lazy.job", limits=ALL)
        await bench.until("attempt.completed", second)
        assert (await bench.view(first)).state is State.DELAYED


async def test_a_drain_gives_slots_and_jobs_back(start: Any) -> None:
    @job("long.job", limits=[Limit(2)])
    async def long(ctx: JobContext) -> None:
        await ctx.signal.wait()
        ctx.signal.raise_if_aborted()

    async with start(long) as bench:
        ids = [await bench.enqueue("long.job", limits=ALL) for _ in range(3)]
        await bench.until("attempt.started", ids[0])
        await bench.until("attempt.started", ids[1])
        bench.worker.drain(DrainNotice(cause="test", started=bench.worker._monotonic(), seconds=5))
        await bench.worker.stop()
        assert await _slots(bench) == []
        assert [(await bench.view(job_id)).state for job_id in ids] == [State.READY] * 3


async def test_slots_that_cannot_be_given_back_now_are_later() -> None:
    flaky = Flaky()

    @job("one.job", limits=[Limit(1)])
    async def one() -> None: ...

    async with working(one, driver=flaky) as bench:
        flaky.before["free_slots"] = DriverUnavailable("away", fix="wait")
        first, second = [await bench.enqueue("one.job", limits=ALL) for _ in range(2)]
        await bench.until("attempt.completed", first)
        await bench.probe.wait("store.call_failed", verb="free_slots")
        assert (await bench.view(second)).state is State.READY
        del flaky.before["free_slots"]
        await bench.until("attempt.completed", second)


async def test_an_admission_whose_reply_was_lost_is_reconciled_with_its_slots() -> None:
    flaky = Flaky()

    @job("one.job", limits=[Limit(1)])
    async def one() -> None: ...

    flaky.after["admit"] = DriverUnavailable("cut", fix="wait")
    async with working(one, driver=flaky) as bench:
        job_id = await bench.enqueue("one.job", limits=ALL)
        async with asyncio.timeout(5):
            while await _slots(bench) != [job_id]:
                await asyncio.sleep(0.01)
        del flaky.after["admit"]
        await bench.until("attempt.completed", job_id)
        await _until_no_slots(bench)


async def test_a_worker_without_limits_never_asks_for_the_gate() -> None:
    flaky = Flaky()

    @job("plain.job")
    async def plain() -> None: ...

    async with working(plain, driver=flaky) as bench:
        ids = [await bench.enqueue("plain.job") for _ in range(50)]
        for job_id in ids:
            await bench.until("attempt.completed", job_id)
        await asyncio.sleep(0.3)
    assert not {"admit", "free_slots", "return_slots", "sweep_slots"} & set(flaky.calls)


async def test_unlimited_jobs_go_on_while_a_slot_cannot_be_given_back() -> None:
    flaky = Flaky()
    held = asyncio.Event()

    @job("one.job", limits=[Limit(1)])
    async def one() -> None: ...

    @job("plain.job")
    async def plain(ctx: JobContext) -> None:
        await ctx.signal.wait()

    async def hang() -> None:
        held.set()
        await asyncio.Event().wait()

    async with working(one, plain, driver=flaky) as bench:
        running = await bench.enqueue("plain.job")
        await bench.until("attempt.started", running)
        flaky.hold["free_slots"] = hang
        limited = await bench.enqueue("one.job", limits=ALL)
        await bench.until("attempt.completed", limited)
        await held.wait()
        others = [await bench.enqueue("plain.job") for _ in range(3)]
        for job_id in others:
            await bench.until("attempt.started", job_id)
            await bench.driver.cancel(job_id, reason="stop")
            await bench.until("attempt.superseded", job_id)
        await bench.driver.cancel(running, reason="stop")


def test_a_registry_says_whether_any_type_is_limited() -> None:
    @job("plain.job")
    async def plain() -> None: ...

    @job("one.job", limits=[Limit(1)])
    async def one() -> None: ...

    @job("rated.job", rate=Rate(1, per=HOUR))
    async def rated() -> None: ...

    assert [Registry([handle]).has_limits for handle in (plain, one, rated)] == [False, True, True]

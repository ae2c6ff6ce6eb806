"""When a worker claims, and what becomes of claims that come too late."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.job import ClaimedJob, WorkerId
from app.domain.outcome import OutcomeKind
from app.domain.snapshot import Due, Reaped
from app.domain.state import DeadReason, State
from app.drivers.protocol import ClaimRequest, QueueShare
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.worker.options import QueueLimit
from tests.roles.harness import QUICK, Bench, Flaky, working
from tests.support.drivers import new_id, new_worker

DOWN = DriverUnavailable("the store is down", fix="wait")
PATIENT = replace(QUICK, poll=timedelta(seconds=60))


@job("quick.job")
async def quick() -> int:
    return 1


async def test_full_queues_are_not_claimed_from_though_places_are_free() -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    @job("hold.job")
    async def hold(ctx: JobContext, n: int) -> None:
        if n < len(gates):
            await gates[n].wait()

    driver = Flaky()
    options = replace(PATIENT, queues=(QueueLimit(queue="a", limit=2),), concurrency=10)
    async with working(hold, driver=driver, options=options) as bench:
        ids = [await bench.enqueue("hold.job", {"n": n}, queue="a") for n in range(2)]
        for job_id in ids:
            await bench.until("attempt.started", job_id)
        driver.calls.clear()
        third = await bench.enqueue("hold.job", {"n": 2}, queue="a")
        while driver.calls.count("due") < 3:
            await asyncio.sleep(0)
        assert "claim" not in driver.calls
        gates[0].set()
        await bench.until("attempt.completed", third)
        gates[1].set()
        await bench.until("attempt.completed", ids[1])
    assert not bench.probe.of("claim.failed")


@pytest.mark.parametrize("reply", ["comes", "is lost"])
async def test_a_claim_that_comes_after_its_lease_has_ended_is_given_back_and_no_crash(reply: str) -> None:
    """The claim takes place behind the surrender's back: its statement began before, and commits after."""

    class Slow(Flaky):
        def __init__(self) -> None:
            super().__init__()
            self.claimed, self.go_on, self.is_late = asyncio.Event(), asyncio.Event(), False
            self.surrendered: list[WorkerId] = []

        async def claim(self, request: ClaimRequest) -> tuple[ClaimedJob, ...]:
            jobs = await self.inner.claim(request)
            if jobs and not self.is_late:
                self.is_late = True
                self.claimed.set()
                await self.go_on.wait()
                if reply == "is lost":
                    raise DOWN
            return jobs

        async def surrender(self, worker_id: WorkerId) -> tuple[Reaped, ...]:
            self.surrendered.append(worker_id)
            return () if len(self.surrendered) == 1 else await self.inner.surrender(worker_id)

    driver = Slow()
    options = replace(QUICK, lease=timedelta(seconds=1), sweep=timedelta(minutes=10))
    async with working(quick, driver=driver, options=options) as bench:
        first = bench.worker.worker_id
        job_id = await bench.enqueue("quick.job")
        await driver.claimed.wait()
        driver.before["renew"] = DOWN
        await bench.probe.wait("worker.lease_over")
        driver.before.clear()
        while bench.worker.worker_id == first:
            await asyncio.sleep(0)
        driver.go_on.set()
        await bench.until("attempt.lease_lost", job_id)
        await bench.until("attempt.completed", job_id)
        assert driver.surrendered == [first, first]
        assert [one.outcome for one in await bench.ledger(job_id)] == [OutcomeKind.LEASE_LOST]
        assert (await bench.view(job_id)).counters.crashes == 0


async def test_a_surrender_that_fails_is_repeated() -> None:
    driver = Flaky()

    @job("waits.job")
    async def waits(ctx: JobContext) -> None:
        if ctx.claim_no == 1:
            await ctx.signal.wait()

    options = replace(QUICK, lease=timedelta(seconds=1), sweep=timedelta(minutes=10))
    async with working(waits, driver=driver, options=options) as bench:
        job_id = await bench.enqueue("waits.job")
        await bench.until("attempt.started", job_id)
        driver.before.update({"renew": DOWN, "surrender": DOWN})
        await bench.probe.wait("store.call_failed", verb="surrender", count=2)
        driver.before.clear()
        driver.before["register_worker"] = DOWN
        await bench.until("attempt.lease_lost", job_id)
        await bench.probe.wait("store.call_failed", verb="register", count=2)
        driver.before.clear()
        await bench.until("attempt.completed", job_id)
        assert driver.calls.count("surrender") >= 3


async def test_a_job_whose_deadline_has_passed_is_not_begun() -> None:
    @job("late.job")
    async def late() -> None:
        raise AssertionError("begun")

    driver = Flaky()
    driver.before["expire"] = DOWN
    bench = Bench([late], driver=driver)
    job_id = await bench.enqueue("late.job", deadline=timedelta(microseconds=1), max_attempts=9)
    await bench.worker.start()
    dead = await bench.probe.wait("attempt.dead", job_id=str(job_id))
    view = await bench.view(job_id)
    assert (view.state, view.state_reason) == (State.DEAD, DeadReason.DEADLINE)
    assert view.error is not None
    assert (view.error.code, view.error.message) == ("JOB_TIMEOUT", "the job's deadline passed before it began")
    assert dead.facts["reason"] == "deadline"
    assert not bench.probe.of("attempt.started")
    await bench.worker.stop()
    assert bench.worker.held() == ()


async def test_one_sweep_ends_all_that_has_expired_and_says_so() -> None:
    options = replace(QUICK, sweep=timedelta(minutes=10))
    bench = Bench([quick], options=options)
    await bench.driver.pause_queue("default", by="test")
    ids = [await bench.enqueue("quick.job", max_queue_time=timedelta(microseconds=1)) for _ in range(2_001)]
    await bench.worker.start()
    await bench.probe.wait("job.dead", count=2_001)
    heard = bench.probe.of("job.dead", job="quick.job", queue="default", reason="expired", outcome="dead_lettered")
    assert {one.facts["job_id"] for one in heard} == {str(job_id) for job_id in ids}
    assert bench.value("outlast_jobs_total", job="quick.job", queue="default", outcome="dead") == 2_001
    await bench.worker.stop()


async def test_one_sweep_takes_over_all_that_a_worker_left_behind() -> None:
    options = replace(QUICK, sweep=timedelta(minutes=10), poll=timedelta(minutes=10))
    bench = Bench([quick], options=options)
    for _ in range(2_001):
        await bench.enqueue("quick.job", queue="ghosts")
    ghost = await bench.driver.register_worker(new_worker(lease_ms=600_000))
    shares = (QueueShare(queue="ghosts", room=5_000),)
    request = ClaimRequest(worker_id=ghost, shares=shares, names=frozenset({"quick.job"}), room=5_000)
    assert len(await bench.driver.claim(request)) == 2_001
    async with bench.driver.open_heartbeat() as store:
        await store.abandon(ghost, (), timedelta())  # no claim is marked, the lease ends now
    await bench.worker.start()
    await bench.probe.wait("attempt.interrupted", count=2_001)
    await bench.worker.stop()


async def test_a_sweep_with_more_to_do_ends_when_the_worker_leaves() -> None:
    class Endless(Flaky):
        async def due(self) -> Due:
            return Due(promote_in=None, must_expire=False, must_reap=True)

        async def reap(self, batch: int = 1000) -> tuple[Reaped, ...]:
            self.calls.append("reap")
            return _many(batch)

    driver = Endless()
    bench = Bench([quick], driver=driver)
    await bench.worker.start()
    while driver.calls.count("reap") < 3:
        await asyncio.sleep(0)
    await asyncio.wait_for(bench.worker.stop(), 5)


def _many(count: int) -> tuple[Reaped, ...]:
    one = Reaped(
        job_id=new_id(),
        name="quick.job",
        queue="default",
        claim_no=1,
        worker_id=WorkerId(1),
        outcome=OutcomeKind.CRASHED,
        cause="worker_vanished",
        attempt=1,
        lasted=timedelta(seconds=1),
        is_dead=False,
    )
    return (one,) * count


async def test_the_queue_wait_counts_from_when_the_job_was_due() -> None:
    async with working(quick) as bench:
        job_id = await bench.enqueue("quick.job", delay=timedelta(seconds=1))
        await bench.until("attempt.completed", job_id)
        assert bench.value("outlast_queue_wait_seconds_count", job="quick.job", queue="default") == 1
        assert bench.value("outlast_queue_wait_seconds_sum", job="quick.job", queue="default") < 0.9

"""Leases, outages and lost replies: what a worker does not hold it does not write, and an outage counts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from app.domain.errors import DriverUnavailable, OutlastError
from app.domain.outcome import OutcomeKind, SettleAnswer, Settlement
from app.domain.state import State
from app.domain.verdict import Reason
from app.drivers.protocol import ClaimRequest, QueueShare
from app.jobs.context import JobContext
from app.jobs.handle import job
from tests.roles.harness import QUICK, Flaky, working
from tests.support.drivers import new_worker

DOWN = DriverUnavailable("the store is down", fix="wait")
SHORT = replace(QUICK, lease=timedelta(seconds=1))
VERBS = (
    "claim", "settle", "reap", "promote", "expire", "renew", "reconcile", "release", "surrender", "register_worker",
    "open_heartbeat", "stats", "describe_worker_phase", "isolate",
)  # fmt: skip


def down(driver: Flaky) -> None:
    driver.before.update(dict.fromkeys(VERBS, DOWN))


@job("quick.job")
async def quick() -> int:
    return 1


@job("waits.job")
async def waits(ctx: JobContext) -> None:
    await ctx.signal.wait()
    ctx.signal.raise_if_aborted()


async def test_an_outage_longer_than_the_lease_counts_nothing_against_any_job() -> None:
    driver, seen = Flaky(), list[Reason | None]()
    release = asyncio.Event()

    @job("patient.job")
    async def patient(ctx: JobContext) -> None:
        if ctx.claim_no == 1:
            seen.append(await ctx.signal.wait())
        else:
            await release.wait()

    async with working(patient, driver=driver, options=SHORT) as bench:
        first = bench.worker.worker_id
        job_id = await bench.enqueue("patient.job")
        await bench.until("attempt.started", job_id)
        down(driver)
        await bench.probe.wait("worker.lease_over")
        await bench.until("lease.lost", job_id)
        driver.before.clear()
        await bench.until("attempt.lease_lost", job_id)
        await bench.until("attempt.started", job_id, count=2)
        release.set()
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert (view.counters.attempt, view.counters.crashes) == (1, 0)
        assert [(one.outcome, one.counted) for one in await bench.ledger(job_id)] == [(OutcomeKind.LEASE_LOST, False)]
        assert bench.worker.worker_id != first
        assert seen == [Reason.LEASE_LOST]
        assert bench.value("outlast_attempts_lease_lost_total", job="patient.job", queue="default") == 1


async def test_the_reaper_waits_one_lease_after_its_own_failed_sweep() -> None:
    driver = Flaky()
    async with working(quick, driver=driver, options=SHORT) as bench:
        driver.before["reap"] = DOWN
        await bench.probe.wait("sweep.reap_failed")
        driver.before.clear()
        driver.calls.clear()
        loop = asyncio.get_running_loop()
        began = loop.time()
        while "reap" not in driver.calls:
            await bench.probe.wait("attempt.completed", job_id=str(await bench.enqueue("quick.job")))
        assert loop.time() - began >= 0.8


async def test_a_claim_whose_reply_was_lost_is_handed_back_and_runs() -> None:
    driver = Flaky()
    driver.after["claim"] = DOWN
    async with working(quick, driver=driver) as bench:
        job_id = await bench.enqueue("quick.job")
        await bench.probe.wait("claim.failed")
        while (await bench.view(job_id)).counters.claim_no == 0:
            await asyncio.sleep(0)
        driver.after.clear()
        await bench.until("attempt.completed", job_id)
        view = await bench.view(job_id)
        assert view.counters.attempt == 1
        assert view.counters.claim_no >= 2
        assert not await bench.ledger(job_id)
        assert "reconcile" in driver.calls


async def test_a_failing_settle_is_repeated_while_the_lease_lasts() -> None:
    driver = Flaky()
    driver.before["settle"] = DOWN
    async with working(quick, driver=driver) as bench:
        job_id = await bench.enqueue("quick.job")
        await bench.probe.wait("settle.failed", count=2)
        assert (await bench.view(job_id)).state is State.RUNNING
        driver.before.clear()
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == "1"


async def test_a_settle_whose_reply_was_lost_counts_once() -> None:
    driver = Flaky()
    driver.after["settle"] = DOWN
    async with working(quick, driver=driver) as bench:
        job_id = await bench.enqueue("quick.job")
        await bench.probe.wait("settle.failed")
        driver.after.clear()
        await bench.until("attempt.completed", job_id)
        assert not bench.probe.of("lease.lost")
        assert bench.value("outlast_jobs_total", job="quick.job", queue="default", outcome="ok") == 1


async def test_a_settle_that_outlives_its_lease_is_left_to_whoever_takes_over() -> None:
    driver = Flaky()
    async with working(quick, driver=driver, options=SHORT) as bench:
        driver.before.update({"settle": DOWN, "renew": DOWN})
        job_id = await bench.enqueue("quick.job")
        await bench.until("settle.left", job_id)
        driver.before.clear()
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).counters.attempt == 1


async def test_a_value_the_store_refuses_becomes_a_failure_and_its_neighbours_are_stored() -> None:
    class Picky(Flaky):
        async def settle(self, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
            if any("poison" in repr(one) for one in settlements):
                raise OutlastError("the statement failed", fix="do not")
            return await self.inner.settle(settlements)

    @job("word.job")
    async def word(ctx: JobContext, text: str) -> str:
        await gate.wait()
        return text

    gate = asyncio.Event()
    async with working(word, driver=Picky()) as bench:
        texts = ["a", "poison", "b", "c"]
        ids = [await bench.enqueue("word.job", {"text": text}, max_attempts=1) for text in texts]
        for job_id in ids:
            await bench.until("attempt.started", job_id)
        gate.set()
        await bench.until("attempt.dead", ids[1])
        error = (await bench.view(ids[1])).error
        assert error is not None
        assert error.code == "RESULT_INVALID"
        for good in (ids[0], ids[2], ids[3]):
            await bench.until("attempt.completed", good)


async def test_a_refused_renewal_loses_the_lease_at_once() -> None:
    async with working(waits) as bench:
        job_id = await bench.enqueue("waits.job")
        await bench.until("attempt.started", job_id)
        worker_id = bench.worker.worker_id
        assert worker_id is not None
        await bench.driver.close_worker(worker_id)
        await bench.probe.wait("worker.lease_over", worker_id=int(worker_id))
        await bench.until("lease.lost", job_id)
        await bench.until("attempt.started", job_id, count=2)
        assert bench.worker.worker_id != worker_id
        await bench.driver.cancel(job_id, reason="enough")


async def test_after_half_a_lease_without_a_renewal_nothing_is_claimed() -> None:
    driver = Flaky()
    async with working(quick, driver=driver, options=replace(SHORT, lease=timedelta(seconds=1))) as bench:
        driver.before.update({"renew": DOWN, "open_heartbeat": DOWN})
        assert bench.worker._session is not None
        while bench.worker._session.registration.lease.may_claim:
            await asyncio.sleep(0)
        driver.calls.clear()
        job_id = await bench.enqueue("quick.job")
        await bench.probe.wait("worker.lease_over")
        assert "claim" not in driver.calls
        driver.before.clear()
        await bench.until("attempt.completed", job_id)


async def test_claims_of_a_worker_that_vanished_are_counted_as_crashes() -> None:
    driver = Flaky()
    async with working(quick, driver=driver, options=SHORT) as bench:
        ghost = await driver.inner.register_worker(new_worker(lease_ms=50, queues=("ghosts",)))
        job_id = await bench.enqueue("quick.job", queue="ghosts")
        await driver.inner.claim(
            ClaimRequest(
                worker_id=ghost,
                shares=(QueueShare(queue="ghosts", room=1),),
                names=frozenset({"quick.job"}),
                room=1,
            )
        )
        crashed = await bench.probe.wait("attempt.crashed", job_id=str(job_id))
        assert crashed.facts["of_worker"] == int(ghost)
        assert bench.value("outlast_attempts_crashed_total", job="quick.job", queue="ghosts") == 1
        assert (await bench.view(job_id)).counters.crashes == 1

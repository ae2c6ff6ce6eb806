"""Leases, outages and lost replies: what a worker does not hold it does not write, and an outage counts nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.job import ClaimedJob, ClaimToken, WorkerId
from app.domain.outcome import Completed, OutcomeKind, Settlement
from app.domain.snapshot import Due
from app.domain.state import State
from app.domain.verdict import Reason
from app.drivers.protocol import ClaimRequest, QueueShare
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.worker.backoff import Backoff
from app.worker.lease import boot_clock
from tests.roles.harness import QUICK, Bench, Flaky, working
from tests.support.drivers import new_worker
from tests.support.processes import eventually

DOWN = DriverUnavailable("the store is down", fix="wait")
SHORT = replace(QUICK, lease=timedelta(seconds=1))
VERBS = (
    "claim", "settle", "due", "reap", "promote", "expire", "renew", "reconcile", "release", "surrender",
    "register_worker", "open_heartbeat", "stats", "show_worker", "isolate",
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


class ReapsAlways(Flaky):
    """A store in which every look finds a claim to take over."""

    async def due(self) -> Due:
        self.calls.append("due")
        if "due" in self.before:
            raise self.before["due"]
        return Due(promote_in=None, must_expire=False, must_reap=True)


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


@pytest.mark.parametrize("verb", ["due", "reap"])
async def test_the_reaper_waits_one_lease_after_its_own_failed_sweep(verb: str) -> None:
    driver = ReapsAlways()
    async with working(quick, driver=driver, options=SHORT) as bench:
        driver.before[verb] = DOWN
        await bench.probe.wait("store.call_failed", verb=verb)
        driver.before.clear()
        driver.calls.clear()
        loop = asyncio.get_running_loop()
        began = loop.time()
        while "reap" not in driver.calls:
            await bench.probe.wait("attempt.completed", job_id=str(await bench.enqueue("quick.job")))
        assert loop.time() - began >= 0.8


async def test_the_reaper_waits_one_lease_after_a_renewal_that_landed_late() -> None:
    """Looks may work while nobody can write, as on a standby."""
    driver = ReapsAlways()
    async with working(quick, driver=driver, options=replace(SHORT, lease=timedelta(seconds=3))) as bench:
        assert bench.worker._session is not None
        registration = bench.worker._session.registration
        driver.before.update({"renew": DOWN, "open_heartbeat": DOWN})
        await eventually(lambda: not registration.lease.may_claim, "half a lease has passed")
        driver.calls.clear()
        driver.before.clear()
        await eventually(lambda: registration.lease.may_claim, "a renewal has landed")
        began = asyncio.get_running_loop().time()
        while "reap" not in driver.calls:
            await bench.probe.wait("attempt.completed", job_id=str(await bench.enqueue("quick.job")))
        assert asyncio.get_running_loop().time() - began >= 2.5


def test_what_a_lease_waits_for_is_tried_again_well_within_it() -> None:
    pauses = [Backoff(lambda: 1.0, lease_seconds=seconds) for seconds in (3.0, 30.0)]
    assert [max(pause.failed() for _ in range(9)) for pause in pauses] == [0.5, 2.0]


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


async def test_a_settle_held_up_until_another_worker_has_finished_the_job_changes_nothing() -> None:
    driver = Flaky()
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        entered.set()
        await go_on.wait()

    async with working(quick, driver=driver, options=SHORT) as bench:
        zombie = bench.worker.worker_id
        assert zombie is not None
        driver.before["renew"] = DOWN
        driver.hold["settle"] = hold
        job_id = await bench.enqueue("quick.job")
        await entered.wait()
        await bench.driver.pause_queue("default", by="test")
        await bench.probe.wait("attempt.lease_lost", job_id=str(job_id))
        other = await driver.inner.register_worker(new_worker())
        await driver.inner.resume_queue("default")
        (claimed,) = await driver.inner.claim(
            ClaimRequest(
                worker_id=other,
                shares=(QueueShare(queue="default", room=1),),
                names=frozenset({"quick.job"}),
                room=1,
            )
        )
        await driver.inner.settle([Settlement(token=claimed.token, outcome=Completed(result='"the other"'))])
        driver.before.clear()
        driver.hold.clear()
        go_on.set()
        await bench.until("lease.lost", job_id)
        view = await bench.view(job_id)
        assert (view.state, view.result, view.counters.attempt) == (State.DONE, '"the other"', 1)
        assert bench.value("outlast_jobs_total", job="quick.job", queue="default", outcome="ok") == 0


async def test_a_body_that_blocks_the_loop_for_longer_than_a_lease_keeps_its_claim() -> None:
    @job("blocks.job")
    async def blocks() -> None:
        threading.Event().wait(1.6)

    async with working(blocks, options=SHORT) as bench:
        job_id = await bench.enqueue("blocks.job")
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).counters.claim_no == 1
        assert not bench.probe.of("worker.lease_over")
        (blocked,) = bench.probe.of("worker.loop_blocked", is_over=False)
        assert blocked.facts["holder"] == f"outlast.run.{job_id}"
        assert "blocks" in str(blocked.facts["blocked_at"])
        (completed,) = bench.probe.of("attempt.completed")
        assert completed.facts["blocking"] is True
        assert bench.value("outlast_loop_lag_seconds") > 1


async def test_a_body_longer_than_many_leases_is_started_once() -> None:
    release = asyncio.Event()

    @job("long.job")
    async def long() -> None:
        await release.wait()

    options = replace(QUICK, lease=timedelta(milliseconds=900), heartbeat=timedelta(milliseconds=50))
    async with working(long, options=options) as bench:
        job_id = await bench.enqueue("long.job")
        await bench.until("attempt.started", job_id)
        loop = asyncio.get_running_loop()
        loop.call_later(2.5, release.set)
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).counters.claim_no == 1


async def test_a_claim_that_takes_place_long_after_its_caller_gave_up_is_handed_back() -> None:
    class Late(Flaky):
        lost: ClaimRequest | None = None

        async def claim(self, request: ClaimRequest) -> tuple[ClaimedJob, ...]:
            if self.lost is None:
                self.lost = request
                raise DOWN
            return await self.inner.claim(request)

        async def reconcile(
            self, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime | None = None
        ) -> int:
            self.calls.append("reconcile")
            count = await self.inner.reconcile(worker_id, held, before=before)
            if self.calls.count("reconcile") == 1 and self.lost is not None:
                assert len(await self.inner.claim(self.lost)) == 1
            return count

    driver = Late()
    bench = Bench([quick], driver=driver, options=SHORT)
    job_id = await bench.enqueue("quick.job")
    await bench.worker.start()
    await bench.probe.wait("claim.reconciled")
    await bench.until("attempt.completed", job_id)
    assert (await bench.view(job_id)).counters.attempt == 1
    await bench.worker.stop()


async def test_a_count_that_fails_does_not_hold_the_reaper_back() -> None:
    driver = ReapsAlways()
    driver.before["stats"] = DOWN
    options = replace(SHORT, stats_every=timedelta(milliseconds=10))
    async with working(quick, driver=driver, options=options) as bench:
        await bench.probe.wait("store.call_failed", verb="stats", count=3)
        driver.calls.clear()
        await bench.probe.wait("store.call_failed", verb="stats", count=60)
        assert "reap" in driver.calls


async def test_a_renewal_counts_from_before_it_was_sent_however_late_its_answer() -> None:
    driver = Flaky()
    clock = boot_clock()
    entered, answers, done = threading.Event(), threading.Event(), threading.Event()

    async def hold() -> None:
        gate = done if entered.is_set() else answers
        entered.set()
        await asyncio.to_thread(gate.wait, 10)

    async with working(quick, driver=driver) as bench:
        assert bench.worker._session is not None
        lease = bench.worker._session.registration.lease
        driver.hold["renew"] = hold
        await asyncio.to_thread(entered.wait, 10)
        before, released = lease._since, clock()
        answers.set()
        while lease._since == before:
            await asyncio.sleep(0)
        assert lease._since < released
        driver.hold.clear()
        done.set()

"""What a worker hands back because it does not know it, and what it must not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from app.domain.job import ClaimToken, WorkerId
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from app.domain.verdict import Reason
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.lifecycle.drain import DrainNotice
from app.worker.heartbeat import Heartbeat
from app.worker.lease import Lease, boot_clock
from tests.roles.harness import QUICK, Bench, Flaky, working
from tests.roles.test_worker_lease import DOWN, SHORT, quick


async def test_a_reconciliation_that_takes_place_late_leaves_what_was_claimed_since() -> None:
    class Late(Flaky):
        given_up: Callable[[], Awaitable[int]] | None = None

        async def reconcile(
            self, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime | None = None
        ) -> int:
            if self.given_up is None:
                self.given_up = partial(self.inner.reconcile, worker_id, held, before=before)
                raise DOWN
            return await self.inner.reconcile(worker_id, held, before=before)

    release = asyncio.Event()

    @job("held.job")
    async def held_job() -> None:
        await release.wait()

    driver = Late()
    driver.after["claim"] = DOWN
    async with working(held_job, driver=driver, options=SHORT) as bench:
        await bench.probe.wait("store.call_failed", verb="reconcile")
        driver.after.clear()
        job_id = await bench.enqueue("held.job")
        await bench.until("attempt.started", job_id)
        assert driver.given_up is not None
        assert await driver.given_up() == 0
        assert (await bench.view(job_id)).state is State.RUNNING
        release.set()
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).counters.claim_no == 1


async def test_a_lease_that_is_over_is_surrendered_and_not_reconciled() -> None:
    """What had begun under it is not known any more: handed back, it would run again and nothing would say why."""
    seen: list[WorkerId] = []

    class Slow(Flaky):
        async def reconcile(
            self, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime | None = None
        ) -> int:
            seen.append(worker_id)
            return await self.inner.reconcile(worker_id, held, before=before)

    driver, clock_answers = Slow(), asyncio.Event()
    driver.hold["database_time"] = clock_answers.wait
    driver.after["claim"] = DOWN
    async with working(quick, driver=driver, options=SHORT) as bench:
        first = bench.worker.worker_id
        await bench.probe.wait("claim.failed")
        driver.before["renew"] = DOWN
        await bench.probe.wait("worker.lease_over")
        driver.before.clear()
        driver.after.clear()
        clock_answers.set()
        job_id = await bench.enqueue("quick.job")
        await bench.until("attempt.completed", job_id)
        assert first not in seen


async def test_an_outcome_that_was_given_up_is_not_handed_back_as_if_it_had_never_begun() -> None:
    driver, answer = Flaky(), asyncio.Event()
    driver.hold["settle"] = answer.wait
    bench = Bench([quick], driver=driver, options=replace(SHORT, concurrency=1))
    await bench.worker.start()
    job_id = await bench.enqueue("quick.job")
    await bench.until("attempt.started", job_id)
    while "settle_and_claim" not in driver.calls:
        await asyncio.sleep(0)
    bench.worker.drain(DrainNotice(cause="SIGTERM", started=bench.worker._monotonic(), seconds=0.4))
    session = bench.worker._session
    assert session is not None
    await session._settler._given_up.wait()
    driver.before["settle"] = DOWN
    answer.set()
    await bench.worker.stop()
    assert "reconcile" not in driver.calls
    (taken,) = await driver.inner.reap()
    assert (taken.job_id, taken.outcome) == (job_id, OutcomeKind.INTERRUPTED)


async def test_runs_are_told_of_a_lost_lease_also_when_a_late_claim_found_it_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A claim that comes after its lease leads to a new one, maybe before the heartbeat has looked at the old one."""
    told: list[Reason] = []

    @job("told.job")
    async def told_job(ctx: JobContext) -> None:
        if ctx.claim_no == 1:
            told.append(await ctx.signal.wait())

    async def looks_away(heartbeat: Heartbeat) -> None:
        await heartbeat._stopping.wait()

    monkeypatch.setattr(Heartbeat, "_look", looks_away)
    driver = Flaky()
    async with working(told_job, driver=driver, options=SHORT) as bench:
        job_id = await bench.enqueue("told.job")
        await bench.until("attempt.started", job_id)
        driver.before["renew"] = DOWN
        session = bench.worker._session
        assert session is not None
        lease = session.registration.lease
        while lease.is_held:
            await asyncio.sleep(0.01)
        session.registration.owes(lease)
        driver.before.clear()
        await bench.until("attempt.completed", job_id)
        assert told == [Reason.LEASE_LOST]


class LateRenewal:
    """One renewal that is answered late, and a heartbeat that looks at its lease later still."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._entered, self._landed, self._may_answer, self._may_look = (threading.Event() for _ in range(4))
        renewed, look = Lease.renewed, Heartbeat._look

        async def looks_late(heartbeat: Heartbeat) -> None:
            await asyncio.to_thread(self._may_look.wait, 10)
            await look(heartbeat)

        def lands(lease: Lease, sent: float) -> None:
            renewed(lease, sent)
            self._landed.set()

        patch.setattr(Heartbeat, "_look", looks_late)
        patch.setattr(Lease, "renewed", lands)

    async def hold(self) -> None:
        self._entered.set()
        await asyncio.to_thread(self._may_answer.wait, 10)

    async def sent(self) -> None:
        self._landed.clear()
        await asyncio.to_thread(self._entered.wait, 10)

    async def answered(self) -> None:
        self._may_answer.set()
        await asyncio.to_thread(self._landed.wait, 10)
        self._may_look.set()


async def test_a_lease_judged_over_by_the_end_of_a_body_stays_over_though_a_renewal_was_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run is let go: held again, its claim would be handed back as if it had never begun."""
    release, driver, ahead, clock = asyncio.Event(), Flaky(), [0.0], boot_clock()
    renewal = LateRenewal(monkeypatch)

    @job("ends.job")
    async def ends(ctx: JobContext) -> None:
        if ctx.claim_no == 1:
            await release.wait()

    options = replace(QUICK, lease=timedelta(seconds=60), heartbeat=timedelta(seconds=20))
    bench = Bench([ends], driver=driver, options=options)
    bench.worker._kit = replace(bench.worker._kit, boot_clock=lambda: clock() + ahead[0])
    await bench.worker.start()
    session = bench.worker._session
    assert session is not None
    lease = session.registration.lease
    job_id = await bench.enqueue("ends.job")
    await bench.until("attempt.started", job_id)
    ahead[0] = 10
    session._heartbeat.nudge()
    while lease.age >= 10:
        await asyncio.sleep(0)
    driver.hold["renew"] = renewal.hold
    ahead[0] = 40
    session._heartbeat.nudge()
    await renewal.sent()
    ahead[0] = 75  # 65 since the renewal before, 35 since this one
    release.set()
    await bench.until("lease.lost", job_id)
    driver.hold.clear()
    await renewal.answered()
    await bench.probe.wait("worker.lease_over", worker_id=int(lease.worker_id))
    await bench.until("attempt.completed", job_id)
    view = await bench.view(job_id)
    assert (view.counters.attempt, view.counters.claim_no) == (1, 2)
    assert [(one.outcome, one.counted) for one in await bench.ledger(job_id)] == [(OutcomeKind.LEASE_LOST, False)]
    assert not bench.probe.of("claim.reconciled")
    await bench.worker.stop()

"""F37: a cancel in every state and at the instants between them, racing settle, sweep and heartbeat."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from app.domain.errors import JobStateConflict
from app.domain.job import ClaimedJob, JobId, WorkerId
from app.domain.outcome import (
    CancelVerdict,
    Completed,
    DeadLettered,
    ErrorInfo,
    Interrupted,
    Outcome,
    OutcomeKind,
    Retried,
    Settlement,
    Snoozed,
)
from app.domain.snapshot import NewWorker
from app.domain.state import LIVE, DeadReason, State
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.faults.history import check
from tests.faults.statements import CLAIMING, SETTLING
from tests.support.hands import hired
from tests.support.ledger import Ledger
from tests.support.processes import HEARTBEAT, SLACK, eventually, report
from tests.support.proxy import proxy_to
from tests.support.store import Store

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(60)]

TOLD_SECONDS = HEARTBEAT + 0.2
INTERLEAVINGS = 12
SHORT_LEASE_MS = 60
ERROR = ErrorInfo(type="ValueError", message="as ordered")

OUTCOMES: tuple[Outcome, ...] = (
    Completed(result="1"),
    Retried(error=ERROR, delay=timedelta()),
    DeadLettered(error=ERROR, reason=DeadReason.TERMINAL),
    Interrupted(cause="drain"),
    Snoozed(delay=timedelta(milliseconds=1)),
)


class Stage:
    """Brings jobs into any state with the verbs of the store alone; each in a queue of its own."""

    def __init__(self, store: Store, dice: random.Random) -> None:
        self.store = store
        self.dice = dice
        self.worker = WorkerId(0)
        self.claimed: ClaimedJob | None = None

    async def ready(self) -> JobId:
        return await self._enqueue()

    async def delayed(self) -> JobId:
        return await self._enqueue(delay=timedelta(milliseconds=self.dice.randrange(3)))

    async def running(self) -> JobId:
        return await self._claim(lease_ms=60_000)

    async def expiring(self) -> JobId:
        """Running, under a lease that is about to pass."""
        job_id = await self._claim(lease_ms=SHORT_LEASE_MS)
        await self.store.fetch("select pg_sleep($1)", self.dice.uniform(0.6, 1.1) * SHORT_LEASE_MS / 1000)
        return job_id

    async def retried(self) -> JobId:
        return await self._settled(OUTCOMES[1])

    async def snoozed(self) -> JobId:
        return await self._settled(OUTCOMES[4])

    async def interrupted(self) -> JobId:
        return await self._settled(OUTCOMES[3])

    async def dead(self) -> JobId:
        return await self._settled(OUTCOMES[2])

    async def done(self) -> JobId:
        return await self._settled(OUTCOMES[0])

    async def _enqueue(self, **fields: Any) -> JobId:
        self.claimed = None
        key = uuid4().hex
        return await self.store.enqueue("faults.hold", queue=f"q{key}", idempotency_key=key, **fields)

    async def _claim(self, *, lease_ms: int) -> JobId:
        job_id = await self._enqueue()
        queue = (await self.store.view(job_id)).queue
        self.worker = await self.store.driver.register_worker(
            NewWorker(
                boot_id=uuid4(),
                host="stage",
                pid=1,
                code_version="1",
                queues=(queue,),
                concurrency=1,
                lease_ms=lease_ms,
            )
        )
        shares = (QueueShare(queue=queue, room=1),)
        names = frozenset({"faults.hold"})
        request = ClaimRequest(worker_id=self.worker, shares=shares, names=names, room=1)
        (self.claimed,) = await self.store.driver.claim(request)
        return job_id

    async def _settled(self, outcome: Outcome) -> JobId:
        job_id = await self._claim(lease_ms=60_000)
        await self.settle(outcome)
        self.claimed = None
        return job_id

    # --- what races the cancel

    async def settle(self, outcome: Outcome | None = None) -> None:
        if self.claimed is not None:
            settlement = Settlement(token=self.claimed.token, outcome=outcome or self.dice.choice(OUTCOMES))
            await self.store.driver.settle([settlement])

    async def sweep(self) -> None:
        await self.store.driver.promote()
        await self.store.driver.expire()
        await self.store.driver.reap()

    async def heartbeat(self) -> None:
        if self.claimed is not None:
            async with self.store.driver.open_heartbeat() as heartbeat:
                await heartbeat.renew(self.worker, [self.claimed.token])

    async def another_cancel(self, job_id: JobId) -> None:
        await self.store.driver.cancel(job_id, reason="twice")


POINTS = ("ready", "delayed", "running", "expiring", "retried", "snoozed", "interrupted", "dead", "done")


@pytest.mark.parametrize("point", POINTS)
async def test_a_cancel_is_final_when_acknowledged_whatever_races_it(
    point: str, store: Store, dice: random.Random
) -> None:
    """P20, P49: one terminal outcome, legal moves only, the key free, no way back but an operator's retry."""
    stage = Stage(store, dice)
    for race in range(INTERLEAVINGS):
        job_id: JobId = await getattr(stage, point)()
        verdict = await _raced(stage, job_id, company=1 + race % 4)
        view = await store.view(job_id)
        await _is_final(stage, job_id, point, verdict)
        await stage.sweep()
        assert await store.view(job_id) == view, "the end was not the end"
        key = view.key
        again = await store.enqueue("faults.hold", queue=view.queue, idempotency_key=key)
        assert again != job_id, "the key is not free"
        if view.state is State.CANCELLED:
            await store.driver.cancel(again, reason="make room")
            await store.driver.retry(job_id)
            assert (await store.view(job_id)).state in LIVE
    await check(store, [])


async def _is_final(stage: Stage, job_id: JobId, point: str, verdict: CancelVerdict) -> None:
    view = await stage.store.view(job_id)
    if point in {"dead", "done"}:
        assert verdict is CancelVerdict.ALREADY_FINISHED
        assert view.state.value == point
    elif verdict is CancelVerdict.ALREADY_FINISHED:
        assert view.state in {State.DONE, State.DEAD, State.CANCELLED}
    else:
        assert view.state is State.CANCELLED
    assert view.claim is None
    if view.state is State.DONE:
        with pytest.raises(JobStateConflict):
            await stage.store.driver.retry(job_id)


async def _raced(stage: Stage, job_id: JobId, *, company: int) -> CancelVerdict:
    """Cancel a job while others are at it, and give what the cancel found."""
    verdicts: list[CancelVerdict] = []

    async def cancel() -> None:
        verdicts.append(await stage.store.driver.cancel(job_id, reason="enough"))

    async def cancel_again() -> None:
        await stage.store.driver.cancel(job_id, reason="twice")

    racers = stage.dice.sample([stage.settle, stage.sweep, stage.heartbeat, cancel_again], company)
    await asyncio.gather(*(_later(stage.dice, verb) for verb in (cancel, *racers)))
    (verdict,) = verdicts
    return verdict


async def _later(dice: random.Random, verb: Callable[[], Awaitable[object]]) -> None:
    """Begin a little later, by chance; statements then reach the server in any order."""
    for _ in range(dice.randrange(6)):
        await asyncio.sleep(0)
    await verb()


# --- with a whole worker ----------------------------------------------------------------------------------------------


async def test_a_cancel_while_the_claims_reply_is_on_its_way(
    store: Store, database_url: str, ledger: Ledger, folder: Path, dice: random.Random
) -> None:
    """Claimed, not started: nothing is stored, and a body that begins all the same is told within a heartbeat."""
    async with proxy_to(database_url, folder) as proxy, hired(proxy.url, seed=dice.randrange(99)) as hands:
        call = proxy.hold(CLAIMING)
        await call.until_caught()
        job_id = await store.enqueue("faults.hold", {"gate": "never"})
        reply = proxy.hold_reply(CLAIMING)
        call.release()
        await reply.until_caught()
        assert await store.state(job_id) is State.RUNNING
        assert await store.driver.cancel(job_id, reason="enough") is CancelVerdict.SIGNALLED
        reply.release()
        await hands.probe.wait("attempt.superseded", job_id=str(job_id), within=TOLD_SECONDS * SLACK)
        await _is_cancelled_for_good(store, job_id)
    _told_in_time(ledger, job_id)
    await check(store, ledger.events(), acked=[job_id])


async def test_a_cancel_before_the_settle_arrives_wins(
    store: Store, database_url: str, ledger: Ledger, folder: Path, dice: random.Random
) -> None:
    """P50 as well: a failure with attempts left is no retry once the job is cancelled."""
    async with proxy_to(database_url, folder) as proxy, hired(proxy.url, seed=dice.randrange(99)) as hands:
        settle = proxy.hold(SETTLING)
        job_id = await store.enqueue(dice.choice(("faults.hold", "faults.hold_sync", "faults.fail")))
        await settle.until_caught()
        assert await store.driver.cancel(job_id, reason="enough") is CancelVerdict.SIGNALLED
        settle.release()
        await hands.probe.wait("attempt.superseded", job_id=str(job_id), by="cancelled")
        assert hands.probe.of("lease.lost") == []
        await _is_cancelled_for_good(store, job_id)
    await check(store, ledger.events(), acked=[job_id])


async def test_a_cancel_after_the_settle_was_executed_finds_the_end(
    store: Store, database_url: str, ledger: Ledger, folder: Path, dice: random.Random
) -> None:
    async with proxy_to(database_url, folder) as proxy, hired(proxy.url, seed=dice.randrange(99)) as hands:
        settle = proxy.hold_reply(SETTLING)
        job_id = await store.enqueue(dice.choice(("faults.hold", "faults.hold_sync")))
        await settle.until_caught()
        assert await store.driver.cancel(job_id, reason="too late") is CancelVerdict.ALREADY_FINISHED
        settle.release()
        await hands.probe.wait("attempt.completed", job_id=str(job_id))
        assert await store.state(job_id) is State.DONE
    await check(store, ledger.events(), acked=[job_id])


@pytest.mark.parametrize("name", ["faults.hold", "faults.hold_sync"])
async def test_a_running_body_is_told_within_a_heartbeat(
    name: str, store: Store, database_url: str, ledger: Ledger, dice: random.Random
) -> None:
    """P48, P51: on the loop and in a thread, with its settle, a sweep or a heartbeat on the way."""
    async with hired(database_url, seed=dice.randrange(99)) as hands:
        heedless = await store.enqueue(name, {"gate": "never", "heed": False})
        job_id = await store.enqueue(name, {"gate": "never"})
        await eventually(lambda: len(ledger.events("effect")) == 2, "both run")
        *verdicts, _ = await asyncio.gather(
            store.driver.cancel(job_id, reason="enough"),
            store.driver.cancel(heedless, reason="enough"),
            _later(dice, store.driver.reap),
        )
        assert verdicts == [CancelVerdict.SIGNALLED, CancelVerdict.SIGNALLED]
        await hands.probe.wait("attempt.superseded", job_id=str(job_id), within=TOLD_SECONDS * SLACK)
        ledger.open("never")
        await hands.probe.wait("attempt.superseded", job_id=str(heedless))
        for cancelled in (job_id, heedless):
            await _is_cancelled_for_good(store, cancelled)
        assert (await store.until(await store.enqueue(name))).state is State.DONE
    await check(store, ledger.events(), acked=[job_id, heedless])


async def _is_cancelled_for_good(store: Store, job_id: JobId) -> None:
    view = await store.view(job_id)
    assert (view.state, view.state_reason) == (State.CANCELLED, "enough")
    assert view.claim is None
    assert view.result is None
    assert view.counters.attempt == 0
    assert await store.outcomes(job_id) == [OutcomeKind.CANCELLED]
    assert await store.driver.cancel(job_id, reason="again") is CancelVerdict.ALREADY_FINISHED
    assert await store.view(job_id) == view


def _told_in_time(ledger: Ledger, job_id: JobId) -> None:
    begun = [event.mono for event in ledger.events("effect", job=job_id) if event.type == "invoke"]
    told = [event.mono for event in ledger.events("told", job=job_id)]
    if begun:
        report(f"told {told[0] - begun[0]:.3f} s after it began; promised {TOLD_SECONDS:g} s")
        assert told[0] - begun[0] <= TOLD_SECONDS * SLACK

"""Operations of operators, and of the sweeps that any worker does; a sweep's caller does the next one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import JobStateConflict
from app.domain.flow import FlowBatch, FlowPart, Tally
from app.domain.outcome import CancelVerdict, Completed, DeadLettered, OutcomeKind, Settlement
from app.domain.state import DeadReason, State
from app.drivers.protocol import PurgeQuery
from tests.faults.cuts.cell import Operation
from tests.support.drivers import ERROR, new_id

_HOUR = timedelta(hours=1)
_PAST = "outlast.clock() - interval '2 days'"


class CancelReady(Operation):
    """A repeated cancel finds what the first has done."""

    name = "cancel before its start"
    verdict = CancelVerdict.CANCELLED_BEFORE_START

    async def arrange(self) -> None:
        self.job_id = await self.enqueued(key="order:1")

    async def call(self) -> Any:
        return await self.driver.cancel(self.job_id, reason="changed their mind")

    async def check(self, answer: Any) -> None:
        is_second = self.is_cut and self.is_stored
        assert answer is (CancelVerdict.ALREADY_FINISHED if is_second else self.verdict)
        view = await self.straight.describe(self.job_id)
        assert view is not None
        assert (view.state, view.state_reason, view.counters.attempt) == (State.CANCELLED, "changed their mind", 0)
        assert await self.count("live_key", "not ended") == 0
        assert await self.count("attempt") == self.rows

    rows = 0


class CancelDelayed(CancelReady):
    name = "cancel while it is delayed"

    async def arrange(self) -> None:
        self.job_id = await self.enqueued(key="order:1", delay=_HOUR)


class CancelRunning(CancelReady):
    """Its worker is told with the next renewal, whoever's reply was lost."""

    name = "cancel while it runs"
    verdict = CancelVerdict.SIGNALLED
    rows = 1

    async def arrange(self) -> None:
        self.worker = await self.registered()
        job = await self.started(self.worker, key="order:1")
        self.job_id, self.token = job.token.job_id, job.token

    async def check(self, answer: Any) -> None:
        await super().check(answer)
        self.held.clear()
        async with self.straight.open_heartbeat() as heart:
            renewal = await heart.renew(self.worker, [self.token])
        assert [gone.token for gone in renewal.revoked] == [self.token]


class Retry(Operation):
    """The second call of an operator whose first was stored finds the job ready, and is told so."""

    name = "retry"

    async def arrange(self) -> None:
        job = await self.started(key="order:1", max_queue_time=_HOUR)
        self.job_id = job.token.job_id
        outcome = DeadLettered(error=ERROR, reason=DeadReason.TERMINAL)
        await self.straight.settle([Settlement(job.token, outcome, True)])
        self.held.clear()

    async def call(self) -> Any:
        await self.driver.retry(self.job_id)

    async def again(self) -> Any:
        if not self.is_stored:
            return await self.call()
        with pytest.raises(JobStateConflict) as conflict:
            await self.call()
        assert conflict.value.details["state"] == State.READY.value
        return None

    async def check(self, answer: Any) -> None:
        view = await self.straight.describe(self.job_id)
        assert view is not None
        assert (view.state, view.counters) == (State.READY, (0, 1, 0, 0))
        assert await self.count("live_key", "not ended and job_id = $1", self.job_id) == 1
        assert await self.count("attempt") == 1


class Pause(Operation):
    name = "pause_queue"

    async def arrange(self) -> None:
        await self.enqueued()

    async def call(self) -> Any:
        await self.driver.pause_queue("default", by="an operator", reason="a look")

    async def check(self, answer: Any) -> None:
        (queue,) = await self.straight.queues()
        assert (queue.paused_by, queue.pause_reason) == ("an operator", "a look")
        await self.straight.resume_queue("default")


class Resume(Pause):
    name = "resume_queue"

    async def arrange(self) -> None:
        await super().arrange()
        await self.straight.pause_queue("default", by="an operator")

    async def call(self) -> Any:
        await self.driver.resume_queue("default")

    async def check(self, answer: Any) -> None:
        (queue,) = await self.straight.queues()
        assert queue.paused_at is None


# --- sweeps -----------------------------------------------------------------------------------------------------------


class Reap(Operation):
    """A worker vanished with two claims, each of which is one crash."""

    name = "reap of a worker that vanished"

    async def arrange(self) -> None:
        for _ in range(2):
            await self.enqueued()
        worker = await self.registered(lease_ms=1)
        await self.fetch("update outlast.worker set lease_until = outlast.clock() + interval '1 hour'")
        self.jobs = await self.claimed(worker, room=2)
        await self.prepare()
        await self.fetch(f"update outlast.worker set lease_until = {_PAST}")
        self.held.clear()

    async def prepare(self) -> None:
        """Do what came before the end."""

    async def call(self) -> Any:
        return await self.driver.reap()

    async def check(self, answer: Any) -> None:
        for job in self.jobs:
            view = await self.straight.describe(job.token.job_id)
            assert view is not None
            assert (view.state, view.counters) == (State.READY, (0, 1, 1, 0))
            assert [row.outcome for row in await self.straight.attempts(view.id)] == [OutcomeKind.CRASHED]


class ReapPoison(Reap):
    """It ran alone and took its worker along for the last time."""

    name = "reap of a job that crashed too often"

    async def arrange(self) -> None:
        job_id = await self.enqueued(max_crashes=1, key="order:1")
        worker = await self.registered(lease_ms=1)
        await self.fetch("update outlast.worker set lease_until = outlast.clock() + interval '1 hour'")
        (self.job,) = await self.claimed(worker)
        assert self.job.token.job_id == job_id
        assert await self.straight.isolate(self.job.token)
        await self.fetch(f"update outlast.worker set lease_until = {_PAST}")
        self.held.clear()

    async def check(self, answer: Any) -> None:
        view = await self.straight.describe(self.job.token.job_id)
        assert view is not None
        assert (view.state, view.counters) == (State.DEAD, (0, 1, 1, 0))
        assert view.state_reason == DeadReason.CRASHED_TOO_OFTEN
        assert await self.count("live_key", "not ended") == 0
        assert await self.count("attempt") == 1


class Promote(Operation):
    name = "promote"

    async def arrange(self) -> None:
        for _ in range(3):
            await self.enqueued(delay=_HOUR)
        await self.fetch("update outlast.waiting set due_at = outlast.clock()")

    async def call(self) -> Any:
        return await self.driver.promote()

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_cut and self.is_stored else 3)
        assert await self.count("ready") == 3


class Expire(Operation):
    """One was never started in time, one is past its deadline, and one limit is moot."""

    name = "expire"

    async def arrange(self) -> None:
        await self.enqueued(max_queue_time=_HOUR, key="order:1")
        await self.enqueued(deadline=_HOUR, delay=_HOUR)
        ended = await self.enqueued(deadline=_HOUR)
        await self.straight.cancel(ended, reason="changed their mind")
        await self.fetch(f"update outlast.expiry set at = {_PAST}")

    async def call(self) -> Any:
        return await self.driver.expire()

    async def check(self, answer: Any) -> None:
        assert await self.count("expiry") == 0
        rows = await self.fetch("select reason from outlast.finished where state = 2 order by reason")
        assert [row["reason"] for row in rows] == [DeadReason.DEADLINE, DeadReason.EXPIRED]
        assert await self.count("live_key", "not ended") == 0


class Purge(Operation):
    """Jobs, then keys, then sources: each a statement that the next purge takes up."""

    name = "purge"

    async def arrange(self) -> None:
        for number in range(2):
            job = await self.started(key=f"order:{number}", dedupe_for=_HOUR, source_id=new_id())
            await self.straight.settle([Settlement(job.token, Completed(), True)])
        self.held.clear()
        self.acked.clear()  # they may go
        await self.fetch(f"update outlast.live_key set expires_at = {_PAST}")
        await self.fetch(f"update outlast.source set expires_at = {_PAST}")

    async def call(self) -> Any:
        return await self.driver.purge(PurgeQuery(state=State.DONE, older_than=timedelta(seconds=-1)))

    async def check(self, answer: Any) -> None:
        for table in ("job", "finished", "attempt", "live_key", "source"):
            assert await self.count(table) == 0, f"left in {table}"


class AddFlow(Operation):
    """Counts for charts: of a lost reply the server is asked, so that nothing is counted twice."""

    name = "add counts of attempts"

    async def arrange(self) -> None:
        self.batch = FlowBatch(new_id(), (FlowPart("demo.job", "default", Tally(counts=(1, 0, 0, 0, 0, 0))),))

    async def call(self) -> Any:
        await self.driver.add_flow(self.batch)

    async def check(self, answer: Any) -> None:
        assert await self.count("flow") == 3
        counts = {row["counts"][0] for row in await self.fetch("select counts from outlast.flow")}
        assert counts == {1}


OPERATIONS: tuple[type[Operation], ...] = (
    AddFlow,
    CancelReady,
    CancelDelayed,
    CancelRunning,
    Retry,
    Pause,
    Resume,
    Reap,
    ReapPoison,
    Promote,
    Expire,
    Purge,
)

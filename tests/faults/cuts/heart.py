"""Operations of the heartbeat, on its own connection: renew, and the last words of a drain."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.domain.drain import DrainedRun, DrainReport
from app.domain.outcome import OutcomeKind, SettleAnswer
from app.domain.snapshot import Renewal
from app.drivers.protocol import HeartbeatStore
from tests.faults.cuts.cell import Operation
from tests.faults.cuts.worker import Running

_LEASE = timedelta(seconds=30)


class Beating(Running):
    """A worker with a heartbeat, whose connection is its own; one of its claims was cancelled."""

    async def arrange(self) -> None:
        await super().arrange()
        await self.straight.cancel(self.tokens[1].job_id, reason="changed their mind")
        self.held.remove(self.tokens[1])
        self.heart: HeartbeatStore = await self.stack.enter_async_context(self.driver.open_heartbeat())
        await self.heart.renew(self.worker, self.tokens[:1])


class Renew(Beating):
    name = "renew"

    async def call(self) -> Renewal:
        return await self.heart.renew(self.worker, self.tokens)

    async def check(self, answer: Renewal) -> None:
        assert answer.is_held
        assert [(gone.token, gone.by) for gone in answer.revoked] == [(self.tokens[1], SettleAnswer.CANCELLED)]


class Abandon(Beating):
    """What was abandoned is taken over as interrupted, in nobody's budget."""

    name = "abandon"

    async def call(self) -> Any:
        return await self.heart.abandon(self.worker, self.tokens, _LEASE)

    async def check(self, answer: Any) -> None:
        assert answer == 1
        await self.fetch("update outlast.worker set lease_until = outlast.clock() - interval '1 s', lease_ms = 1")
        (reaped,) = await self.straight.reap()
        assert (reaped.outcome, reaped.cause) == (OutcomeKind.INTERRUPTED, "abandoned")
        self.held.clear()


class ReportDrain(Beating):
    name = "report_drain"

    async def call(self) -> Any:
        run = DrainedRun(
            job_id=self.tokens[0].job_id, claim_no=1, name="demo.job", fate="interrupted", has_ignored=False
        )
        await self.heart.report_drain(
            DrainReport(worker_id=self.worker, reason="SIGTERM", lasted=timedelta(seconds=3), runs=(run,))
        )

    async def check(self, answer: Any) -> None:
        (report,) = await self.straight.drains(limit=10)
        assert [again.run.job_id for again in report.runs] == [self.tokens[0].job_id]


OPERATIONS: tuple[type[Operation], ...] = (Renew, Abandon, ReportDrain)

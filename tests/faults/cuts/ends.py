"""Settles by which runs end, wake others or go to other code; repeated as every other settle.

Parents are told in a transaction of its own, after the end of their child: who was not told is found by the sweep.
"""

from __future__ import annotations

from typing import Any, ClassVar

from app.domain.job import ClaimedJob
from app.domain.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Held,
    Outcome,
    OutcomeKind,
    SettleAnswer,
    Settlement,
    Suspended,
)
from app.domain.snapshot import JobTypeDoc
from app.domain.state import DeadReason, State
from tests.conformance.runs import a_call, a_child, a_sleep
from tests.faults.cuts.cell import Operation
from tests.support.drivers import ERROR, NAME


class HandBack(Operation):
    """Its run is of code that a worker still has: it is ready for that worker alone."""

    name = "settle held, for code that is live"
    after: ClassVar[State] = State.READY
    cause: ClassVar[str] = "handed_back"

    async def arrange(self) -> None:
        await self.registered(code_version="old")
        worker = await self.registered(code_version="new")
        # The names of types at their versions are made by whoever publishes them.
        for version in ("old", "gone"):
            await self.driver.publish_job_types([JobTypeDoc(name=NAME, code_version=version, document="{}")])
        self.job = await self.started(worker, key="order:1")

    async def call(self) -> Any:
        return await self.driver.settle([Settlement(self.job.token, self.outcome())])

    def outcome(self) -> Outcome:
        return Held(reason="another step was recorded", error=ERROR, version="old")

    async def check(self, answer: Any) -> None:
        assert list(answer) == [SettleAnswer.REAPED if self.is_second else SettleAnswer.SETTLED]
        self.held.clear()
        view = await self.straight.describe(self.job.token.job_id)
        assert view is not None
        assert (view.state, view.counters) == (self.after, (0, 1, 0, 0))
        (row,) = await self.straight.attempts(view.id)
        assert (row.outcome, row.cause) == (OutcomeKind.HELD, self.cause)
        assert await self.count("handed") == (1 if self.after is State.READY else 0)
        if self.after is State.HELD:
            await self.straight.release_held(view.id)


class HoldForCode(HandBack):
    name = "settle held, for code that nobody has"
    after = State.HELD
    cause = "held"

    def outcome(self) -> Outcome:
        return Held(reason="another step was recorded", error=ERROR, version="gone")


class CallOver(Operation):
    """A child ends; its parent is told in a transaction after that, and what was not told the sweep finds."""

    name = "settle of a child whose parent waits"
    outcome: ClassVar[Outcome] = Completed(result='"sent"')
    recorded: ClassVar[int] = 1

    async def arrange(self) -> None:
        worker = await self.registered()
        self.parent = await self.started(worker)
        self.child = await self.waits_for_child(worker, self.parent)

    async def waits_for_child(self, worker: Any, parent: ClaimedJob) -> ClaimedJob:
        """Have a run call a child, and give that to the worker."""
        child = a_child(parent, NAME)
        await self.straight.settle([Settlement(parent.token, Suspended(waits=(a_call(child),)), has_waits=True)])
        self.held.remove(parent.token)
        self.acked.add(child.id)
        (claimed,) = await self.claimed(worker)
        return claimed

    async def call(self) -> Any:
        return await self.driver.settle([Settlement(self.child.token, self.outcome, is_child=True)])

    async def check(self, answer: Any) -> None:
        assert list(answer) in ([SettleAnswer.SETTLED], [SettleAnswer.REAPED])  # a parent's telling is not its own
        self.held.clear()
        await self.straight.sweep_waits()
        view = await self.straight.describe(self.parent.token.job_id)
        assert view is not None
        assert (view.state, view.counters) == (State.READY, (0, 1, 0, 0))
        assert await self.count("step") == self.recorded
        assert await self.count("wait") == 1 - self.recorded


class CallFailed(CallOver):
    """The wait stays for the run to see."""

    name = "settle of a child that died, whose parent waits"
    outcome = DeadLettered(error=ERROR, reason=DeadReason.TERMINAL)
    recorded = 0


class EndOfRun(CallOver):
    """A run that is over leaves no wait; a cancelled one keeps what it has gone on from, and takes its child along."""

    name = "settle completed, with waits left"
    outcome: ClassVar[Outcome] = Completed(result="1")
    after: ClassVar[State] = State.DONE
    childs: ClassVar[State] = State.SUSPENDED
    second: ClassVar[SettleAnswer] = SettleAnswer.REAPED
    waits: ClassVar[int] = 0

    async def arrange(self) -> None:
        await super().arrange()
        # It waits no more, as after an event that came beside its child, and runs.
        await self.fetch("update outlast.wait set awaited = false")
        worker = await self.registered()
        await self.straight.settle([Settlement(self.child.token, Suspended(waits=(a_sleep(),)), has_waits=True)])
        self.held.clear()
        await self.fetch(
            "with s as (delete from outlast.suspended where job_id = $1 returning *)"
            " insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)"
            " select queue, rank & -2, job_id, name_id, attempt, claim_no, crashes, interrupts from s",
            self.parent.token.job_id,
        )
        (self.job,) = await self.claimed(worker)

    async def call(self) -> Any:
        return await self.driver.settle([Settlement(self.job.token, self.outcome, has_waits=True)])

    async def check(self, answer: Any) -> None:
        assert list(answer) == [self.second if self.is_second else SettleAnswer.SETTLED]
        self.held.clear()
        view = await self.straight.describe(self.job.token.job_id)
        assert view is not None
        assert view.state is self.after
        assert await self.count("wait", "job_id = $1", view.id) == self.waits
        child = await self.straight.describe(self.child.token.job_id)
        assert child is not None
        assert child.state is self.childs


class CancelledRun(EndOfRun):
    name = "settle cancelled, with a child that it waits for"
    outcome = Cancelled(reason="the caller's")
    after = State.CANCELLED
    childs = State.CANCELLED
    second = SettleAnswer.CANCELLED
    waits = 1  # the run has gone on from it: a retry is to meet it again


ENDS: tuple[type[Operation], ...] = (HandBack, HoldForCode, CallOver, CallFailed, EndOfRun, CancelledRun)

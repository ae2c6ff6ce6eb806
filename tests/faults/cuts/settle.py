"""Operations that close attempts. The worker repeats the settle while its lease lasts, and reconciles what came along.

A repeated settle is answered that its claim is gone when the first was stored: under a lease that never lapsed the
worker knows whose doing that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from app.domain.job import ClaimedJob
from app.domain.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Held,
    Interrupted,
    Outcome,
    OutcomeKind,
    Retried,
    SettleAnswer,
    Settlement,
    Snoozed,
)
from app.domain.state import DeadReason, State
from tests.faults.cuts.cell import Operation, asked_by
from tests.support.drivers import ERROR

_HOUR = timedelta(hours=1)
_QUEUES = ("default", "other")


class Settle(Operation):
    """One attempt; `after` is the job's state, its attempts and its interrupts, `ledger` what is on it."""

    name = "settle completed"
    outcome: ClassVar[Outcome] = Completed(result='"sent"')
    after: ClassVar[tuple[State, int, int]] = (State.DONE, 1, 0)
    ledger: ClassVar[tuple[OutcomeKind, ...]] = (OutcomeKind.COMPLETED,)
    fields: ClassVar[dict[str, Any]] = {}
    repeated = SettleAnswer.REAPED

    async def arrange(self) -> None:
        self.job = await self.started(**self.fields)

    async def call(self) -> Sequence[SettleAnswer]:
        return await self.driver.settle([Settlement(self.job.token, self.outcome, self.job.key is not None)])

    async def check(self, answer: Sequence[SettleAnswer]) -> None:
        was_first = not (self.is_cut and self.is_stored)
        assert list(answer) == [SettleAnswer.SETTLED if was_first else self.repeated]
        self.held.clear()
        await self.check_job(self.job)

    async def check_job(self, job: ClaimedJob) -> None:
        """Hold the job and its ledger to one settle."""
        view = await self.straight.describe(job.token.job_id)
        assert view is not None
        assert (view.state, view.counters.attempt, view.counters.interrupts) == self.after
        assert view.counters.claim_no == 1
        assert tuple(row.outcome for row in await self.straight.attempts(job.token.job_id)) == self.ledger


class SettleKeyed(Settle):
    name = "settle completed, with a key"
    fields: ClassVar[dict[str, Any]] = {"key": "order:1"}

    async def check(self, answer: Sequence[SettleAnswer]) -> None:
        await super().check(answer)
        assert await self.count("live_key", "not ended") == 0, "the key is not free"


class SettleRetried(Settle):
    name = "settle retried"
    outcome = Retried(error=ERROR, delay=_HOUR)
    after = (State.DELAYED, 1, 0)
    ledger = (OutcomeKind.RETRIED,)


class SettleDead(Settle):
    name = "settle dead-lettered"
    outcome = DeadLettered(error=ERROR, reason=DeadReason.TERMINAL)
    after = (State.DEAD, 1, 0)
    ledger = (OutcomeKind.DEAD_LETTERED,)
    fields: ClassVar[dict[str, Any]] = {"key": "order:1"}


class SettleInterrupted(Settle):
    name = "settle interrupted"
    outcome = Interrupted(cause="drain")
    after = (State.READY, 0, 1)
    ledger = (OutcomeKind.INTERRUPTED,)


class SettleInterruptedLater(Settle):
    name = "settle interrupted, to go on later"
    outcome = Interrupted(cause="drain", delay=_HOUR)
    after = (State.DELAYED, 0, 1)
    ledger = (OutcomeKind.INTERRUPTED,)


class SettleSnoozed(Settle):
    name = "settle snoozed"
    outcome = Snoozed(delay=_HOUR)
    after = (State.DELAYED, 0, 0)
    ledger = ()
    fields: ClassVar[dict[str, Any]] = {"max_queue_time": _HOUR}

    async def check(self, answer: Sequence[SettleAnswer]) -> None:
        await super().check(answer)
        assert await self.count("expiry") == 0, "it has begun"


class SettleHeld(Settle):
    name = "settle held"
    outcome = Held(reason="the code does not match")
    after = (State.HELD, 0, 0)
    ledger = (OutcomeKind.HELD,)
    parked = 1


class SettleCancelled(Settle):
    name = "settle cancelled"
    outcome = Cancelled(reason="the caller's")
    after = (State.CANCELLED, 0, 0)
    ledger = (OutcomeKind.CANCELLED,)
    repeated = SettleAnswer.CANCELLED


class SettleMany(Operation):
    """A batch of everything, one of whose claims an operator has taken away: a second statement says by whom."""

    name = "settle of a batch, one superseded"

    async def arrange(self) -> None:
        for number in range(4):
            await self.enqueued(key=f"order:{number}")
        self.worker = await self.registered()
        self.jobs = await self.claimed(self.worker, room=4)
        await self.straight.cancel(self.jobs[3].token.job_id, reason="changed their mind")
        self.held.remove(self.jobs[3].token)

    def settlements(self) -> list[Settlement]:
        outcomes: tuple[Outcome, ...] = (
            Completed(result="1"),
            Retried(error=ERROR, delay=_HOUR),
            Interrupted(cause="drain"),
            Completed(),
        )
        return [Settlement(job.token, outcome, True) for job, outcome in zip(self.jobs, outcomes, strict=True)]

    async def call(self) -> Any:
        return await self.driver.settle(self.settlements())

    async def check(self, answer: Any) -> None:
        self.check_answers(answer)
        self.held -= {job.token for job in self.jobs}
        await self.check_states()

    def check_answers(self, answers: Sequence[SettleAnswer]) -> None:
        """Hold the answers: of three that were settled, by this call or by an earlier one, and one cancelled."""
        own = SettleAnswer.REAPED if self.is_cut and self.is_stored else SettleAnswer.SETTLED
        assert list(answers) == [own, own, own, SettleAnswer.CANCELLED]

    async def check_states(self) -> None:
        """Hold the jobs: each was settled once."""
        views = [await self.straight.describe(job.token.job_id) for job in self.jobs]
        states = [view.state for view in views if view is not None]
        assert states[:2] == [State.DONE, State.DELAYED]
        assert states[3] is State.CANCELLED
        assert await self.count("attempt") == 3
        assert await self.count("live_key", "not ended") == 2


class SettleAndClaim(Operation):
    """Plain ends, and a claim beside them, of one queue."""

    name = "settle_and_claim"
    queues: ClassVar[Sequence[str]] = ("default",)

    async def arrange(self) -> None:
        for _ in range(2):
            await self.enqueued()
        self.worker = await self.registered()
        self.jobs = await self.claimed(self.worker, room=2)
        for number in range(3):
            await self.enqueued(queue=self.queues[number % len(self.queues)])
        await self.driver.claim(asked_by(self.worker, queues=("nothing",)))  # the name's number is known from now on

    def outcome(self) -> Outcome:
        return Completed()

    async def call(self) -> Any:
        settlements = [Settlement(job.token, self.outcome(), False) for job in self.jobs]
        return await self.driver.settle_and_claim(settlements, asked_by(self.worker, queues=self.queues))

    async def again(self) -> Any:
        """Repeat the settle; before another claim hand back what the first may have brought."""
        answers = await self.driver.settle([Settlement(job.token, self.outcome(), False) for job in self.jobs])
        now = await self.driver.database_time()
        count = await self.driver.reconcile(self.worker, [], before=now)
        assert count == (3 if self.is_stored else 0), f"{count} claims were stranded"
        return answers, await self.driver.claim(asked_by(self.worker, queues=self.queues))

    async def check(self, answer: Any) -> None:
        answers, claimed = answer
        own = SettleAnswer.REAPED if self.is_cut and self.is_stored else SettleAnswer.SETTLED
        assert list(answers) == [own, own]
        self.held = {job.token for job in claimed}
        new = [job for job in claimed if job.token.job_id not in {job.token.job_id for job in self.jobs}]
        assert len(new) == 3
        lost = 1 if self.is_cut and self.is_stored else 0
        for job in new:
            assert (job.token.claim_no, job.counters.attempt) == (1 + lost, 1), "a claim that never began is uncounted"
        await self.check_settled()

    async def check_settled(self) -> None:
        """Hold what was settled."""
        assert await self.count("finished", "state = 0") == 2


class SettleAndClaimQueues(SettleAndClaim):
    name = "settle_and_claim of several queues"
    queues = _QUEUES


class SettleFailedAndClaim(SettleAndClaim):
    """The long text of a settle beside a claim."""

    name = "settle_and_claim, retried"

    def outcome(self) -> Outcome:
        return Retried(error=ERROR, delay=_HOUR)

    async def check_settled(self) -> None:
        assert await self.count("waiting", "attempt = 1") == 2
        assert await self.count("attempt", "outcome = 'retried'") == 2


OPERATIONS: tuple[type[Operation], ...] = (
    Settle,
    SettleKeyed,
    SettleRetried,
    SettleDead,
    SettleInterrupted,
    SettleInterruptedLater,
    SettleSnoozed,
    SettleHeld,
    SettleCancelled,
    SettleMany,
    SettleAndClaim,
    SettleAndClaimQueues,
    SettleFailedAndClaim,
)

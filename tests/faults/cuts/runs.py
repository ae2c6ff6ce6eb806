"""Operations of a worker inside a run: what it records, and how it gives a run back that waits.

A step is recorded again under the same claim. A transaction whose COMMIT is unknown is looked for in the history, as
the next attempt does. What a run says of itself is not said twice. Settles are repeated as every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from app.domain.errors import DriverUnavailable
from app.domain.outcome import (
    Completed,
    DeadLettered,
    Outcome,
    SettleAnswer,
    Settlement,
    Suspended,
)
from app.domain.state import DeadReason, State
from app.domain.step import NewNotes, StepKind
from tests.conformance.runs import CHILD, a_call, a_child, a_sleep, a_step, an_event, new_event
from tests.faults.cuts.cell import Operation, asked_by
from tests.faults.cuts.settle import SettleAndClaim
from tests.support.drivers import ERROR, new_id

_SALE = text("insert into public.sale(id) values (:id)")


class RecordStep(Operation):
    name = "record_step"

    async def arrange(self) -> None:
        self.job = await self.started()

    async def call(self) -> Any:
        return await self.driver.record_step(self.job.token, a_step())

    async def check(self, answer: Any) -> None:
        assert answer is True
        assert await self.recorded() == [("load", '"load"')]

    async def recorded(self) -> list[tuple[str, str | None]]:
        """Give the names and values of what is recorded."""
        return [(row["name"], row["value"]) for row in await self.fetch("select name, value from outlast.step")]


class StepTransaction(RecordStep):
    """A sale and the step that is about it."""

    name = "step_transaction"
    errors = (DriverUnavailable, SQLAlchemyError, OSError, TimeoutError)

    async def arrange(self) -> None:
        await super().arrange()
        self.sale = new_id()

    async def call(self) -> Any:
        step = a_step("book", kind=StepKind.TRANSACTION, value=None)
        async with self.driver.step_transaction(self.job.token, step) as session:
            await session.execute(_SALE, {"id": self.sale})

    async def again(self) -> Any:
        view = await self.driver.describe(self.job.token.job_id)
        assert view is not None
        if not (await self.driver.history(view.id, view.run_id)).steps:
            await self.call()

    async def check(self, answer: Any) -> None:
        assert await self.recorded() == [("book", None)]
        sales = await self.fetch("select id from public.sale")
        assert [row["id"] for row in sales] == [self.sale], "the sale and its step are not the same transaction"


class Note(Operation):
    """What is lost is lost; what is kept is kept once."""

    name = "note"

    async def arrange(self) -> None:
        self.job = await self.started()

    async def call(self) -> Any:
        return await self.driver.note([NewNotes(self.job.token, ("one", "two"), (0.5, "half"))])

    async def again(self) -> Any:
        return None

    async def check(self, answer: Any) -> None:
        assert await self.count("run_line") == (2 if self.is_stored else 0)
        assert await self.count("progress") == (1 if self.is_stored else 0)


# --- a run that waits -------------------------------------------------------------------------------------------------


class Suspend(Operation):
    """`after` is the job's state, `waiting` the names of what it waits for, `recorded` those of its steps."""

    name = "settle suspended, a sleep"
    after: ClassVar[State] = State.SUSPENDED
    waiting: ClassVar[Sequence[str]] = ("nap",)
    recorded: ClassVar[Sequence[str]] = ()

    async def arrange(self) -> None:
        self.job = await self.started(key="order:1")
        self.settlement = Settlement(self.job.token, await self.outcome(), has_waits=True)

    async def outcome(self) -> Outcome:
        return Suspended(waits=(a_sleep(),))

    async def call(self) -> Any:
        return await self.driver.settle([self.settlement])

    async def check(self, answer: Any) -> None:
        assert list(answer) == [SettleAnswer.REAPED if self.is_second else SettleAnswer.SETTLED]
        self.held.clear()
        view = await self.straight.describe(self.job.token.job_id)
        assert view is not None
        assert (view.state, view.counters) == (self.after, (0, 1, 0, 0))
        history = await self.straight.history(view.id, view.run_id)
        assert [wait.name for wait in history.waits] == list(self.waiting)
        assert [step.name for step in history.steps] == list(self.recorded)
        assert await self.count("attempt") == 0


class SuspendOverEvent(Suspend):
    name = "settle suspended, an event"
    waiting = ("approval",)

    async def outcome(self) -> Outcome:
        return Suspended(waits=(an_event(),))


class SuspendOverPast(Suspend):
    """The event is there: the run is ready at once."""

    name = "settle suspended, an event that came before"
    after = State.READY
    waiting = ()
    recorded = ("approval",)

    async def outcome(self) -> Outcome:
        await self.straight.emit(new_event())
        return Suspended(waits=(an_event(),))


class SuspendOverChild(Suspend):
    """The child is enqueued in the same commit, and once."""

    name = "settle suspended, a child"
    waiting = ("call", "nap")
    fields: ClassVar[dict[str, Any]] = {}

    async def outcome(self) -> Outcome:
        await self.name_known(CHILD)
        self.child = a_child(self.job, **self.fields)
        return Suspended(waits=(a_call(self.child), a_sleep(number=1)))

    async def check(self, answer: Any) -> None:
        await super().check(answer)
        self.acked.add(self.child.id)
        assert await self.count("job", "parent_id = $1", self.job.token.job_id) == 1


class SuspendOverOther(SuspendOverChild):
    """Its call is answered by a job that was there before: the transaction begins again, that job's lock first."""

    name = "settle suspended, a child that was there"
    fields: ClassVar[dict[str, Any]] = {"key": "order:7"}

    async def outcome(self) -> Outcome:
        self.other = await self.enqueued(name=CHILD, key="order:7")
        return await super().outcome()

    async def check(self, answer: Any) -> None:
        await Suspend.check(self, answer)
        rows = await self.fetch("select child_id from outlast.wait where child_id is not null")
        assert [row["child_id"] for row in rows] == [self.other]


class SuspendAmongOthers(Operation):
    """One of a batch waits; the others do not lose by it."""

    name = "settle of a batch, one suspended"

    async def arrange(self) -> None:
        for number in range(3):
            await self.enqueued(key=f"order:{number}")
        self.jobs = await self.claimed(await self.registered(), room=3)

    async def call(self) -> Any:
        outcomes: Sequence[Outcome] = (
            Completed(result="1"),
            Suspended(waits=(a_sleep(), an_event(number=1))),
            DeadLettered(error=ERROR, reason=DeadReason.TERMINAL),
        )
        return await self.driver.settle(
            [Settlement(job.token, outcome) for job, outcome in zip(self.jobs, outcomes, strict=True)]
        )

    async def check(self, answer: Any) -> None:
        assert set(answer) == {SettleAnswer.REAPED if self.is_second else SettleAnswer.SETTLED}
        self.held.clear()
        views = [await self.straight.describe(job.token.job_id) for job in self.jobs]
        assert [view.state for view in views if view is not None] == [State.DONE, State.SUSPENDED, State.DEAD]
        assert (await self.count("wait"), await self.count("attempt")) == (2, 1)


class SuspendAndClaim(SettleAndClaim):
    """The settle is a transaction of its own, and the claim comes after it: either may be stored alone."""

    name = "settle_and_claim, suspended"

    def outcome(self) -> Any:
        return Suspended(waits=(a_sleep(),))

    async def again(self) -> Any:
        settlements = [Settlement(job.token, self.outcome(), False) for job in self.jobs]
        answers = await self.driver.settle(settlements)
        before = {job.token for job in self.jobs}
        self.lost = len(await self.bench.running() - before)
        now = await self.driver.database_time()
        assert await self.driver.reconcile(self.worker, [], before=now) == self.lost
        return answers, await self.driver.claim(asked_by(self.worker, queues=self.queues))

    lost = 0

    async def check(self, answer: Any) -> None:
        answers, claimed = answer
        own = SettleAnswer.REAPED if self.is_second else SettleAnswer.SETTLED
        assert list(answers) == [own, own]
        self.held = {job.token for job in claimed}
        assert len(claimed) == 3
        claims = 2 if self.lost else 1
        assert {(job.token.claim_no, job.counters.attempt) for job in claimed} == {(claims, 1)}
        assert (await self.count("suspended"), await self.count("wait")) == (2, 2)


RECORDS: tuple[type[Operation], ...] = (RecordStep, StepTransaction, Note)
SUSPENSIONS: tuple[type[Operation], ...] = (
    Suspend,
    SuspendOverEvent,
    SuspendOverPast,
    SuspendOverChild,
    SuspendOverOther,
    SuspendAmongOthers,
    SuspendAndClaim,
)

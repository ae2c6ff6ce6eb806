"""Bulk operations: making one is repeated under its id; a batch is the next executor's, who finds done what was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID, uuid4

from app.domain.audit import Action, AuditEntry, Target
from app.domain.bulk import BulkAction, BulkState, NewBulk
from app.domain.job import JobId
from app.domain.outcome import DeadLettered, Settlement, Suspended
from app.domain.state import DeadReason, State
from app.drivers.postgres.bulk import PostgresBulk
from tests.conformance.runs import a_call, a_child, a_sleep
from tests.faults.cuts.cell import Operation
from tests.faults.cuts.waits import Waiting
from tests.support.bulk import a_bulk
from tests.support.drivers import ERROR

_HOUR = timedelta(hours=1)


class OfBulk(Waiting):
    """Two jobs that wait, and an operation over them."""

    action: ClassVar[BulkAction] = BulkAction.CANCEL
    fields: ClassVar[dict[str, Any]] = {}

    def store(self) -> PostgresBulk:
        """Give the operations past the blade."""
        return PostgresBulk(self.driver._db)

    def straight_store(self) -> PostgresBulk:
        """Give them beside it."""
        return PostgresBulk(self.straight._db)

    async def arrange(self) -> None:
        self.jobs = await self.given()
        self.bulk: NewBulk = a_bulk(self.action, ids=self.jobs, **self.fields)

    async def given(self) -> list[JobId]:
        return [await self.enqueued(key="order:1"), await self.enqueued()]

    def entry(self, action: Action) -> AuditEntry:
        return AuditEntry(id=uuid4(), actor="ada", action=action, target_kind=Target.BULK, target=str(self.bulk.id))


class Make(OfBulk):
    name = "make a bulk operation"

    async def arrange(self) -> None:
        await super().arrange()
        self.made_by = self.entry(Action.BULK_MAKE)

    async def call(self) -> Any:
        return await self.store().make(self.bulk, audit=self.made_by)

    async def check(self, answer: Any) -> None:
        assert (answer.selected, answer.left) == (2, 2)
        assert await self.count("bulk") == 1
        assert await self.count("bulk_item", "verdict is null") == 2
        assert await self.count("audit") == 1


class MakeOverFilter(Make):
    name = "make a bulk operation over a filter"

    async def arrange(self) -> None:
        await super().arrange()
        self.bulk = a_bulk(self.action, State.READY, expected_count=2)


class Abort(Make):
    name = "abort a bulk operation"

    async def arrange(self) -> None:
        await super().arrange()
        await self.straight_store().make(self.bulk)
        self.made_by = self.entry(Action.BULK_ABORT)

    async def call(self) -> Any:
        return await self.store().abort(self.bulk.id, by="bob", audit=self.made_by)

    async def check(self, answer: Any) -> None:
        await super().check(answer)
        assert (answer.state, answer.ended_by) == (BulkState.ABORTED, "bob")


class Step(OfBulk):
    """A batch; whoever did not hear of it looks for the next, and finds nothing left, or does it."""

    name = "cancel a batch"
    after: ClassVar[tuple[State | None, ...]] = (State.CANCELLED, State.CANCELLED)
    audited = 2

    async def arrange(self) -> None:
        await super().arrange()
        await self.straight_store().make(self.bulk)

    async def call(self) -> Any:
        return await self.store().step(only=self.bulk.id)

    async def check(self, answer: Any) -> None:
        view = await self.straight_store().find(self.bulk.id)
        assert view is not None
        assert (view.state, view.done, view.left) == (BulkState.DONE, len(self.jobs), 0)
        views = [await self.straight.describe(job_id) for job_id in self.jobs]
        assert tuple(None if each is None else each.state for each in views) == self.after
        assert await self.count("audit") == self.audited
        self.held.clear()
        self.acked -= {job_id for job_id, each in zip(self.jobs, views, strict=True) if each is None}


class StepOverRunning(Step):
    name = "cancel a batch of jobs that run"

    async def given(self) -> list[JobId]:
        worker = await self.registered()
        return [(await self.started(worker, key=key)).token.job_id for key in ("order:1", "order:2")]

    async def check(self, answer: Any) -> None:
        await super().check(answer)
        assert await self.count("attempt") == 2


class StepOverCallers(Step):
    """Its job is cancelled with its child, in a transaction behind that of the batch."""

    name = "cancel a batch with a job that calls another"
    after = (State.CANCELLED,)
    audited = 1

    async def given(self) -> list[JobId]:
        worker = await self.registered()
        parent = await self.started(worker)
        child = a_child(parent, delay=_HOUR)
        await self.straight.settle([Settlement(parent.token, Suspended(waits=(a_call(child),)), has_waits=True)])
        self.held.clear()
        self.acked.add(child.id)
        self.child: UUID = child.id
        return [parent.token.job_id]

    async def check(self, answer: Any) -> None:
        await super().check(answer)
        view = await self.straight.describe(JobId(self.child))
        assert view is not None
        assert view.state is State.CANCELLED
        assert await self.count("wait") == 0


class StepRetry(Step):
    name = "retry a batch"
    action = BulkAction.RETRY
    after: ClassVar[tuple[State | None, ...]] = (State.READY, State.READY)

    async def given(self) -> list[JobId]:
        worker = await self.registered()
        jobs = [await self.started(worker, key=key) for key in ("order:1", "order:2")]
        outcome = DeadLettered(error=ERROR, reason=DeadReason.TERMINAL)
        await self.straight.settle([Settlement(job.token, outcome, True) for job in jobs])
        self.held.clear()
        return [job.token.job_id for job in jobs]


class StepDelete(StepRetry):
    name = "delete a batch"
    action = BulkAction.DELETE
    after = (None, None)


class StepRunNow(Step):
    name = "run a batch now"
    action = BulkAction.RUN_NOW
    after = (State.READY, State.READY)

    async def given(self) -> list[JobId]:
        return [await self.enqueued(delay=_HOUR), await self.enqueued(delay=_HOUR)]


class StepEndSleeps(Step):
    """Sleeps are due once the batch is committed; a sweep ends what the executor's own look does not."""

    name = "run a batch of runs that sleep now"
    action = BulkAction.RUN_NOW
    after = (State.READY, State.READY)

    async def given(self) -> list[JobId]:
        worker = await self.registered()
        return [(await self.suspended(worker, a_sleep())).token.job_id for _ in range(2)]

    async def check(self, answer: Any) -> None:
        await self.straight.wake()
        await super().check(answer)
        assert await self.count("wait") == 0


class StepPriority(Step):
    name = "give a batch another priority"
    action = BulkAction.SET_PRIORITY
    fields: ClassVar[dict[str, Any]] = {"priority": 1}
    after = (State.READY, State.READY)


class Trim(Step):
    name = "trim bulk operations"

    async def arrange(self) -> None:
        await super().arrange()
        await self.straight_store().step(only=self.bulk.id)
        await self.fetch("update outlast.bulk set ended_at = ended_at - interval '31 days'")

    async def call(self) -> Any:
        return await self.store().trim()

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_cut and self.is_stored else 3)
        assert (await self.count("bulk"), await self.count("bulk_item")) == (0, 0)


OPERATIONS: tuple[type[Operation], ...] = (
    *(Make, MakeOverFilter, Abort, Trim),
    *(Step, StepOverRunning, StepOverCallers, StepRetry, StepDelete, StepRunNow, StepEndSleeps, StepPriority),
)

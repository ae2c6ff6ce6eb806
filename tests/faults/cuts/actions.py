"""Operations of operators that leave a row of the audit: one row for one action, however often it was asked for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import pytest

from app.domain.audit import Action, AuditEntry, Target
from app.domain.edit import JobPatch, RunNowVerdict
from app.domain.errors import JobNotFound
from app.domain.outcome import CancelVerdict, Completed, Held, Settlement
from app.domain.state import State
from tests.conformance.runs import a_sleep
from tests.faults.cuts.cell import Operation
from tests.faults.cuts.waits import Waiting
from tests.support.audit import an_entry
from tests.support.drivers import new_id

_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)


class Audited(Waiting):
    """What an operator does; the row is minted once, as the action is asked for once."""

    action: ClassVar[Action]
    outcome: ClassVar[str] = "done"

    def entry(self, target: object, kind: Target = Target.JOB) -> AuditEntry:
        """Mint the row."""
        return an_entry(self.action, target, target_kind=kind)

    async def one_row(self) -> None:
        """Hold the audit to what it promises."""
        rows = await self.fetch("select action, outcome from outlast.audit")
        assert [(row["action"], row["outcome"]) for row in rows] == [(self.action, self.outcome)]


class CancelAudited(Audited):
    name = "cancel with its row"
    action = Action.JOB_CANCEL
    outcome = "cancelled_before_start"

    async def arrange(self) -> None:
        self.job_id = await self.enqueued(key="order:1")
        self.audit = self.entry(self.job_id)

    async def call(self) -> Any:
        return await self.driver.cancel(self.job_id, reason="stop", audit=self.audit)

    async def check(self, answer: Any) -> None:
        expected = CancelVerdict.ALREADY_FINISHED if self.is_second else CancelVerdict.CANCELLED_BEFORE_START
        assert answer is expected
        await self.one_row()


class RunNow(Audited):
    name = "run_now"
    action = Action.JOB_RUN_NOW
    outcome = RunNowVerdict.MADE_READY

    async def arrange(self) -> None:
        self.job_id = await self.enqueued(key="order:1", delay=_HOUR)
        self.audit = self.entry(self.job_id)

    async def call(self) -> Any:
        return await self.driver.run_now(self.job_id, audit=self.audit)

    async def check(self, answer: Any) -> None:
        assert answer is (RunNowVerdict.ALREADY_READY if self.is_second else RunNowVerdict.MADE_READY)
        view = await self.straight.describe(self.job_id)
        assert view is not None
        assert (view.state, view.counters) == (State.READY, (0, 0, 0, 0))
        await self.one_row()


class EndSleep(Audited):
    """The sleep is due once that is committed, and a sweep ends it if the operator's own look does not."""

    name = "run_now of a run that sleeps"
    action = Action.JOB_RUN_NOW
    outcome = RunNowVerdict.SLEEP_ENDED

    async def arrange(self) -> None:
        job = await self.suspended(await self.registered(), a_sleep())
        self.job_id = job.token.job_id
        self.audit = self.entry(self.job_id)

    async def call(self) -> Any:
        return await self.driver.run_now(self.job_id, audit=self.audit)

    async def check(self, answer: Any) -> None:
        assert answer in {RunNowVerdict.SLEEP_ENDED, RunNowVerdict.ALREADY_READY}
        await self.straight.wake()
        view = await self.straight.describe(self.job_id)
        assert view is not None
        assert view.state is State.READY
        assert await self.steps(self.job_id) == ["nap"]
        await self.one_row()


class Patch(Audited):
    name = "patch of priority, tags and budget"
    action = Action.JOB_UPDATE
    fields: ClassVar[dict[str, Any]] = {"priority": 1, "tags": ("a",), "max_attempts": 3}
    delay: ClassVar[timedelta | None] = None
    after = State.READY

    async def arrange(self) -> None:
        self.job_id = await self.enqueued(delay=self.delay)
        now = await self.straight.database_time()
        times = {name: now + value for name, value in self.fields.items() if isinstance(value, timedelta)}
        self.patch = JobPatch(**{**self.fields, **times})
        self.audit = self.entry(self.job_id)

    async def call(self) -> Any:
        await self.driver.patch(self.job_id, self.patch, audit=self.audit)

    async def check(self, answer: Any) -> None:
        view = await self.straight.describe(self.job_id)
        assert view is not None
        assert view.state is self.after
        assert self.patch.before(view) == self.patch.after()
        await self.one_row()


class PatchLater(Patch):
    name = "patch that gives a ready job a time"
    fields: ClassVar[dict[str, Any]] = {"run_at": _HOUR, "priority": 1}
    after = State.DELAYED


class PatchSooner(Patch):
    name = "patch that lets a delayed job go"
    fields: ClassVar[dict[str, Any]] = {"run_at": -_MINUTE}
    delay = _HOUR


class Delete(Audited):
    """The second call of an operator whose first was stored finds no job."""

    name = "delete"
    action = Action.JOB_DELETE

    async def arrange(self) -> None:
        job = await self.started(key="order:1")
        await self.end(job)
        self.held.clear()
        self.job_id = job.token.job_id
        self.audit = self.entry(self.job_id)

    async def end(self, job: Any) -> None:
        """Bring the job to where it can be deleted."""
        await self.straight.settle([Settlement(job.token, Completed(result="1"), True)])

    async def call(self) -> Any:
        await self.driver.delete(self.job_id, audit=self.audit)

    async def again(self) -> Any:
        if not self.is_stored:
            return await self.call()
        with pytest.raises(JobNotFound):
            await self.call()
        return None

    async def check(self, answer: Any) -> None:
        self.acked.discard(self.job_id)
        assert await self.straight.describe(self.job_id) is None
        assert await self.count("live_key") == 0
        await self.one_row()


class DeleteHeld(Delete):
    name = "delete of a held job"

    async def end(self, job: Any) -> None:
        await self.straight.settle([Settlement(job.token, Held(reason="does not fit"), True)])


class Place(Audited):
    name = "place"
    action = Action.JOB_DUPLICATE

    async def arrange(self) -> None:
        await self.name_known()
        self.job = self.new(key="order:1", on_conflict="error")
        self.audit = self.entry(new_id())

    async def call(self) -> Any:
        return await self.driver.place(self.job, audit=self.audit)

    async def check(self, answer: Any) -> None:
        assert (answer.id, answer.deduped) == (self.job.id, False)
        self.acked.add(answer.id)
        await self.one_row()


class PauseAudited(Audited):
    name = "pause_queue with its row"
    action = Action.QUEUE_PAUSE

    async def arrange(self) -> None:
        await self.enqueued()
        self.audit = self.entry("default", Target.QUEUE)

    async def call(self) -> Any:
        await self.driver.pause_queue("default", by="alice", audit=self.audit)

    async def check(self, answer: Any) -> None:
        await self.one_row()
        await self.straight.resume_queue("default")


class KeepEntry(Audited):
    name = "keep_entry"
    action = Action.JOB_RETRY

    async def arrange(self) -> None:
        self.audit = self.entry("state:dead", Target.FILTER)

    async def call(self) -> Any:
        await self.driver.keep_entry(self.audit)

    async def check(self, answer: Any) -> None:
        await self.one_row()


OPERATIONS: tuple[type[Operation], ...] = (
    CancelAudited,
    RunNow,
    EndSleep,
    Patch,
    PatchLater,
    PatchSooner,
    Delete,
    DeleteHeld,
    Place,
    PauseAudited,
    KeepEntry,
)

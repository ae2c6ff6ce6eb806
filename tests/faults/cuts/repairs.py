"""What operators do to runs: release what is held, retry, fork, cancel a family.

A fork is repeated under its new job's id; whoever repeats another verb is told that it was done.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from app.domain.errors import JobStateConflict
from app.domain.outcome import CancelVerdict, DeadLettered, Held, Settlement
from app.domain.state import DeadReason, State
from app.domain.step import RetryMode
from tests.conformance.runs import a_call, a_child, a_step, an_event, new_event
from tests.faults.cuts.cell import Operation
from tests.faults.cuts.waits import Waiting
from tests.support.drivers import ERROR, NAME, new_id


class ReleaseHeld(Waiting):
    """The second call of an operator whose first was stored finds the job ready, and is told so."""

    name = "release_held"

    async def arrange(self) -> None:
        self.job = await self.started(key="order:1")
        await self.straight.record_step(self.job.token, a_step())
        await self.straight.settle([Settlement(self.job.token, Held(reason="another step was recorded"))])
        self.held.clear()

    async def call(self) -> Any:
        await self.driver.release_held(self.job.token.job_id)

    async def again(self) -> Any:
        if not self.is_stored:
            return await self.call()
        with pytest.raises(JobStateConflict) as conflict:
            await self.call()
        assert conflict.value.details["state"] == State.READY.value
        return None

    async def check(self, answer: Any) -> None:
        assert await self.states(self.job) == [State.READY]
        assert await self.steps(self.job.token.job_id) == ["load"]


class RetryFrom(ReleaseHeld):
    """Its run is cut back and its child, which had not ended, is cancelled, in one commit."""

    name = "retry from a step"
    left: ClassVar[list[str]] = ["load"]

    async def arrange(self) -> None:
        worker = await self.registered()
        self.job = await self.started(worker, key="order:1")
        for number, step in enumerate(("load", "charge", "send")):
            await self.straight.record_step(self.job.token, a_step(step, number))
        child = a_child(self.job, NAME)
        await self.suspend(self.job, a_call(child, number=3), an_event(number=4))
        self.acked.add(child.id)
        (self.child,) = await self.claimed(worker)
        await self.straight.emit(new_event())
        # Its child runs, and it runs again because of the event, and dies.
        await self.fetch(
            "with s as (delete from outlast.suspended where job_id = $1 returning *)"
            " insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)"
            " select queue, rank & -2, job_id, name_id, attempt, claim_no, crashes, interrupts from s",
            self.job.token.job_id,
        )
        (job,) = await self.claimed(worker)
        outcome = DeadLettered(error=ERROR, reason=DeadReason.TERMINAL)
        await self.straight.settle([Settlement(job.token, outcome, has_waits=True)])
        self.held = {self.child.token}
        assert await self.states(self.job, self.child) == [State.DEAD, State.RUNNING]

    async def call(self) -> Any:
        await self.driver.retry(self.job.token.job_id, from_step="charge")

    async def check(self, answer: Any) -> None:
        assert await self.states(self.job, self.child) == [State.READY, State.CANCELLED]
        self.held.clear()
        assert await self.steps(self.job.token.job_id) == self.left
        assert await self.count("wait") == 0
        view = await self.straight.describe(self.job.token.job_id)
        assert view is not None
        assert view.counters == (0, 2, 0, 0)


class RetryFresh(RetryFrom):
    name = "retry fresh"
    left: ClassVar[list[str]] = []

    async def call(self) -> Any:
        await self.driver.retry(self.job.token.job_id, mode=RetryMode.FRESH)

    async def check(self, answer: Any) -> None:
        await super().check(answer)
        assert await self.count("step") == 0


class Fork(Waiting):
    name = "fork"

    async def arrange(self) -> None:
        self.job = await self.started(key="order:1")
        for number, step in enumerate(("load", "charge", "send")):
            await self.straight.record_step(self.job.token, a_step(step, number))
        self.new_id = new_id()

    async def call(self) -> Any:
        return await self.driver.fork(self.job.token.job_id, new_id=self.new_id, from_step="send")

    async def check(self, answer: Any) -> None:
        self.acked.add(self.new_id)
        view = await self.straight.describe(self.new_id)
        assert view is not None
        assert (answer.id, answer.run_id, answer.deduped) == (self.new_id, view.run_id, False)
        assert (view.state, view.counters, view.parent_id) == (State.READY, (0, 0, 0, 0), self.job.token.job_id)
        assert await self.steps(self.new_id) == ["load", "charge"]
        assert await self.count("step") == 5


class CancelFamily(Waiting):
    """A run that waits for a child, which waits for one of its own, and whose last one runs."""

    name = "cancel of a run with children"

    async def arrange(self) -> None:
        worker = await self.registered()
        first = await self.started(worker, key="order:1")
        second = await self.calls(worker, first)
        self.jobs = [first, second, await self.calls(worker, second)]

    async def call(self) -> Any:
        return await self.driver.cancel(self.jobs[0].token.job_id, reason="changed their mind")

    async def check(self, answer: Any) -> None:
        first = CancelVerdict.CANCELLED_WHILE_WAITING
        assert answer is (CancelVerdict.ALREADY_FINISHED if self.is_second else first)
        self.held.clear()
        assert await self.states(*self.jobs) == [State.CANCELLED] * 3
        assert (await self.count("wait"), await self.count("suspended")) == (0, 0)
        assert await self.count("live_key", "not ended") == 0
        assert await self.count("attempt") == 1


REPAIRS: tuple[type[Operation], ...] = (ReleaseHeld, RetryFrom, RetryFresh, Fork, CancelFamily)

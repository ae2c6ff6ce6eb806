"""Operations by which the waits of runs end, and runs with them: events, and the sweeps that any worker does.

An emit is repeated under its id; a sweep's caller does the next one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.domain.job import ClaimedJob, JobId, WorkerId
from app.domain.outcome import Completed, DeadLettered, Held, Settlement, Suspended
from app.domain.snapshot import JobTypeDoc
from app.domain.state import DeadReason, State
from app.domain.step import NewWait
from app.drivers.protocol import PurgeQuery
from tests.conformance.runs import a_call, a_child, a_sleep, a_step, an_event, new_event
from tests.faults.cuts.cell import Operation
from tests.support.drivers import ERROR, NAME

_HOUR = timedelta(hours=1)
_PAST = "outlast.clock() - interval '2 days'"


class Waiting(Operation):
    """Sentences about runs that wait."""

    async def suspended(self, worker: WorkerId, *waits: NewWait) -> ClaimedJob:
        """Have the run of a new job wait."""
        job = await self.started(worker)
        await self.suspend(job, *waits)
        return job

    async def suspend(self, job: ClaimedJob, *waits: NewWait) -> None:
        """Have a run wait."""
        await self.straight.settle([Settlement(job.token, Suspended(waits=waits), has_waits=True)])
        self.held.remove(job.token)

    async def calls(self, worker: WorkerId, job: ClaimedJob) -> ClaimedJob:
        """Have a run call a child, and give that to the worker."""
        child = a_child(job, NAME)
        await self.suspend(job, a_call(child))
        self.acked.add(child.id)
        (claimed,) = await self.claimed(worker)
        return claimed

    async def states(self, *jobs: ClaimedJob) -> list[State]:
        """Give the states of jobs."""
        views = [await self.straight.describe(job.token.job_id) for job in jobs]
        return [view.state for view in views if view is not None]

    async def steps(self, job_id: JobId) -> list[str]:
        """Give what a job's run has recorded."""
        view = await self.straight.describe(job_id)
        assert view is not None
        return [step.name for step in (await self.straight.history(view.id, view.run_id)).steps]


class Emit(Waiting):
    """Two runs wait for it, one of them twice."""

    name = "emit"

    async def arrange(self) -> None:
        worker = await self.registered()
        self.jobs = [await self.suspended(worker, an_event()), await self.suspended(worker, an_event(), a_sleep())]
        self.event = new_event()

    async def call(self) -> Any:
        return await self.driver.emit(self.event)

    async def check(self, answer: Any) -> None:
        assert (answer.id, answer.matched, answer.is_repeated) == (self.event.id, 2, self.is_second)
        assert await self.states(*self.jobs) == [State.READY] * 2
        assert (await self.count("event"), await self.count("step"), await self.count("wait")) == (1, 2, 1)


class WakeUp(Waiting):
    """A sleep is over and an event did not come; a third goes on waiting."""

    name = "wake"

    async def arrange(self) -> None:
        worker = await self.registered()
        self.jobs = [
            await self.suspended(worker, a_sleep()),
            await self.suspended(worker, an_event(delay=_HOUR)),
        ]
        await self.fetch("update outlast.wait set due_at = outlast.clock()")
        self.jobs.append(await self.suspended(worker, a_sleep()))

    async def call(self) -> Any:
        return await self.driver.wake()

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_second else 2)
        assert await self.states(*self.jobs) == [State.READY, State.READY, State.SUSPENDED]
        assert (await self.count("step", "value is null"), await self.count("wait")) == (2, 1)


class Sweep(Waiting):
    """Nobody was told that a child ended."""

    name = "sweep_waits"

    async def arrange(self) -> None:
        worker = await self.registered()
        self.parent = await self.started(worker)
        child = await self.calls(worker, self.parent)
        await self.straight.settle([Settlement(child.token, Completed(result="1"))])
        self.held.clear()

    async def call(self) -> Any:
        return await self.driver.sweep_waits()

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_second else 1, None)
        assert await self.states(self.parent) == [State.READY]
        assert await self.steps(self.parent.token.job_id) == ["call"]


class ReleaseDue(Waiting):
    """One was handed back to code that is gone, one is held for code that has come, one's payload fitted nobody."""

    name = "release_due"

    async def arrange(self) -> None:
        old = await self.registered(code_version="old")
        new = await self.registered(code_version="new")
        for version in ("old", "next"):
            await self.driver.publish_job_types([JobTypeDoc(name=NAME, code_version=version, document="{}")])
        self.back = await self.lost(new, "old")
        self.dead = await self.started(new)
        await self.fetch("update outlast.job_type set code_version = 'old'")
        await self.settled(self.dead, Held(reason="refused", error=ERROR, or_dead=True))
        self.due = await self.lost(new, "next")
        assert await self.states(self.back, self.dead, self.due) == [State.READY, State.READY, State.HELD]
        await self.straight.close_worker(old)
        await self.registered(code_version="next")

    async def lost(self, worker: WorkerId, version: str) -> ClaimedJob:
        """Give a job that does not fit the worker's code, and is settled so."""
        job = await self.started(worker)
        await self.settled(job, Held(reason="another step was recorded", error=ERROR, version=version))
        return job

    async def settled(self, job: ClaimedJob, outcome: Held) -> None:
        await self.straight.settle([Settlement(job.token, outcome)])
        self.held.remove(job.token)

    async def call(self) -> Any:
        return await self.driver.release_due()

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_second else 3)
        assert await self.states(self.back, self.dead, self.due) == [State.HELD, State.DEAD, State.READY]
        rows = await self.fetch("select job_id, version from outlast.handed")
        assert [(row["job_id"], row["version"]) for row in rows] == [(self.due.token.job_id, "next")]
        await self.straight.release_held(self.back.token.job_id)


class ExpireRun(Waiting):
    """The deadline of a child passes while it waits; its parent is told after that, or by the sweep."""

    name = "expire of a child that waits"

    async def arrange(self) -> None:
        worker = await self.registered()
        self.parent = await self.started(worker)
        child = a_child(self.parent, NAME, deadline=_HOUR)
        await self.suspend(self.parent, a_call(child))
        self.acked.add(child.id)
        (self.child,) = await self.claimed(worker)
        await self.suspend(self.child, a_sleep())
        await self.fetch(f"update outlast.expiry set at = {_PAST}")

    async def call(self) -> Any:
        return await self.driver.expire()

    async def check(self, answer: Any) -> None:
        assert len(answer) == (0 if self.is_second else 1)
        await self.straight.sweep_waits()
        assert await self.states(self.parent, self.child) == [State.READY, State.DEAD]


class PurgeRun(Waiting):
    name = "purge of runs"

    async def arrange(self) -> None:
        job = await self.started()
        await self.straight.record_step(job.token, a_step())
        outcome = DeadLettered(error=ERROR, reason=DeadReason.TERMINAL)
        await self.suspend(job, an_event(number=1), a_sleep(number=2))
        await self.straight.emit(new_event())
        (job,) = await self.claimed(await self.registered())
        await self.straight.settle([Settlement(job.token, outcome, has_waits=True)])
        self.held.clear()
        self.acked.clear()  # it may go

    async def call(self) -> Any:
        return await self.driver.purge(PurgeQuery(state=State.DEAD, older_than=timedelta(seconds=-1)))

    async def check(self, answer: Any) -> None:
        for table in ("job", "finished", "attempt", "step", "wait"):
            assert await self.count(table) == 0, f"left in {table}"


WAKES: tuple[type[Operation], ...] = (Emit, WakeUp, Sweep, ReleaseDue, ExpireRun, PurgeRun)

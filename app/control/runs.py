"""What people do with the run of a job: read its steps, its timeline and its lines, fork it, release it, follow it.

Authority is the caller's business, as in `jobs`: another tenant's job answers as an absent one. Called by the HTTP
routes and the command line.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from uuid import UUID

from uuid_utils.compat import uuid7

from ..domain.audit import Acting, Action
from ..domain.job import Enqueued, JobId
from ..domain.snapshot import AttemptView, JobView
from ..domain.step import RunView
from ..drivers.protocol import JobDriver
from ..steps.repeat import until_known
from .acting import done_before, on_job
from .changes import Follower, News, Position, look_at
from .jobs import JobControl, job_not_found
from .streams import JobStream, JobStreams
from .timeline import Timeline, timeline_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A job, its run, its ledger, and what they come to in time."""

    view: JobView
    run: RunView
    attempts: tuple[AttemptView, ...]
    timeline: Timeline


class RunControl:
    """The verbs on runs. `streams` is the process's watcher; a command that follows one job needs none."""

    def __init__(
        self,
        *,
        driver: JobDriver,
        jobs: JobControl,
        streams: JobStreams,
        new_id: Callable[[], UUID] = uuid7,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._streams = streams
        self._new_id = new_id
        self._monotonic = monotonic
        self.jobs = jobs

    async def run(self, job_id: JobId, *, tenant: str | None, after: int = 0, values: int | None = None) -> RunView:
        """Give a job's run: its steps and lines recorded after `after`, what it waits for, its progress.

        Of the steps `values`, from the first on, have their value; all of them if nobody says.

        Raises:
            JobNotFound: there is none to be seen.
        """

        async def run() -> RunView:
            found = await self._driver.run(job_id, tenant=tenant, after=after, values=values)
            if found is None:
                raise job_not_found(str(job_id))
            return found

        return await self.jobs.on(job_id, tenant, run)

    async def timeline(self, job_id: JobId, *, tenant: str | None) -> tuple[JobView, Timeline]:
        """Give a job and its life as spans. Raises `JOB_NOT_FOUND`."""
        life = await self.life(job_id, tenant=tenant, values=0)
        return life.view, life.timeline

    async def life(self, job_id: JobId, *, tenant: str | None, values: int) -> Life:
        """Give all that is known of a job's life, each part read once, so many steps with values.

        Raises:
            JobNotFound: there is none to be seen.
        """
        run = await self.run(job_id, tenant=tenant, values=values)
        view = await self.jobs.describe(job_id, tenant=tenant)
        attempts = await self._driver.attempts(job_id, tenant=tenant)
        return Life(view=view, run=run, attempts=attempts, timeline=timeline_of(view, attempts, run))

    async def fork(
        self, job_id: JobId, *, from_step: str | None, tenant: str | None, by: Acting | None = None
    ) -> JobView:
        """Make a new job with a job's history up to a step, not including it, or all of it; and give the new job.

        Raises:
            JobNotFound: there is none to be seen.
            NotFound: its run has not recorded the step.
        """
        done = done_before(by)
        if done is not None:
            return await self.jobs.describe(JobId(UUID(done.details["new_id"])), tenant=tenant)
        new_id = JobId(self._new_id())
        audit = on_job(by, Action.JOB_FORK, job_id, new_id=str(new_id), from_step=from_step)

        async def fork() -> Enqueued:
            return await self._driver.fork(job_id, new_id=new_id, from_step=from_step, tenant=tenant, audit=audit)

        await self.jobs.on(job_id, tenant, lambda: until_known(fork))
        return await self.jobs.describe(new_id, tenant=tenant)

    async def release(self, job_id: JobId, *, tenant: str | None, by: Acting | None = None) -> JobView:
        """Make a held job ready, its run as it is, and give it.

        Raises:
            JobNotFound: there is none to be seen.
            JobStateConflict: it is not held.
        """
        audit = on_job(by, Action.JOB_RELEASE, job_id)
        if done_before(by) is None:
            await self.jobs.on(job_id, tenant, lambda: self._driver.release_held(job_id, tenant=tenant, audit=audit))
        return await self.jobs.describe(job_id, tenant=tenant)

    async def stream(
        self, job_id: JobId, *, tenant: str | None, caller: str, position: Position | None
    ) -> AbstractContextManager[JobStream]:
        """Follow a job among the process's streams, from where the caller was before.

        Raises:
            JobNotFound: there is none to be seen.
            RateLimited: when the context is entered.
        """
        await self.jobs.describe(job_id, tenant=tenant)
        return self._streams.follow(job_id, caller=caller, position=position)

    async def follow(self, job_id: JobId, *, pause: Callable[[], Awaitable[None]]) -> AsyncGenerator[list[News], None]:
        """Follow one job by looking at it again and again, with a `pause` between two looks, until it has ended.

        Raises:
            JobNotFound: there is none. One that is deleted meanwhile has ended.
        """
        await self.jobs.describe(job_id, tenant=None)
        follower, look = Follower(), None
        while not follower.has_ended:
            look = await look_at(self._driver, job_id, after=follower.after, since=look, at=self._monotonic())
            yield follower.news(look)
            if not follower.has_ended:
                await pause()

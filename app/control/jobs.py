"""What people do with one job or a page of them: enqueue, read, wait; and what operators do.

Admits against the published job types, then speaks to the store; never imports a handler. Authority is the caller's
business: `tenant` is the only tenant a call may touch, None for all, and another tenant's job answers as an absent
one. Called by the HTTP routes and the command line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

from ..domain.errors import Forbidden, JobNotFound, JobUnknown, OutlastError
from ..domain.explain import explain
from ..domain.job import Enqueued, JobId, NewJob
from ..domain.reason import Explanation, Situation
from ..domain.request_claim import RequestClaim, jobs_of
from ..domain.snapshot import AttemptView, JobCount, JobPage, JobView, PlacedPage
from ..domain.state import TERMINAL
from ..drivers.protocol import JobDriver
from ..drivers.reading import SORTABLE, ListQuery, TimeOrder, TimeSort
from ..jobs.admission import Admission, EnqueueRequest
from ..jobs.callbacks import check_callbacks
from ..jobs.jobtype import JobTypes
from ..jobs.request import refuse_request
from ..lifecycle.tasks import start_in
from ..observability.telemetry import Telemetry
from ..steps.repeat import until_known
from .actions import JobActions
from .actors import OPERATOR, Actors
from .catalogue import PUBLISH_FIRST, TypeCatalogue
from .crowd import TenantCrowd
from .redaction import Redaction
from .staged import StagedIds
from .waiting import ResultWaiters

__all__ = [
    "SORTABLE",
    "EnqueueRequest",
    "JobControl",
    "ListQuery",
    "Placed",
    "TimeOrder",
    "TimeSort",
    "job_not_found",
]

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An enqueue that succeeded: what was asked for and which job now stands for it."""

    job: NewJob
    answer: Enqueued


def _any(_queue: str) -> None:
    """Refuse no queue."""


class JobControl(JobActions):
    """The verbs on jobs; those of operators are `JobActions`'.

    A verb on an id under which there is no job says where the id leads, if it was staged: `StagedIds.explain`.
    """

    def __init__(
        self,
        *,
        driver: JobDriver,
        catalogue: TypeCatalogue,
        waiters: ResultWaiters,
        admission: Admission,
        telemetry: Telemetry,
        staged: StagedIds,
        actors: Actors,
    ) -> None:
        self._driver = driver
        self._catalogue = catalogue
        self._waiters = waiters
        self._admission = admission
        self._telemetry = telemetry
        self._staged = staged
        self._actors = actors
        self._types = JobTypes()
        self._crowd = TenantCrowd(driver, None)
        self.redaction = Redaction(driver, catalogue)

    def limit_waiting(self, most: int | None) -> None:
        """Let no tenant have more than so many ready and delayed jobs by what is enqueued here; see `TenantCrowd`."""
        self._crowd = TenantCrowd(self._driver, most)

    async def enqueue(
        self,
        request: EnqueueRequest,
        *,
        tenant: str | None,
        check_queue: Callable[[str], object] = _any,
        claim: RequestClaim | None = None,
    ) -> Placed:
        """Admit and store one job, durable when this returns; with the mark of the request that asks for it.

        Raises:
            JobUnknown: nobody has published the name, or its key or tenant cannot be evaluated here.
            PayloadInvalid: the payload does not fit the published schema.
            RequestInvalid: its parent is no job that a caller of one tenant may see.
            Forbidden: the job belongs to a tenant the caller may not act for, or `check_queue` refuses its queue.
            JobDuplicate, IdempotencyMismatch: the key is taken.
            CallbackRefused: its callback names no webhook of its tenant, or another origin.
            TenantFull: as many jobs of its tenant wait as may.
        """
        job = await self._admitted(request, tenant, check_queue)
        if claim is not None and claim.effect is not None:
            return Placed(job=job, answer=jobs_of(claim.effect)[0])
        await self._check_parent(job, tenant, set())
        await self._crowd.let_in([job])
        answer = await self._stored(job, claim)
        self._telemetry.job_enqueued(job_id=str(answer.id), job=job.name, queue=job.queue, deduped=answer.deduped)
        return Placed(job=job, answer=answer)

    async def enqueue_all(
        self,
        requests: Sequence[EnqueueRequest],
        *,
        tenant: str | None,
        check_queue: Callable[[str], object] = _any,
        claim: RequestClaim | None = None,
    ) -> tuple[Placed, ...]:
        """Admit and store all jobs or none, in one commit; answers in order.

        Raises:
            OutlastError: the first refusal, its `index` in the details; as of `enqueue`.
        """
        jobs: list[NewJob] = []
        for index, request in enumerate(requests):
            try:
                jobs.append(await self._admitted(request, tenant, check_queue))
            except OutlastError as error:
                error.details["index"] = index
                raise
        if claim is None or claim.effect is None:
            await self._check_parents(jobs, tenant)
            await self._crowd.let_in(jobs)
        if claim is None:
            answers = await until_known(lambda: self._driver.enqueue_many(jobs))
        elif claim.effect is None:
            answers = await until_known(lambda: self._driver.enqueue_once(jobs, claim))
        else:
            answers = jobs_of(claim.effect)
        return tuple(Placed(job=job, answer=answer) for job, answer in zip(jobs, answers, strict=True))

    async def enqueue_each(
        self, requests: Sequence[EnqueueRequest], *, tenant: str | None, check_queue: Callable[[str], object] = _any
    ) -> tuple[Placed | OutlastError, ...]:
        """Admit and store jobs that do not know each other: what is refused leaves the others stored."""
        found: dict[int, Placed | OutlastError] = {}

        async def one(index: int, request: EnqueueRequest) -> None:
            try:
                found[index] = await self.enqueue(request, tenant=tenant, check_queue=check_queue)
            except OutlastError as error:
                found[index] = error

        async with asyncio.TaskGroup() as group:
            for index, request in enumerate(requests):
                start_in(group, one(index, request), name=f"outlast.control.enqueue.{index}")
        return tuple(found[index] for index in range(len(requests)))

    async def describe(self, job_id: JobId, *, tenant: str | None) -> JobView:
        """Give one job with payload and result. Raises `JOB_NOT_FOUND`."""

        async def describe() -> JobView:
            view = await self._driver.describe(job_id, tenant=tenant)
            if view is None:
                raise job_not_found(str(job_id))
            return view

        return await self.on(job_id, tenant, describe)

    async def wait(self, job_id: JobId, *, tenant: str | None, at_most: timedelta) -> JobView:
        """Give the job as soon as it is terminal, or as it stands after `at_most` or when the process drains.

        Raises:
            JobNotFound: there is none to be seen, or it is gone by then.
        """
        view = await self.describe(job_id, tenant=tenant)
        if view.state in TERMINAL or not at_most:
            return view
        await self._waiters.finished(job_id, at_most.total_seconds())
        return await self.describe(job_id, tenant=tenant)

    async def explain(self, job_id: JobId, *, tenant: str | None) -> Explanation:
        """Say why a job is not running, or where it runs, with facts; the strongest reason first.

        Raises:
            JobNotFound: there is none to be seen.
        """

        async def situation() -> Situation:
            found = await self._driver.situation(job_id, tenant=tenant)
            if found is None:
                raise job_not_found(str(job_id))
            return found

        found = await self.on(job_id, tenant, situation)
        if found.pause is not None and tenant is not None and not await self._actors.own(tenant, [found.pause.by]):
            found = replace(found, pause=replace(found.pause, by=OPERATOR))
        return explain(found)

    async def list(self, query: ListQuery) -> JobPage:
        """Give one page of jobs, newest first, without payloads and results."""
        return await self._driver.list(query)

    async def list_by_time(self, query: ListQuery, order: TimeOrder) -> PlacedPage:
        """Give one page of jobs in states that the order has an index of, without payloads and results."""
        return await self._driver.list_by_time(query, order)

    async def in_full(self, items: Sequence[JobView], *, tenant: str | None) -> tuple[JobView, ...]:
        """Give the jobs of a page with payload and result, each as it stands by now; without those that are gone."""
        found = [await self._driver.describe(item.id, tenant=tenant) for item in items]
        return tuple(view for view in found if view is not None)

    async def count(self, query: ListQuery) -> JobCount:
        """Count the jobs that fit, up to 10,000."""
        return await self._driver.count_jobs(query)

    async def attempts(self, job_id: JobId, *, tenant: str | None) -> tuple[AttemptView, ...]:
        """Give a job's attempt ledger in order. Raises `JOB_NOT_FOUND`."""
        await self.describe(job_id, tenant=tenant)
        return await self._driver.attempts(job_id, tenant=tenant)

    async def _admitted(
        self, request: EnqueueRequest, tenant: str | None, check_queue: Callable[[str], object]
    ) -> NewJob:
        published = await self._catalogue.find(request.name)
        if published is None:
            raise JobUnknown(f"no worker has published a job type {request.name!r}", fix=PUBLISH_FIRST)
        job = self._admission.admit(self._types.of(published), request)
        if tenant is not None and job.tenant != tenant:
            raise Forbidden(f"the job belongs to another tenant than {tenant!r}", fix="use a key of that tenant")
        check_queue(job.queue)
        await check_callbacks(self._driver, [job])
        return job

    async def _check_parents(self, jobs: Sequence[NewJob], tenant: str | None) -> None:
        seen: set[JobId] = set()
        for index, job in enumerate(jobs):
            try:
                await self._check_parent(job, tenant, seen)
            except OutlastError as error:
                error.details["index"] = index
                raise

    async def _check_parent(self, job: NewJob, tenant: str | None, seen: set[JobId]) -> None:
        """Refuse a parent that a caller of one tenant could not look up: another tenant's like one that is not there.

        Raises:
            RequestInvalid: it is not to be seen.
        """
        parent = job.parent_id
        if tenant is None or parent is None or parent in seen:
            return
        if await self._driver.describe(parent, tenant=tenant) is None:
            refuse_request("parent_id", "must be the id of a job that is there", fix="correct it, or leave it out")
        seen.add(parent)

    async def _stored(self, job: NewJob, claim: RequestClaim | None) -> Enqueued:
        if claim is None:
            return await until_known(lambda: self._driver.enqueue(job))
        try:
            return (await until_known(lambda: self._driver.enqueue_once((job,), claim)))[0]
        except OutlastError as error:
            error.details.pop("index", None)  # there is no batch to count in
            raise

    async def on(self, job_id: JobId, tenant: str | None, verb: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Do something with one job; where there is none, say why: the id may be one that was given out at staging.

        Raises:
            JobNotFound: there is none to be seen. Else what `verb` raises.
        """
        try:
            return await verb()
        except JobNotFound as absent:
            await self._staged.explain(job_id, absent, tenant=tenant)
        return await verb()


def job_not_found(job_id: str) -> JobNotFound:
    """Give the error for an id behind which there is nothing to be seen."""
    return JobNotFound(
        f"there is no job {job_id[:64]}", fix="check the id, and that it belongs to this service and tenant"
    )

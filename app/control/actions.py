"""What operators do to one job: cancel, retry, run now, change, delete, duplicate; each leaves a row of the audit.

A part of `JobControl`. `by` is who acts, and why; without it no row is left, and whoever calls keeps one for the whole.
Authority is the caller's business, as in `jobs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

from ..domain.audit import Acting, Action
from ..domain.edit import JobPatch, RunNowVerdict
from ..domain.errors import JobUnknown, RequestInvalid
from ..domain.job import LONGEST_DURATION, MAX_PRIORITY, MAX_TAGS, Enqueued, JobId, NewJob
from ..domain.json_merge import merged
from ..domain.json_text import decode
from ..domain.outcome import CancelVerdict
from ..domain.retry import MOST_ATTEMPTS
from ..domain.sealed import readable
from ..domain.snapshot import JobView
from ..domain.step import RetryMode
from ..domain.text import MAX_TAG_CHARS, is_printable
from ..drivers.protocol import JobDriver
from ..jobs.admission import Admission, EnqueueRequest
from ..jobs.jobtype import JobType, JobTypes
from ..jobs.request import OLDEST_RUN_AT, refuse_request
from ..observability.telemetry import Telemetry
from ..steps.repeat import until_known
from .acting import done_before, on_job
from .catalogue import PUBLISH_FIRST, TypeCatalogue
from .crowd import TenantCrowd

AnswerT = TypeVar("AnswerT")


class JobActions(ABC):
    """The verbs of operators on one job. What they need of `JobControl` is named here."""

    _driver: JobDriver
    _crowd: TenantCrowd
    _catalogue: TypeCatalogue
    _admission: Admission
    _telemetry: Telemetry
    _types: JobTypes

    async def cancel(
        self, job_id: JobId, *, reason: str, tenant: str | None, by: Acting | None = None
    ) -> tuple[CancelVerdict, JobView]:
        """End a job for good and give what the cancel found, with the job after it. Repeating it is safe.

        Raises:
            JobNotFound: there is none to be seen.
        """
        audit = on_job(by, Action.JOB_CANCEL, job_id)

        async def cancel() -> CancelVerdict:
            return await self._driver.cancel(job_id, reason=reason, tenant=tenant, audit=audit)

        done = done_before(by)
        verdict = await self.on(job_id, tenant, cancel) if done is None else CancelVerdict(done.outcome)
        return verdict, await self.describe(job_id, tenant=tenant)

    async def retry(
        self,
        job_id: JobId,
        *,
        mode: RetryMode = RetryMode.RESUME,
        from_step: str | None = None,
        tenant: str | None,
        by: Acting | None = None,
    ) -> JobView:
        """Make a dead, cancelled or held job ready again with fresh budgets, and give it.

        Its run goes on from what is recorded, or from before `from_step`, or is begun anew.

        Raises:
            JobNotFound: there is none to be seen.
            JobStateConflict: it is in another state, or held and its run was to go on as it is.
            JobDuplicate: its key is taken by now.
            NotFound: its run has not recorded the step.
            RequestInvalid: a step was named for a run that is to begin anew.
        """
        mode.refuse_step(from_step)
        audit = on_job(by, Action.JOB_RETRY, job_id, mode=mode.value, from_step=from_step)

        async def retry() -> None:
            await self._driver.retry(job_id, mode=mode, from_step=from_step, tenant=tenant, audit=audit)

        if done_before(by) is None:
            await self.on(job_id, tenant, retry)
        return await self.describe(job_id, tenant=tenant)

    async def run_now(
        self, job_id: JobId, *, tenant: str | None = None, by: Acting | None = None
    ) -> tuple[RunNowVerdict, JobView]:
        """Let a delayed job start at once, or end the sleeps of its run; gives what was found, and the job after it.

        Repeating it is safe: a ready or running job is left alone.

        Raises:
            JobNotFound: there is none to be seen.
            JobStateConflict: it waits for no time.
        """
        done = done_before(by)
        if done is not None:
            return RunNowVerdict(done.details["verdict"]), await self.describe(job_id, tenant=tenant)
        audit = on_job(by, Action.JOB_RUN_NOW, job_id)
        verdict = await self.on(job_id, tenant, lambda: self._driver.run_now(job_id, tenant=tenant, audit=audit))
        return verdict, await self.describe(job_id, tenant=tenant)

    async def patch(
        self,
        job_id: JobId,
        patch: JobPatch,
        *,
        versions: frozenset[str] | None = None,
        tenant: str | None = None,
        by: Acting | None = None,
    ) -> JobView:
        """Change fields of a job that waits, and give it. Repeating it changes nothing more.

        `versions`: only while the job is in one of them.

        Raises:
            RequestInvalid: a field is out of bounds, or there is none (detail `pointer`).
            JobNotFound: there is none to be seen.
            PreconditionFailed: it has changed since.
            JobStateConflict: it runs, has ended, or waits for no time that could be another.
        """
        wanted = checked(patch, self._admission.now)
        audit = on_job(by, Action.JOB_UPDATE, job_id)

        async def change() -> None:
            await self._driver.patch(job_id, wanted, versions=versions, tenant=tenant, audit=audit)

        if done_before(by) is None:
            await self.on(job_id, tenant, change)
        return await self.describe(job_id, tenant=tenant)

    async def delete(
        self,
        job_id: JobId,
        *,
        versions: frozenset[str] | None = None,
        tenant: str | None = None,
        by: Acting | None = None,
    ) -> None:
        """Delete a job that has ended or is held, with all that is known of it.

        Raises:
            JobNotFound: there is none to be seen; so ends a repetition, too.
            PreconditionFailed: it has changed since.
            JobStateConflict: it may still run.
        """
        audit = on_job(by, Action.JOB_DELETE, job_id)

        async def delete() -> None:
            await self._driver.delete(job_id, versions=versions, tenant=tenant, audit=audit)

        if done_before(by) is None:
            await self.on(job_id, tenant, delete)

    async def duplicate(
        self,
        job_id: JobId,
        *,
        input_patch: str | None = None,
        payload: str | None = None,
        tenant: str | None = None,
        by: Acting | None = None,
        traceparent: str | None = None,
    ) -> JobView:
        """Enqueue the work of a job again, with its payload or a changed one, and give the new job.

        `input_patch` is a JSON merge patch (RFC 7396) for the payload, `payload` a whole one in its place. The new job
        is admitted like any other: it is of the same tenant, has the old one as its parent, and the idempotency key
        that its type makes of its payload. A key that was given to the first job alone stays with that.

        Raises:
            JobNotFound: there is none to be seen.
            JobUnknown: nobody publishes its job type any more, or it cannot be evaluated here.
            JsonInvalid, PayloadTooLarge, PayloadInvalid: the changed payload cannot be a payload of the type.
            Forbidden: the changed payload belongs to another tenant.
            JobDuplicate: a job has its key; IdempotencyMismatch: for another payload.
            TenantFull: as many jobs of its tenant wait as may.
        """
        done = done_before(by)
        if done is not None:
            return await self.describe(JobId(UUID(done.details["new_id"])), tenant=tenant)
        view = await self.describe(job_id, tenant=tenant)
        if payload is not None:
            decode(payload, limits=self._admission.limits)
            view = replace(view, payload=payload)
        published = await self._catalogue.find(view.name)
        if published is None:
            raise JobUnknown(f"no worker publishes the job type {view.name!r} any more", fix=PUBLISH_FIRST)
        job_type = self._types.of(published)
        request = self._again(view, job_type, input_patch)
        actor = view.enqueued_by if by is None else by.actor
        job = self._admission.admit(job_type, replace(request, enqueued_by=actor, traceparent=traceparent))
        await self._crowd.let_in([job])
        answer = await until_known(
            lambda: self._placed(job, job_id, by, is_edited=(input_patch, payload) != (None, None))
        )
        self._telemetry.job_enqueued(job_id=str(answer.id), job=job.name, queue=job.queue, deduped=False)
        return await self.describe(answer.id, tenant=tenant)

    @abstractmethod
    async def describe(self, job_id: JobId, *, tenant: str | None) -> JobView:
        """Give one job with payload and result. Raises `JOB_NOT_FOUND`."""

    @abstractmethod
    async def on(self, job_id: JobId, tenant: str | None, verb: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Do something with one job; where there is none, say why."""

    def _again(self, view: JobView, job_type: JobType, input_patch: str | None) -> EnqueueRequest:
        """Give the request that makes such a job again; limits that its type has lowered since are the type's."""
        text = readable(view.payload) or "null"
        if input_patch is not None:
            decode(input_patch, limits=self._admission.limits)
            text = merged(text, input_patch)
        timeout = None if view.timeout_ms is None else timedelta(milliseconds=view.timeout_ms)
        if timeout is not None and job_type.timeout is not None:
            timeout = min(timeout, job_type.timeout)
        return EnqueueRequest(
            name=view.name,
            payload_text=text,
            queue=view.queue,
            priority=view.priority,
            max_attempts=min(view.max_attempts, job_type.max_attempts),
            timeout=timeout,
            on_conflict="error",
            tags=view.tags,
            meta=view.meta,
            parent_id=view.id,
            tenant=view.tenant,
        )

    async def _placed(self, job: NewJob, job_id: JobId, by: Acting | None, *, is_edited: bool) -> Enqueued:
        audit = on_job(by, Action.JOB_DUPLICATE, job_id, new_id=str(job.id), is_edited=is_edited)
        return await (self._driver.enqueue(job) if audit is None else self._driver.place(job, audit=audit))


def checked(patch: JobPatch, now: Callable[[], datetime]) -> JobPatch:
    """Give a patch whose fields are within their bounds, its time in UTC.

    Raises:
        RequestInvalid: detail `pointer` names the field.
    """
    if not patch.after():
        raise RequestInvalid(
            "there is nothing to change", fix="send one or more of priority, run_at, tags and max_attempts", pointer=""
        )
    if patch.priority is not None and not 0 <= patch.priority <= MAX_PRIORITY:
        refuse_request("priority", f"must be a whole number from 0 to {MAX_PRIORITY}")
    if patch.max_attempts is not None and not 1 <= patch.max_attempts <= MOST_ATTEMPTS:
        refuse_request("max_attempts", f"must be from 1 to {MOST_ATTEMPTS}")
    if patch.tags is not None and len(patch.tags) > MAX_TAGS:
        refuse_request("tags", f"must be at most {MAX_TAGS}")
    if not all(is_printable(tag, MAX_TAG_CHARS) for tag in patch.tags or ()):
        refuse_request("tags", f"must be 1 to {MAX_TAG_CHARS} printable characters each")
    if patch.run_at is None:
        return patch
    if patch.run_at.utcoffset() is None:
        refuse_request("run_at", "must name its time zone", fix="pass an aware datetime, such as one of tzinfo=UTC")
    if not -OLDEST_RUN_AT <= patch.run_at - now() <= LONGEST_DURATION:
        refuse_request("run_at", "must be within one day ago and five years ahead")
    return replace(patch, run_at=patch.run_at.astimezone(UTC))

"""Reading one job: `GET /v1/jobs/{id}`, its attempts, its result."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...control.jobs import job_not_found
from ...control.render import raw
from ...control.represent import attempt_document, error_document, links_of
from ...domain.errors import JobFailed
from ...domain.job import JobId
from ...domain.redaction import redacted
from ...domain.sealed import readable
from ...domain.snapshot import JobView
from ...domain.state import TERMINAL, State
from ...domain.text import read_uuid
from ..answers import AttemptList, Result
from ..answers_list import JobInFull
from ..auth import Identity, check_held
from ..caller import PayloadReader, Reader
from ..documents import (
    ELSEWHERE,
    IF_NONE_MATCH,
    JOB_EXAMPLE,
    JOB_ID,
    LINKS_EXAMPLE,
    PREFER,
    answer,
    problems,
)
from ..framework import refuse_repeated
from ..includes import INCLUDES, JobParams, check_included, included, with_traceback
from ..prefer import read_preferences
from ..replies import RETRY_AFTER, etag_of, is_known, reply, root_of, shown_job
from ..services import HttpServices, Services

router = APIRouter(tags=["jobs"])


_RESULT = {"id": JOB_ID, "state": "done", "result": {"lines": 120_000}, "links": LINKS_EXAMPLE}
_ATTEMPT = {
    "number": 1,
    "outcome": "retried",
    "cause": "error",
    "counted": True,
    "worker_id": "17",
    "host": "worker-5f7c",
    "code_version": "1.4.2",
    "started_at": "2026-11-29T12:00:00.100000Z",
    "ended_at": "2026-11-29T12:00:01.350000Z",
    "duration_ms": 1_250,
    "step": None,
    "error": {
        "type": "ConnectionError",
        "message": "the mail server hung up",
        "code": None,
        "retryable": True,
        "traceback": "Traceback (most recent call last): …",
    },
}


@router.get(
    "/v1/jobs/{job_id}",
    operation_id="getJob",
    summary="Describe a job",
    response_model=None,
    responses={
        200: answer(JobInFull, "The job.", JOB_EXAMPLE, ETag="Its version."),
        303: ELSEWHERE,
        304: {"description": "The job has not changed."},
        **problems(404),
    },
    openapi_extra={"parameters": [IF_NONE_MATCH]},
)
async def get_job(
    request: Request, job_id: str, services: Services, identity: Reader, params: Annotated[JobParams, Query()]
) -> Response:
    """Give one job as it stands, with payload and result byte for byte as they were stored.

    With `include=steps` it is always answered in full: steps are recorded without another version of the job.
    """
    refuse_repeated(request, lists=INCLUDES)
    words = frozenset[str](params.include)
    check_included(identity, words)
    view = await services.jobs.describe(parse_job_id(job_id), tenant=identity.tenant)
    if "steps" not in words and is_known(etag_of(view), request):
        return Response(status_code=304, headers={"ETag": etag_of(view)})
    document = await shown_job(request, identity, view) | await included(services, identity, view, words)
    if "error" in words:
        document = with_traceback(document, view)
    return reply(document, headers={"ETag": etag_of(view)})


@router.get(
    "/v1/jobs/{job_id}/attempts",
    operation_id="listAttempts",
    summary="List a job's attempts",
    response_model=None,
    responses={
        200: answer(AttemptList, "The attempts in order.", {"items": [_ATTEMPT]}),
        303: ELSEWHERE,
        **problems(404),
    },
)
async def list_attempts(job_id: str, services: Services, identity: Reader) -> Response:
    """Give every ended attempt with its outcome, and its error when it had one."""
    attempts = await services.jobs.attempts(parse_job_id(job_id), tenant=identity.tenant)
    return reply({"items": [attempt_document(attempt) for attempt in attempts]})


@router.get(
    "/v1/jobs/{job_id}/result",
    operation_id="getResult",
    summary="Read or await a job's result",
    response_model=None,
    responses={
        200: answer(Result, "The job is done.", _RESULT),
        202: answer(
            Result,
            "Not yet.",
            _RESULT | {"state": "running", "result": None},
            Retry_After="Seconds to let pass before asking again.",
        ),
        303: ELSEWHERE,
        **problems(404, 409),
    },
    openapi_extra={"parameters": [PREFER]},
)
async def get_result(request: Request, job_id: str, services: Services, identity: PayloadReader) -> Response:
    """Give the result of a done job, `JOB_FAILED` for a dead or cancelled one, 202 while it is still to come."""
    preferences = read_preferences(request.headers.getlist("prefer"))
    at_most = timedelta(seconds=preferences.wait_seconds or 0)
    view = await services.jobs.wait(parse_job_id(job_id), tenant=identity.tenant, at_most=at_most)
    if at_most:
        await check_held(services.auth, identity)
    if view.state in TERMINAL and view.state is not State.DONE:
        raise _failed(view)
    document = {
        "id": view.id,
        "state": view.state,
        "result": raw(redacted(readable(view.result), await services.jobs.redaction.of(view.name))),
        "links": links_of(str(view.id), root_of(request)),
    }
    is_done = view.state is State.DONE
    headers = preferences.applied() | ({} if is_done else RETRY_AFTER)
    return reply(document, status=200 if is_done else 202, headers=headers)


def parse_job_id(text: str) -> JobId:
    """Give the id a path names. Raises `JOB_NOT_FOUND`: ids are opaque, and this cannot be one."""
    found = read_uuid(text)
    if found is None:
        raise job_not_found(text)
    return JobId(found)


async def job_to_act_on(services: HttpServices, identity: Identity, text: str) -> JobId:
    """Give the id a path names, to act on it. A job never changes its queue, so what is seen here still holds then.

    Raises:
        JobNotFound: there is none to be seen; asked only for callers bound to queues, for others the verb says so.
        Forbidden: it is of a queue the caller may not act on.
    """
    job_id = parse_job_id(text)
    if identity.queues is not None:
        identity.check_queue((await services.jobs.describe(job_id, tenant=identity.tenant)).queue)
    return job_id


def _failed(view: JobView) -> JobFailed:
    return JobFailed(
        f"job {view.id} is {view.state}: {view.state_reason or 'no reason given'}",
        fix=f"read /v1/jobs/{view.id}/attempts, mend the cause, then POST /v1/jobs/{view.id}/retry",
        state=view.state.value,
        error=None if view.error is None else error_document(view.error),
    )

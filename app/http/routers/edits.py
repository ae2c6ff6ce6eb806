"""What operators change of one job: `PATCH` and `DELETE /v1/jobs/{id}`, `POST` its `/run-now` and `/duplicate`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from ...domain.errors import JsonInvalid, PayloadInvalid, PayloadTooLarge
from ..answers import Job
from ..answers_audit import RunNowJob
from ..auth import Identity, Scope
from ..body import Body, read_body, read_optional_body
from ..caller import Needs, Operator, caller_of
from ..documents import IDEMPOTENCY_KEY, IF_MATCH, IF_MATCH_NEEDED, JOB_EXAMPLE, JOB_ID, answer, body, problems
from ..framework import refuse_repeated
from ..once import OnceRoute, acting
from ..preconditions import versions_asked
from ..replies import etag_of, reply, reply_job, root_of, shown_job
from ..requests_actions import DeleteParams, DuplicateBody, PatchBody, ReasonBody
from ..services import Services
from .enqueue import within_body
from .jobs import job_to_act_on

router = APIRouter(tags=["jobs"], route_class=OnceRoute)

# It makes a job of a payload that the caller gives, which is what a key that enqueues may do.
_Duplicator = Annotated[Identity, Depends(Needs(Scope.OPERATE, Scope.JOBS_WRITE))]
_CHANGED = JOB_EXAMPLE | {"priority": 1, "tags": ["nightly", "vip"]}


@router.post(
    "/v1/jobs/{job_id}/run-now",
    operation_id="runJobNow",
    summary="Let a delayed job start now",
    response_model=None,
    responses={
        200: answer(
            RunNowJob,
            "What was found, and the job after it.",
            JOB_EXAMPLE | {"verdict": "made_ready"},
            ETag="Its version.",
        ),
        **problems(404, 409, has_body=True),
    },
    openapi_extra=body(ReasonBody, {"reason": {"reason": "the customer waits"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def run_job_now(request: Request, job_id: str, services: Services, identity: Operator) -> Response:
    """Make a delayed job ready before its time, whatever delayed it; its counters and time limits stay.

    Sleeps of a suspended run end as if their time had come. A ready or running job is left alone. Repeating it is safe.
    """
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    by = await acting(request, services, identity, sent, sent.parse(ReasonBody).reason)
    verdict, view = await services.jobs.run_now(
        await job_to_act_on(services, identity, job_id), tenant=identity.tenant, by=by
    )
    return await reply_job(request, identity, view, verdict=verdict)


@router.patch(
    "/v1/jobs/{job_id}",
    operation_id="updateJob",
    summary="Change a job that waits",
    response_model=None,
    responses={
        200: answer(Job, "The job, changed.", _CHANGED, ETag="Its new version."),
        **problems(404, 409, 412, 428, has_body=True),
    },
    openapi_extra=body(
        PatchBody,
        {
            "sooner": {"priority": 1, "tags": ["nightly", "vip"], "reason": "the customer waits"},
            "later": {"run_at": "2026-11-30T06:00:00Z"},
        },
        is_required=True,
    )
    | {"parameters": [IF_MATCH_NEEDED, IDEMPOTENCY_KEY]},
)
async def update_job(request: Request, job_id: str, services: Services, identity: Operator) -> Response:
    """Change priority, time, tags or budget of a job that is delayed, ready, suspended or held.

    `If-Match` names the version that was looked at: of two callers with the same, one wins. A suspended or held job has
    no time to change.
    """
    versions = versions_asked(request, is_needed=True)
    sent = await read_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(PatchBody)
    view = await services.jobs.patch(
        await job_to_act_on(services, identity, job_id),
        asked.patch(),
        versions=versions,
        tenant=identity.tenant,
        by=await acting(request, services, identity, sent, asked.reason),
    )
    return await reply_job(request, identity, view)


@router.delete(
    "/v1/jobs/{job_id}",
    operation_id="deleteJob",
    summary="Delete a job that has ended or is held",
    status_code=204,
    response_model=None,
    responses={204: {"description": "It is gone."}, **problems(404, 409, 412, 501)},
    openapi_extra={"parameters": [IF_MATCH, IDEMPOTENCY_KEY]},
)
async def delete_job(
    request: Request, job_id: str, services: Services, identity: Operator, params: Annotated[DeleteParams, Query()]
) -> Response:
    """Delete a job with its attempts, its run and its lines; keys within their windows go on leading to its id.

    Cancel a job first that may still run. Repeating it answers `JOB_NOT_FOUND`.
    """
    refuse_repeated(request)
    await services.jobs.delete(
        await job_to_act_on(services, identity, job_id),
        versions=versions_asked(request, is_needed=False),
        tenant=identity.tenant,
        by=await acting(request, services, identity, Body(), params.reason),
    )
    return Response(status_code=204)


@router.post(
    "/v1/jobs/{job_id}/duplicate",
    operation_id="duplicateJob",
    summary="Run a job's work again, as a new job",
    status_code=201,
    response_model=None,
    responses={
        201: answer(
            Job, "The new job.", JOB_EXAMPLE | {"parent_id": JOB_ID}, Location="The new job.", ETag="Its version."
        ),
        **problems(404, 409, has_body=True),
    },
    openapi_extra=body(
        DuplicateBody, {"same": {}, "edited": {"input_patch": {"shop": "berlin", "dry_run": None}}}, is_required=False
    )
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def duplicate_job(request: Request, job_id: str, services: Services, identity: _Duplicator) -> Response:
    """Enqueue a job of the same type, queue, priority, tags and payload, or a changed payload, with this one as parent.

    It is admitted like any other, so the key that its type makes of its payload must be free; a key that was given to
    the first job alone stays with that. Every request makes another job.
    """
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(DuplicateBody)
    try:
        view = await services.jobs.duplicate(
            await job_to_act_on(services, identity, job_id),
            input_patch=None if asked.input_patch is None else sent.texts["input_patch"],
            tenant=identity.tenant,
            by=await acting(request, services, identity, sent, asked.reason),
            traceparent=caller_of(request.scope).traceparent,
        )
    except (JsonInvalid, PayloadTooLarge) as exc:  # of the changed payload: the body's own were found while it was read
        pointer = f"/input_patch{exc.details.get('pointer', '')}"
        raise type(exc)(exc.cause, fix=exc.fix, **exc.details | {"pointer": pointer}) from exc
    except PayloadInvalid as exc:
        raise within_body(exc, "/input_patch") from exc
    headers = {"Location": f"{root_of(request)}/v1/jobs/{view.id}", "ETag": etag_of(view)}
    return reply(await shown_job(request, identity, view), status=201, headers=headers)

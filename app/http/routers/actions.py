"""What operators do to one job: `POST /v1/jobs/{id}/cancel`, `/retry`, `/fork`, `/release`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...domain.step import RetryMode
from ..answers import CancelledJob, Job
from ..body import read_optional_body
from ..caller import Operator
from ..documents import IDEMPOTENCY_KEY, JOB_EXAMPLE, JOB_ID, answer, body, problems
from ..once import OnceRoute, acting
from ..replies import etag_of, reply, reply_job, root_of, shown_job
from ..requests import CancelBody, ForkBody, RetryBody
from ..requests_actions import ReasonBody
from ..services import Services
from .jobs import job_to_act_on

router = APIRouter(tags=["jobs"], route_class=OnceRoute)


@router.post(
    "/v1/jobs/{job_id}/cancel",
    operation_id="cancelJob",
    summary="Cancel a job",
    response_model=None,
    responses={
        200: answer(
            CancelledJob,
            "What the cancel found, and the job after it.",
            JOB_EXAMPLE | {"state": "cancelled", "state_reason": "ordered twice", "verdict": "cancelled_before_start"},
            ETag="Its version.",
        ),
        **problems(404, has_body=True),
    },
    openapi_extra=body(CancelBody, {"reason": {"reason": "ordered twice"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def cancel_job(request: Request, job_id: str, services: Services, identity: Operator) -> Response:
    """End a job for good. A body that runs is told at its worker's next heartbeat or sooner. Repeating it is safe."""
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    by = await acting(request, services, identity, sent, sent.parse(CancelBody).reason)
    reason = by.reason or f"cancelled by {identity.name}"
    verdict, view = await services.jobs.cancel(
        await job_to_act_on(services, identity, job_id), reason=reason, tenant=identity.tenant, by=by
    )
    return await reply_job(request, identity, view, verdict=verdict)


@router.post(
    "/v1/jobs/{job_id}/retry",
    operation_id="retryJob",
    summary="Retry a dead, cancelled or held job",
    response_model=None,
    responses={
        200: answer(Job, "The job, ready again with fresh budgets.", JOB_EXAMPLE, ETag="Its new version."),
        **problems(404, 409, has_body=True),
    },
    openapi_extra=body(
        RetryBody,
        {"resume": {"mode": "resume"}, "fresh": {"mode": "fresh"}, "from_step": {"from_step": "charge"}},
        is_required=False,
    )
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def retry_job(request: Request, job_id: str, services: Services, identity: Operator) -> Response:
    """Make a dead or cancelled job ready again; its attempts stay listed, its key is taken again.

    Its run goes on from what is recorded; with `from_step` from before that step; with mode `fresh` as a new run. A
    held job is retried fresh or from a step, or released.
    """
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(RetryBody)
    view = await services.jobs.retry(
        await job_to_act_on(services, identity, job_id),
        mode=RetryMode(asked.mode),
        from_step=asked.from_step,
        tenant=identity.tenant,
        by=await acting(request, services, identity, sent, asked.reason),
    )
    return await reply_job(request, identity, view)


@router.post(
    "/v1/jobs/{job_id}/fork",
    operation_id="forkJob",
    summary="Make a new job with a job's history",
    status_code=201,
    response_model=None,
    responses={
        201: answer(
            Job, "The new job.", JOB_EXAMPLE | {"parent_id": JOB_ID}, Location="The new job.", ETag="Its version."
        ),
        **problems(404, has_body=True),
    },
    openapi_extra=body(ForkBody, {"all": {}, "up_to": {"from_step": "charge"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def fork_job(request: Request, job_id: str, services: Services, identity: Operator) -> Response:
    """Make a new job of the same type and payload that begins with the steps recorded before `from_step`.

    The old job, in whatever state, stays as it is and becomes the new one's parent; the new one has no idempotency key.
    Every request makes another job.
    """
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(ForkBody)
    by = await acting(request, services, identity, sent, asked.reason)
    view = await services.runs.fork(
        await job_to_act_on(services, identity, job_id), from_step=asked.from_step, tenant=identity.tenant, by=by
    )
    headers = {"Location": f"{root_of(request)}/v1/jobs/{view.id}", "ETag": etag_of(view)}
    return reply(await shown_job(request, identity, view), status=201, headers=headers)


@router.post(
    "/v1/jobs/{job_id}/release",
    operation_id="releaseJob",
    summary="Release a held job",
    response_model=None,
    responses={
        200: answer(Job, "The job, ready again.", JOB_EXAMPLE, ETag="Its new version."),
        **problems(404, 409, has_body=True),
    },
    openapi_extra=body(ReasonBody, {"reason": {"reason": "mended"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def release_job(request: Request, job_id: str, services: Services, identity: Operator) -> Response:
    """Make a held job ready for code of any version, its run as it is: for code that has been mended meanwhile."""
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    by = await acting(request, services, identity, sent, sent.parse(ReasonBody).reason)
    view = await services.runs.release(await job_to_act_on(services, identity, job_id), tenant=identity.tenant, by=by)
    return await reply_job(request, identity, view)

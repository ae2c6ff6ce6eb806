"""What operators do to one job: `POST /v1/jobs/{id}/cancel` and `/retry`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...domain.errors import NotImplementedYet
from ..answers import CancelledJob, Job
from ..body import read_optional_body, refuse_request_key
from ..caller import Operator
from ..documents import IDEMPOTENCY_KEY, JOB_EXAMPLE, answer, body, problems
from ..replies import reply_job
from ..requests import CancelBody, RetryBody
from ..services import Services
from .jobs import parse_job_id

router = APIRouter(tags=["jobs"])


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
        ),
        **problems(404, has_body=True),
    },
    openapi_extra=body(CancelBody, {"reason": {"reason": "ordered twice"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def cancel_job(request: Request, job_id: str, services: Services, identity: Operator) -> Response:
    """End a job for good. A body that runs is told at its worker's next heartbeat or sooner. Repeating it is safe."""
    refuse_request_key(request)
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    reason = sent.parse(CancelBody).reason or f"cancelled by {identity.name}"
    verdict, view = await services.jobs.cancel(parse_job_id(job_id), reason=reason, tenant=identity.tenant)
    return reply_job(request, identity, view, verdict=verdict)


@router.post(
    "/v1/jobs/{job_id}/retry",
    operation_id="retryJob",
    summary="Retry a dead or cancelled job",
    response_model=None,
    responses={
        200: answer(Job, "The job, ready again with fresh budgets.", JOB_EXAMPLE),
        **problems(404, 409, has_body=True),
    },
    openapi_extra=body(RetryBody, {"resume": {"mode": "resume"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def retry_job(request: Request, job_id: str, services: Services, identity: Operator) -> Response:
    """Make a dead or cancelled job ready again; its attempts stay listed, its key is taken again."""
    refuse_request_key(request)
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    if sent.values.get("from_step") is not None:
        raise NotImplementedYet("retrying from a step is not built yet", fix="leave `from_step` out")
    sent.parse(RetryBody)
    view = await services.jobs.retry(parse_job_id(job_id), tenant=identity.tenant)
    return reply_job(request, identity, view)

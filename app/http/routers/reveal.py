"""A job whole: `POST /v1/jobs/{id}/reveal`, which shows what its type keeps back, and leaves a row in the audit."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...control.represent import job_document
from ...domain.audit import Acting
from ..answers import Job
from ..body import read_optional_body, refuse_request_key
from ..caller import PayloadReader
from ..documents import JOB_EXAMPLE, answer, body, problems
from ..replies import etag_of, reply, root_of
from ..requests_actions import ReasonBody
from ..services import Services
from .jobs import job_to_act_on

router = APIRouter(tags=["jobs"])


@router.post(
    "/v1/jobs/{job_id}/reveal",
    operation_id="revealJob",
    summary="Show a job whole",
    response_model=None,
    responses={
        200: answer(Job, "The job, nothing left out.", JOB_EXAMPLE, ETag="Its version."),
        **problems(400, 404, has_body=True),
    },
    openapi_extra=body(ReasonBody, {"reason": {"reason": "the customer asks"}}, is_required=False),
)
async def reveal_job(request: Request, job_id: str, services: Services, identity: PayloadReader) -> Response:
    """Give a job with what its type's `redact` keeps back elsewhere; who saw it, and why, is in the audit before.

    Changes nothing about the job. Each request leaves a row of its own.
    """
    refuse_request_key(request)
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    by = Acting(actor=identity.name, reason=sent.parse(ReasonBody).reason)
    view = await services.jobs.describe(await job_to_act_on(services, identity, job_id), tenant=identity.tenant)
    await services.jobs.redaction.reveal(view, by=by)
    return reply(job_document(view, root=root_of(request)), headers={"ETag": etag_of(view)})

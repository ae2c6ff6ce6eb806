"""Why is a job not running: `GET /v1/jobs/{id}/explain`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from ...control.explain_documents import explanation_document
from ..caller import Reader
from ..documents import ELSEWHERE, JOB_ID, answer, problems
from ..explain_answers import Explained
from ..replies import reply
from ..services import Services
from .jobs import parse_job_id

router = APIRouter(tags=["jobs"])

_EXAMPLE = {
    "id": JOB_ID,
    "name": "shop.import",
    "queue": "mail",
    "state": "ready",
    "at": "2026-11-29T12:00:00Z",
    "runnable": False,
    "served": True,
    "reasons": [
        {
            "code": "queue_paused",
            "kind": "queue",
            "blocks": True,
            "text": "the queue 'mail' is paused by bootstrap since 2026-11-29 11:40:00Z: the mail server moves",
            "facts": {
                "queue": "mail",
                "by": "bootstrap",
                "since": "2026-11-29T11:40:00Z",
                "until": None,
                "reason": "the mail server moves",
            },
            "repair": "POST /v1/queues/mail/resume lets claims begin again",
        },
        {
            "code": "ahead",
            "kind": "turn",
            "blocks": False,
            "text": "14 jobs are before it in the queue 'mail'",
            "facts": {"count": 14, "capped": False, "queue": "mail"},
            "repair": "start more workers of the queue if it does not shrink",
        },
    ],
}


@router.get(
    "/v1/jobs/{job_id}/explain",
    operation_id="explainJob",
    summary="Why is a job not running?",
    response_model=None,
    responses={200: answer(Explained, "The reasons, in order.", _EXAMPLE), 303: ELSEWHERE, **problems(404)},
)
async def explain_job(job_id: str, services: Services, identity: Reader) -> Response:
    """Give the reasons why a job is not running, with facts and what would change them, as of one instant.

    A job that runs or has ended says so. `runnable` holds exactly if a worker that serves its queue, its name and its
    version, and has nothing else to do, would claim it.
    """
    explanation = await services.jobs.explain(parse_job_id(job_id), tenant=identity.tenant)
    return reply(explanation_document(explanation))

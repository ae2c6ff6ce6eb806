"""What deploys cost: `GET /v1/deploys`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ..caller import Reader
from ..documents import JOB_ID, answer, problems
from ..drain_answers import DeployList
from ..framework import refuse_repeated
from ..replies import reply
from ..requests_views import DeployParams
from ..services import Services

router = APIRouter(tags=["drain"])

_FATES = {
    "completed": 3,
    "interrupted": 1,
    "abandoned": 0,
    "other": 0,
    "never_acknowledged": 1,
    "claimed_again": 1,
    "claimed_again_ms_median": 240,
    "claimed_again_ms_max": 240,
}
_EXAMPLE = {
    "items": [
        {
            "worker_id": "17",
            "host": "worker-5f7c",
            "code_version": "1.4.2",
            "reason": "SIGTERM",
            "started_at": "2026-11-29T12:00:00Z",
            "ended_at": "2026-11-29T12:00:24Z",
            **_FATES,
            "job_types": [{"job_type": "shop.import", **_FATES}],
            "cut": [
                {
                    "job_id": JOB_ID,
                    "job_type": "shop.import",
                    "fate": "interrupted",
                    "acknowledged": False,
                    "claimed_again_ms": 240,
                }
            ],
        }
    ],
    "never_acknowledged": [{"job_type": "shop.import", "count": 1}],
    "next_before": None,
}


@router.get(
    "/v1/deploys",
    operation_id="listDeploys",
    summary="What did deploys cost?",
    response_model=None,
    responses={200: answer(DeployList, "Newest first.", _EXAMPLE), **problems()},
)
async def list_deploys(
    request: Request, services: Services, identity: Reader, params: Annotated[DeployParams, Query()]
) -> Response:
    """Give the reports of drained workers: what was cut, finished and abandoned, and how soon it was claimed again.

    Job types whose handlers were cut without ever having read their signal are ranked. The newest 1,000 reports stay.
    Job types and runs are those the caller may see; the counts of a report are of all.
    """
    refuse_repeated(request)
    document = await services.deploys.list(limit=params.limit, before=params.before, tenant=identity.tenant)
    return reply(await services.actors.told(identity.tenant, document))

"""`GET /v1/stats`: charts of the service, as columns that a chart draws as they are."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...control.flow_documents import chart_document
from ..answers_stats import STATS_EXAMPLE, ServiceStats
from ..caller import Reader
from ..documents import answer, problems
from ..framework import refuse_repeated
from ..replies import reply
from ..requests_stats import StatsParams
from ..services import Services

router = APIRouter(tags=["queues"])


@router.get(
    "/v1/stats",
    operation_id="getStats",
    summary="Chart what attempts came to",
    response_model=None,
    responses={200: answer(ServiceStats, "The chart.", STATS_EXAMPLE), **problems()},
)
async def get_stats(
    request: Request, services: Services, _identity: Reader, params: Annotated[StatsParams, Query()]
) -> Response:
    """Give attempts by outcome, waits and durations over an hour, a day or a week, and the job types with most of them.

    Counts of the whole service, as those of queues are. Workers add to them every quarter of a minute; what one had
    counted when it was killed is missing. A job's wait is that before its first start.
    """
    refuse_repeated(request)
    chart = await services.flow.chart(params.window, params.bucket, name=params.name, queue=params.queue)
    return reply(chart_document(chart))

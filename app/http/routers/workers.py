"""Worker processes: `GET /v1/workers`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from ...control.represent import worker_document
from ..answers import WorkerList
from ..caller import Reader
from ..documents import answer, problems
from ..replies import reply
from ..services import Services

router = APIRouter(tags=["workers"])

_EXAMPLE = {
    "id": "17",
    "host": "worker-5f7c",
    "pid": 1,
    "code_version": "1.4.2",
    "queues": ["default", "mail"],
    "concurrency": 10,
    "running": 3,
    "started_at": "2026-11-29T11:00:00Z",
    "lease_expires_at": "2026-11-29T12:00:28Z",
    "heartbeat_age_ms": 1_900,
    "drain_phase": None,
    "wakeup": "listen",
    "lost_at": None,
    "closed_at": None,
}


@router.get(
    "/v1/workers",
    operation_id="listWorkers",
    summary="List workers",
    response_model=None,
    responses={200: answer(WorkerList, "Newest first.", {"items": [_EXAMPLE]}), **problems()},
)
async def list_workers(services: Services, _identity: Reader) -> Response:
    """Give live workers and those that left in the last hour."""
    return reply({"items": [worker_document(worker) for worker in await services.fleet.workers()]})

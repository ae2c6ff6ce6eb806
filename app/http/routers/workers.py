"""Worker processes: `GET /v1/workers`, one of them, and asking one to leave."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...control.fleet import ASK_ITSELF
from ...control.represent import worker_document
from ...domain.errors import DriverUnavailable
from ..answers import Worker, WorkerList
from ..body import read_optional_body
from ..caller import ProcessOperator, Reader
from ..documents import IDEMPOTENCY_KEY, answer, body, problems
from ..once import OnceRoute, claim_of
from ..problems import FIX_DETAIL
from ..replies import reply
from ..requests_actions import ReasonBody
from ..services import Services

router = APIRouter(tags=["workers"], route_class=OnceRoute)

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
    "drain_reason": None,
    "drain_deadline_at": None,
    "drain_asked_at": None,
    "drain_asked_by": None,
    "wakeup": "listen",
    "lost_at": None,
    "closed_at": None,
}
_ASKED = {"drain_asked_at": "2026-11-29T12:00:00Z", "drain_asked_by": "bootstrap"}


@router.get(
    "/v1/workers",
    operation_id="listWorkers",
    summary="List workers",
    response_model=None,
    responses={200: answer(WorkerList, "Newest first.", {"items": [_EXAMPLE]}), **problems()},
)
async def list_workers(services: Services, identity: Reader) -> Response:
    """Give live workers and those that left in the last hour."""
    items = [worker_document(worker) for worker in await services.fleet.workers()]
    return reply({"items": await services.actors.told(identity.tenant, items)})


@router.get(
    "/v1/workers/{worker_id}",
    operation_id="getWorker",
    summary="Describe a worker",
    response_model=None,
    responses={200: answer(Worker, "The worker.", _EXAMPLE), **problems(404)},
)
async def get_worker(worker_id: str, services: Services, identity: Reader) -> Response:
    """Give one worker that lives or left in the last hour."""
    document = worker_document(await services.fleet.worker(worker_id))
    return reply(await services.actors.told(identity.tenant, document))


@router.post(
    "/v1/workers/{worker_id}/drain",
    operation_id="drainWorker",
    summary="Let a worker leave",
    status_code=202,
    response_model=None,
    responses={
        202: answer(Worker, "It was asked; it begins at its next renewal.", _EXAMPLE | _ASKED),
        **problems(404, 409, has_body=True),
    },
    openapi_extra=body(ReasonBody, {"reason": {"reason": "its node goes"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def drain_worker(request: Request, worker_id: str, services: Services, identity: ProcessOperator) -> Response:
    """Ask the worker to drain, wherever it runs; its whole process leaves with it, as after SIGTERM."""
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    reason = sent.parse(ReasonBody).reason
    await claim_of(request, services, identity, sent)
    try:
        view = await services.fleet.drain(worker_id, by=identity.name, reason=reason)
    except DriverUnavailable as error:
        raise DriverUnavailable(error.cause, fix=ASK_ITSELF, **{FIX_DETAIL: ASK_ITSELF}) from error
    return reply(await services.actors.told(identity.tenant, worker_document(view)), status=202)

"""Queues: `GET /v1/queues`, `GET` and `PATCH /v1/queues/{name}`, and their pause and resume."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...control.render import Document
from ...control.represent import queue_document
from ...domain.queue import QueueChange
from ...domain.snapshot import QueueView
from ..answers import Queue, QueueList
from ..auth import Identity
from ..body import read_body, read_optional_body
from ..caller import Operator, Reader
from ..documents import IDEMPOTENCY_KEY, IF_MATCH_NEEDED, IF_NONE_MATCH, answer, body, problems
from ..once import OnceRoute, claim_of
from ..preconditions import versions_asked
from ..replies import reply, reply_versioned
from ..requests import QueuePatch, QueuePauseBody
from ..requests_actions import ReasonBody
from ..services import HttpServices, Services

router = APIRouter(tags=["queues"], route_class=OnceRoute)

_EXAMPLE = {
    "name": "mail",
    "depth": {"delayed": 2, "ready": 14, "running": 5, "suspended": 0, "held": 0},
    "oldest_ready_ms": 830,
    "is_paused": False,
    "paused_at": None,
    "paused_by": None,
    "pause_reason": None,
    "paused_until": None,
    "concurrency": 8,
    "max_depth": None,
    "is_fair": False,
    "weights": {},
    "version": "41c9a7d2be08f316",
}
_LIMITS = {
    "limits": {"concurrency": 8, "max_depth": 10_000},
    "no limit": {"concurrency": None},
    "turns": {"is_fair": True, "weights": {"acme": 3, "globex": None}},
}
_PAUSE = {"reason": "the mail server moves", "until": "2126-11-29T14:00:00Z"}
_PAUSED = _EXAMPLE | {
    "is_paused": True,
    "paused_at": "2026-11-29T12:00:00Z",
    "paused_by": "bootstrap",
    "pause_reason": "the mail server moves",
    "paused_until": "2126-11-29T14:00:00Z",
}


@router.get(
    "/v1/queues",
    operation_id="listQueues",
    summary="List queues",
    response_model=None,
    responses={200: answer(QueueList, "Every queue by name.", {"items": [_EXAMPLE]}), **problems()},
)
async def list_queues(services: Services, identity: Reader) -> Response:
    """Give every queue that has jobs or a setting, with its depth and the age of its oldest ready job."""
    queues = await services.queues.list()
    items = [queue_document(queue, tenant=identity.tenant) for queue in queues]
    return reply({"items": await services.actors.told(identity.tenant, items)})


@router.get(
    "/v1/queues/{name}",
    operation_id="getQueue",
    summary="Describe a queue",
    response_model=None,
    responses={
        200: answer(Queue, "The queue.", _EXAMPLE, ETag="Its version, and that of its depth."),
        304: {"description": "It has not changed."},
        **problems(404),
    },
    openapi_extra={"parameters": [IF_NONE_MATCH]},
)
async def get_queue(request: Request, name: str, services: Services, identity: Reader) -> Response:
    """Give one queue."""
    queue = await services.queues.find(name)
    return reply_versioned(request, await _shown(queue, services, identity), queue.version)


@router.patch(
    "/v1/queues/{name}",
    operation_id="updateQueue",
    summary="Limit a queue",
    response_model=None,
    responses={
        200: answer(Queue, "The queue, limited so.", _EXAMPLE, ETag="Its new version."),
        **problems(412, 428, has_body=True),
    },
    openapi_extra=body(QueuePatch, _LIMITS, is_required=True) | {"parameters": [IF_MATCH_NEEDED, IDEMPOTENCY_KEY]},
)
async def update_queue(request: Request, name: str, services: Services, identity: Operator) -> Response:
    """Set how many jobs of a queue may run, how many it takes in, and whether its tenants take turns.

    What is left out stays; null is no limit.

    `If-Match` names the settings that were looked at: of two callers with the same, one wins. How full it is, and what
    the weights are, is no part of them.
    """
    identity.check_queue(name)
    versions = versions_asked(request, is_needed=True, what="a queue")
    sent = await read_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(QueuePatch)
    if asked.weights:
        identity.check_every_tenant("the weights of a queue")
    await claim_of(request, services, identity, sent)
    given = {field: getattr(asked, field) for field in asked.model_fields_set}
    queue = await services.queues.limit(name, QueueChange(**given), by=identity.name, versions=versions)
    return reply_versioned(request, await _shown(queue, services, identity), queue.version)


@router.post(
    "/v1/queues/{name}/pause",
    operation_id="pauseQueue",
    summary="Pause a queue",
    response_model=None,
    responses={200: answer(Queue, "The queue, paused.", _PAUSED), **problems(has_body=True)},
    openapi_extra=body(QueuePauseBody, {"reason": _PAUSE}, is_required=False) | {"parameters": [IDEMPOTENCY_KEY]},
)
async def pause_queue(request: Request, name: str, services: Services, identity: Operator) -> Response:
    """Stop workers from taking jobs of this queue; running ones go on. A pause shortens none that stands already."""
    identity.check_queue(name)
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(QueuePauseBody)
    await claim_of(request, services, identity, sent)
    paused = await services.queues.pause(name, by=identity.name, reason=asked.reason, until=asked.until)
    return reply(await _shown(paused, services, identity))


@router.post(
    "/v1/queues/{name}/resume",
    operation_id="resumeQueue",
    summary="Resume a queue",
    response_model=None,
    responses={200: answer(Queue, "The queue, not paused.", _EXAMPLE), **problems(has_body=True)},
    openapi_extra=body(ReasonBody, {"reason": {"reason": "it has moved"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def resume_queue(request: Request, name: str, services: Services, identity: Operator) -> Response:
    """Let workers take jobs of this queue again; resuming one that is not paused changes nothing."""
    identity.check_queue(name)
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    reason = sent.parse(ReasonBody).reason
    await claim_of(request, services, identity, sent)
    resumed = await services.queues.resume(name, by=identity.name, reason=reason)
    return reply(await _shown(resumed, services, identity))


async def _shown(queue: QueueView, services: HttpServices, identity: Identity) -> Document:
    return await services.actors.told(identity.tenant, queue_document(queue, tenant=identity.tenant))

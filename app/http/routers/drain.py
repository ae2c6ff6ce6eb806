"""Leaving in order, to watch and to ask for: `/v1/drain`, and a worker's by its id."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ..body import read_optional_body
from ..caller import ProcessOperator, Reader
from ..documents import IDEMPOTENCY_KEY, JOB_ID, answer, body, problems
from ..drain_answers import Drain, DrainView
from ..framework import refuse_repeated
from ..once import OnceRoute, claim_of
from ..replies import reply
from ..requests import NoBody
from ..services import Services

router = APIRouter(tags=["drain"], route_class=OnceRoute)

_DRAINING = {
    "state": "draining",
    "role": "worker+api",
    "phase": "inflight",
    "reason": "SIGTERM",
    "signal": "SIGTERM",
    "started_at": "2026-11-29T12:00:00Z",
    "deadline_at": "2026-11-29T12:00:25Z",
    "remaining_ms": 21_300,
    "in_flight_count": 1,
    "in_flight": [{"job_id": JOB_ID, "job_type": "shop.import", "step": None, "told_ms": 3_700, "acknowledged": False}],
    "completed": 2,
    "interrupted": 4,
    "abandoned": 0,
    "other": 0,
    "roles": {"worker": "leaving", "api": "leaving"},
}


@router.get(
    "/v1/drain",
    operation_id="getDrainStatus",
    summary="How far is this process, or the fleet, with leaving?",
    response_model=None,
    responses={200: answer(DrainView, "The drain; of a process that stays, too.", _DRAINING), **problems()},
)
async def get_drain(
    request: Request,
    services: Services,
    identity: Reader,
    scope: Annotated[
        Literal["process", "fleet"], Query(description="This process, or the workers behind the store.")
    ] = "process",
) -> Response:
    """Show this process's drain: phase, deadline, the runs in hand and whether they have heard.

    The admin listener answers the same without a key, also while the process's event loop is blocked.
    """
    refuse_repeated(request)
    is_here = scope == "process"
    document = services.drain.here(tenant=identity.tenant) if is_here else await services.fleet.draining()
    return reply(await services.actors.told(identity.tenant, document))


@router.post(
    "/v1/drain",
    operation_id="startDrain",
    summary="Let this process leave",
    status_code=202,
    response_model=None,
    responses={202: answer(Drain, "It leaves; a drain under way goes on.", _DRAINING), **problems(has_body=True)},
    openapi_extra=body(NoBody, {"nothing": {}}, is_required=False) | {"parameters": [IDEMPOTENCY_KEY]},
)
async def start_drain(request: Request, services: Services, identity: ProcessOperator) -> Response:
    """Begin the drain that SIGTERM begins, or join the one under way."""
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    sent.parse(NoBody)
    await claim_of(request, services, identity, sent)
    document = services.drain.start(by=identity.name, tenant=identity.tenant)
    return reply(await services.actors.told(identity.tenant, document), status=202)

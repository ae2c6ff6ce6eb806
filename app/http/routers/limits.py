"""Limits: held slots, taking back what is held for nothing, and the numbers in force."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...control.limits import limit_document, slot_document
from ...control.render import Document
from ...domain.limit import SlotQuery
from ..answers_limits import LimitInForce, LimitList, Released, SlotList
from ..body import read_body, read_optional_body
from ..caller import LimitOperator, Operator, Reader, visible_tenant
from ..cursor import read_cursor, write_cursor
from ..documents import IDEMPOTENCY_KEY, JOB_ID, answer, body, problems
from ..framework import refuse_repeated
from ..once import OnceRoute, acting
from ..replies import reply, root_of
from ..requests import LimitBody
from ..requests_actions import ReasonBody
from ..requests_views import LimitParams, SlotParams
from ..services import Services
from .jobs import job_to_act_on

router = APIRouter(tags=["limits"], route_class=OnceRoute)

_SLOT = {
    "name": "receipts.send",
    "limit": "limit",
    "key": "acme",
    "job_id": JOB_ID,
    "claim_no": 1,
    "worker_id": "17",
    "taken_at": "2026-11-29T12:00:00Z",
    "is_open": True,
    "tenant": "acme",
}
_LIMIT = {
    "name": "receipts.send",
    "limit": "limit",
    "n": 4,
    "declared": 4,
    "per_ms": None,
    "set_by": None,
    "held": 3,
    "waiting": 12,
}


@router.get(
    "/v1/slots",
    operation_id="listSlots",
    summary="List held slots",
    response_model=None,
    responses={
        200: answer(SlotList, "One page.", {"items": [_SLOT], "next_cursor": None}, Link="The next page, if any."),
        **problems(400),
    },
)
async def list_slots(
    request: Request, services: Services, identity: Reader, params: Annotated[SlotParams, Query()]
) -> Response:
    """Give one page of the slots that are held now, by their jobs' ids; `next_cursor` continues it.

    The slots of one job stand on one page, which may have a few more than `limit`.
    """
    refuse_repeated(request)
    tenant = visible_tenant(identity, params.tenant)
    filters = ("slots", params.name, tenant)
    after = None if params.cursor is None else read_cursor(params.cursor, filters)
    query = SlotQuery(name=params.name, tenant=tenant, after=after, limit=params.limit)
    found = await services.limits.slots(query)
    cursor = write_cursor(found[-1].job_id, filters) if len(found) >= params.limit else None
    document: Document = {"items": [slot_document(slot) for slot in found], "next_cursor": cursor}
    following = str(request.url.include_query_params(cursor=cursor).query)
    headers = {} if cursor is None else {"Link": f'<{root_of(request)}/v1/slots?{following}>; rel="next"'}
    return reply(document, headers=headers)


@router.post(
    "/v1/jobs/{job_id}/release-slots",
    operation_id="releaseSlots",
    summary="Take back the slots of a job that is over",
    response_model=None,
    responses={
        200: answer(Released, "What was taken back.", {"items": [_SLOT | {"is_open": False}]}),
        **problems(404, 409, has_body=True),
    },
    openapi_extra=body(ReasonBody, {"reason": {"reason": "its body hangs"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def release_slots(request: Request, job_id: str, services: Services, identity: Operator) -> Response:
    """Free the slots that closed attempts of a job still hold: of a cancelled body that does not end, as a rule.

    That body may run on, beside the one that gets the slot. While the attempt is open its slots stay its own: cancel
    the job first. Asked again with its key after the answer was lost, it tells of none: what it took is in the audit.
    """
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(ReasonBody)
    target = await job_to_act_on(services, identity, job_id)
    by = await acting(request, services, identity, sent, asked.reason)
    taken = await services.limits.release(target, by=by, tenant=identity.tenant)
    return reply({"items": [slot_document(slot) for slot in taken]})


@router.get(
    "/v1/limits",
    operation_id="listLimits",
    summary="List the limits in force",
    response_model=None,
    responses={200: answer(LimitList, "By job type and name.", {"items": [_LIMIT]}), **problems()},
)
async def list_limits(
    request: Request, services: Services, identity: Reader, params: Annotated[LimitParams, Query()]
) -> Response:
    """Give every limit and rate that job types have declared, with the number in force and how many are held back."""
    refuse_repeated(request)
    items = [limit_document(limit) for limit in await services.limits.limits(params.name)]
    return reply({"items": await services.actors.told(identity.tenant, items)})


@router.post(
    "/v1/limits/{name}/{limit}",
    operation_id="setLimit",
    summary="Set a limit",
    response_model=None,
    responses={
        200: answer(LimitInForce, "The limit, as it is in force.", _LIMIT | {"n": 2, "set_by": "bootstrap"}),
        **problems(404, has_body=True),
    },
    openapi_extra=body(LimitBody, {"lower": {"n": 2}}, is_required=True) | {"parameters": [IDEMPOTENCY_KEY]},
)
async def set_limit(request: Request, name: str, limit: str, services: Services, identity: LimitOperator) -> Response:
    """Put a number in the place of the declared one, for all workers at once; null takes it away again.

    It stands until it is taken away, whatever newer code declares. Fewer than are held now end nobody.
    """
    sent = await read_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(LimitBody)
    by = await acting(request, services, identity, sent, asked.reason)
    document = limit_document(await services.limits.set(name, limit, asked.n, by=by))
    return reply(await services.actors.told(identity.tenant, document))

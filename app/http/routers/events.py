"""Events: `POST` and `GET /v1/events`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...control.events import EventQuery
from ...control.render import Document
from ...control.run_documents import event_document
from ...domain.errors import Forbidden, JsonInvalid, PayloadTooLarge
from ..auth import Identity, Scope
from ..body import read_body
from ..caller import EventWriter, Reader, visible_tenant
from ..cursor import read_number_cursor, write_number_cursor
from ..documents import IDEMPOTENCY_KEY, answer, body, problems
from ..framework import refuse_repeated
from ..once import OnceRoute, claim_of
from ..replies import reply, root_of
from ..requests import EventBody, EventParams
from ..run_answers import EmittedEvent, EventList
from ..run_examples import EVENT_ID, EVENTS
from ..services import Services

router = APIRouter(tags=["events"], route_class=OnceRoute)

_EXAMPLES = {
    "approval": {"name": "order.approved", "key": "7", "payload": {"by": "anna"}},
    "bare": {"name": "stock.counted", "key": "north"},
}


@router.post(
    "/v1/events",
    operation_id="emitEvent",
    summary="Emit an event",
    status_code=202,
    response_model=None,
    responses={
        202: answer(EmittedEvent, "The event, stored.", {"id": EVENT_ID, "matched": 1}),
        **problems(has_body=True),
    },
    openapi_extra=body(EventBody, _EXAMPLES, is_required=True) | {"parameters": [IDEMPOTENCY_KEY]},
)
async def emit_event(request: Request, services: Services, identity: EventWriter) -> Response:
    """Store an event, durable when the answer arrives, and wake the runs that wait for its name and key.

    Events are broadcast and kept: a run that comes to wait for it later finds it all the same. Of each run the wait
    that began first is ended. Emitting again is another event.
    """
    sent = await read_body(request, payload_max_bytes=services.payload_max_bytes)
    fields = sent.parse(EventBody)
    tenant = _acting_tenant(identity, fields.tenant)
    claim = await claim_of(request, services, identity, sent)
    try:
        emitted = await services.events.emit(
            fields.name, fields.key, sent.texts.get("payload", "null"), tenant=tenant, by=identity.name, claim=claim
        )
    except (JsonInvalid, PayloadTooLarge) as exc:  # of the payload alone: the body's own were found while it was read
        pointer = f"/payload{exc.details.get('pointer', '')}"
        raise type(exc)(exc.cause, fix=exc.fix, **exc.details | {"pointer": pointer}) from exc
    return reply({"id": emitted.id, "matched": emitted.matched}, status=202)


@router.get(
    "/v1/events",
    operation_id="listEvents",
    summary="List events, newest first",
    response_model=None,
    responses={200: answer(EventList, "One page.", EVENTS, Link="The next page, if any."), **problems(400)},
)
async def list_events(
    request: Request, services: Services, identity: Reader, params: Annotated[EventParams, Query()]
) -> Response:
    """Give one page of stored events; `next_cursor` continues it under the same filters."""
    refuse_repeated(request)
    tenant = visible_tenant(identity, params.tenant)
    filters = ("events", params.name, params.key, tenant)
    found = await services.events.list(
        EventQuery(
            tenant=tenant,
            name=params.name,
            key=params.key,
            before=None if params.cursor is None else read_number_cursor(params.cursor, filters),
            limit=params.limit,
        )
    )
    cursor = write_number_cursor(found[-1].seq, filters) if len(found) == params.limit else None
    with_payload = identity.may(Scope.PAYLOAD_READ)
    document: Document = {
        "items": [event_document(event, with_payload=with_payload) for event in found],
        "next_cursor": cursor,
    }
    following = str(request.url.include_query_params(cursor=cursor).query)
    headers = {} if cursor is None else {"Link": f'<{root_of(request)}/v1/events?{following}>; rel="next"'}
    return reply(document, headers=headers)


def _acting_tenant(identity: Identity, asked: str | None) -> str | None:
    if identity.tenant is not None and asked not in (None, identity.tenant):
        raise Forbidden(
            f"the key may not act for the tenant {asked!r}", fix="leave `tenant` out, or use a key of that tenant"
        )
    return identity.tenant or asked

"""`POST /v1/jobs`."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...control.jobs import EnqueueRequest, Placed
from ...control.render import Document
from ...control.represent import links_of, receipt_document
from ...domain.errors import (
    JobNotFound,
    JsonInvalid,
    OutlastError,
    PayloadInvalid,
    PayloadTooLarge,
    RequestInvalid,
)
from ...domain.job import JobId
from ...domain.request_claim import RequestClaim
from ...domain.snapshot import JobView
from ...domain.state import TERMINAL
from ...domain.webhook import Callback, WebhookId, ends_of
from ..answers import EnqueuedJob, EnqueuedReceipt
from ..auth import Identity, check_held
from ..body import Body, read_body
from ..caller import Writer, caller_of
from ..documents import IDEMPOTENCY_KEY, JOB_EXAMPLE, PREFER, TRACEPARENT, answer, body, problems
from ..once import OnceRoute, claim_of
from ..prefer import Preferences, read_preferences
from ..replies import RETRY_AFTER, etag_of, reply, root_of, shown_job
from ..requests import CallbackBody, EnqueueBody
from ..services import HttpServices, Services

router = APIRouter(tags=["jobs"], route_class=OnceRoute)

_EXAMPLES = {
    "now": {"name": "demo.count_lines", "payload": {}},
    "once": {"name": "demo.count_lines", "payload": {}, "idempotency_key": "nightly:2026-11-29", "tags": ["nightly"]},
    "later": {"name": "demo.count_lines", "payload": {}, "delay_ms": 60_000, "priority": 2},
    "told": {
        "name": "demo.count_lines",
        "payload": {},
        "callback": {"secret_id": "wh_5f0c8a1be2d34976", "events": ["done", "dead"]},
    },
}
_SENT_AS = {"delay": "delay_ms", "timeout": "timeout_ms", "dedupe_for": "dedupe_for_ms"}
_DEDUPED = JOB_EXAMPLE | {"deduped": True}
_FRESH = JOB_EXAMPLE | {"deduped": False}


@router.post(
    "/v1/jobs",
    operation_id="enqueueJob",
    summary="Enqueue a job",
    status_code=201,
    response_model=None,
    responses={
        201: answer(EnqueuedJob, "A new job.", _FRESH, Location="The job.", ETag="Its version."),
        200: answer(EnqueuedJob, "The key's job, or the job ended while the request waited.", _DEDUPED)
        | {"model": EnqueuedJob | EnqueuedReceipt},
        202: answer(EnqueuedJob, "`Prefer: wait` ran out before the job ended.", _FRESH, Location="The job."),
        **problems(404, 409, 429, has_body=True),
    },
    openapi_extra=body(EnqueueBody, _EXAMPLES, is_required=True)
    | {"parameters": [PREFER, TRACEPARENT, IDEMPOTENCY_KEY]},
)
async def enqueue_job(request: Request, services: Services, identity: Writer) -> Response:
    """Store a job, durable when the answer arrives; or give the live job that holds the same key."""
    sent = await read_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = asked_of(sent, request, identity)
    claim = await claim_of(request, services, identity, sent)
    placed = await _enqueue(services, asked, identity, claim)
    preferences = read_preferences(request.headers.getlist("prefer"))
    view = await _settled_view(services, placed, identity, preferences)
    return await _answer(request, placed, view, identity, preferences)


def asked_of(sent: Body, request: Request, identity: Identity) -> EnqueueRequest:
    """Give what a body asks for. Raises `REQUEST_INVALID` with a pointer per field."""
    fields = sent.parse(EnqueueBody)
    return EnqueueRequest(
        name=fields.name,
        payload_text=sent.texts["payload"],
        queue=fields.queue,
        priority=fields.priority,
        run_at=fields.run_at,
        delay=_milliseconds(fields.delay_ms),
        max_attempts=fields.max_attempts,
        timeout=_milliseconds(fields.timeout_ms),
        idempotency_key=fields.idempotency_key,
        on_conflict=fields.on_conflict,
        dedupe_for=_milliseconds(fields.dedupe_for_ms),
        tags=tuple(fields.tags),
        meta=None if fields.meta is None else sent.texts["meta"],
        parent_id=None if fields.parent_id is None else JobId(fields.parent_id),
        traceparent=caller_of(request.scope).traceparent,
        enqueued_by=identity.name,
        tenant=identity.tenant,
        callback=None if fields.callback is None else _callback(fields.callback),
    )


def _callback(asked: CallbackBody) -> Callback:
    return Callback(webhook=WebhookId(asked.secret_id), url=asked.url, ends=ends_of(asked.events or ()))


async def _enqueue(
    services: HttpServices, asked: EnqueueRequest, identity: Identity, claim: RequestClaim | None
) -> Placed:
    try:
        return await services.jobs.enqueue(asked, tenant=identity.tenant, check_queue=identity.check_queue, claim=claim)
    except OutlastError as exc:
        raise as_sent(exc) from exc


def as_sent(error: OutlastError) -> OutlastError:
    """Let what an enqueue was refused for point into the body that was sent, and name its fields as they are there."""
    match error:
        case PayloadInvalid():
            return within_body(error, "/payload")
        case JsonInvalid() | PayloadTooLarge():  # of the payload alone: the body's own were found while it was read
            return type(error)(error.cause, fix=error.fix, **error.details | {"pointer": _in_payload(error)})
        case RequestInvalid():
            return _as_sent(error)
        case _:
            return error


def within_body(error: PayloadInvalid, at: str) -> PayloadInvalid:
    """Let pointers into a payload point into the body that was sent, where it, or what changes it, is `at`."""
    found = error.details.get("errors")
    if not isinstance(found, list):
        return PayloadInvalid(error.cause, fix=error.fix, pointer=f"{at}{error.details.get('pointer', '')}")
    errors = [{"in": "body", "pointer": f"{at}{each['pointer']}", "detail": each["message"]} for each in found]
    return PayloadInvalid(error.cause, fix=error.fix, errors=errors)


def _in_payload(error: OutlastError) -> str:
    return f"/payload{error.details.get('pointer', '')}"


def _as_sent(error: RequestInvalid) -> RequestInvalid:
    """Name a field as it is spelled in the body that was sent."""
    field, rule = error.details.get("field"), error.details.get("rule")
    sent = _SENT_AS.get(field) if isinstance(field, str) else None
    if sent is None:
        return error
    return RequestInvalid(f"{sent} {rule}", fix=f"correct {sent}, or leave it out", pointer=f"/{sent}")


def _milliseconds(value: int | None) -> timedelta | None:
    return None if value is None else timedelta(milliseconds=value)


async def _settled_view(
    services: HttpServices, placed: Placed, identity: Identity, preferences: Preferences
) -> JobView | None:
    """Give the job after the wait that was asked for; None when only its key outlived it."""
    at_most = timedelta(seconds=preferences.wait_seconds or 0)
    try:
        view = await services.jobs.wait(placed.answer.id, tenant=identity.tenant, at_most=at_most)
    except JobNotFound:
        view = None
    if at_most:
        await check_held(services.auth, identity)
    return view


async def _answer(
    request: Request, placed: Placed, view: JobView | None, identity: Identity, preferences: Preferences
) -> Response:
    root = root_of(request)
    job_id = str(placed.answer.id)
    status = _status(placed, view, preferences)
    headers = {"Location": str(links_of(job_id, root)["self"])}
    headers |= preferences.applied()
    headers |= RETRY_AFTER if status == 202 else {}  # noqa: PLR2004 - a status
    headers |= {} if view is None else {"ETag": etag_of(view)}
    document: Document
    if view is None:
        document = receipt_document(placed.job, job_id=job_id, run_id=str(placed.answer.run_id), root=root)
    else:
        document = await shown_job(request, identity, view)
    document |= {"deduped": placed.answer.deduped, "key_expires_at": placed.answer.key_expires_at}
    return reply(document, status=status, headers=headers)


def _status(placed: Placed, view: JobView | None, preferences: Preferences) -> int:
    if preferences.wait_seconds is not None and view is not None:
        return 200 if view.state in TERMINAL else 202
    return 200 if placed.answer.deduped else 201

"""Schedules: `GET /v1/schedules`, one of them, its pause, resume and trigger, and a preview of an expression."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...control.render import Document
from ...control.schedules import occurrence_document
from ...domain.audit import Acting
from ..answers_schedules import Decided, Schedule, ScheduleList, SchedulePreview
from ..auth import Identity, Scope
from ..body import read_optional_body
from ..caller import Reader, ScheduleOperator
from ..documents import IDEMPOTENCY_KEY, IF_NONE_MATCH, JOB_ID, answer, body, problems
from ..framework import refuse_repeated
from ..once import OnceRoute, acting, claim_of
from ..replies import reply, reply_versioned, root_of
from ..requests import PauseBody
from ..requests_actions import ReasonBody
from ..requests_views import PreviewParams
from ..services import HttpServices, Services

router = APIRouter(tags=["schedules"], route_class=OnceRoute)

_FIRE = {"at": "2026-11-30T08:30:00Z", "local": "2026-11-30T09:30:00+01:00", "dst": None}
_DECIDED = {"at": "2026-11-27T08:30:00Z", "outcome": "fired", "why": None, "job_id": JOB_ID}
_OCCURRENCE = _DECIDED | {"decided_at": "2026-11-27T08:30:00.012Z", "fired_by": None}
_EXAMPLE = {
    "name": "nightly",
    "job": "reports.make",
    "cron": "30 9 * * MON-FRI",
    "tz": "Europe/Berlin",
    "description": "At 09:30 on Monday through Friday",
    "catch_up": "latest",
    "max_catch_up": 10,
    "overlap": "skip",
    "code_version": "1.4.2",
    "published_at": "2026-11-26T10:00:00Z",
    "is_declared": True,
    "watermark": "2026-11-27T08:30:00Z",
    "is_paused": False,
    "paused_at": None,
    "paused_by": None,
    "pause_reason": None,
    "next_fires": [_FIRE],
    "occurrences": [_OCCURRENCE],
    "options": {
        "queue": None,
        "priority": 7,
        "max_attempts": None,
        "idempotency_key": None,
        "on_conflict": None,
        "tags": ["nightly"],
        "meta": None,
        "tenant": None,
        "enqueued_by": "schedule:nightly",
        "delay_ms": None,
        "timeout_ms": None,
        "dedupe_for_ms": None,
    },
    "payload": {"shop": "berlin"},
}
_PAUSED = _EXAMPLE | {
    "is_paused": True,
    "paused_at": "2026-11-29T12:00:00Z",
    "paused_by": "bootstrap",
    "pause_reason": "the mail server moves",
    "next_fires": [],
}
_PREVIEW = {
    "cron": "30 9 * * MON-FRI",
    "tz": "Europe/Berlin",
    "description": "At 09:30 on Monday through Friday",
    "after": "2026-11-29T12:00:00Z",
    "fires": [_FIRE],
}


@router.get(
    "/v1/schedules",
    operation_id="listSchedules",
    summary="List schedules",
    response_model=None,
    responses={200: answer(ScheduleList, "Every schedule by name.", {"items": [_EXAMPLE]}), **problems(501)},
)
async def list_schedules(services: Services, identity: Reader) -> Response:
    """Give every schedule with its next time and its last occurrence."""
    with_payload = identity.may(Scope.PAYLOAD_READ)
    items = await services.schedules.list(with_payload=with_payload, tenant=identity.tenant)
    return reply({"items": await services.actors.told(identity.tenant, items)})


@router.get(
    "/v1/schedules/preview",
    operation_id="previewSchedule",
    summary="Say what an expression means",
    response_model=None,
    responses={200: answer(SchedulePreview, "Its next times.", _PREVIEW), **problems(501)},
)
async def preview_schedule(
    request: Request, services: Services, _identity: Reader, params: Annotated[PreviewParams, Query()]
) -> Response:
    """Give an expression in plain English with its next times in a zone, and what clock changes do to them."""
    refuse_repeated(request)
    return reply(await services.schedules.preview(params.cron, params.tz, count=params.n, after=params.after))


@router.get(
    "/v1/schedules/{name}",
    operation_id="getSchedule",
    summary="Describe a schedule",
    response_model=None,
    responses={
        200: answer(Schedule, "The schedule.", _EXAMPLE, ETag="Its version."),
        304: {"description": "It has not changed."},
        **problems(404, 501),
    },
    openapi_extra={"parameters": [IF_NONE_MATCH]},
)
async def get_schedule(request: Request, name: str, services: Services, identity: Reader) -> Response:
    """Give one schedule with its last 20 occurrences and its next five times."""
    document = await _shown(name, services, identity)
    return reply_versioned(request, document, str(document["code_version"] or "none"))


@router.post(
    "/v1/schedules/{name}/pause",
    operation_id="pauseSchedule",
    summary="Pause a schedule",
    response_model=None,
    responses={200: answer(Schedule, "The schedule, paused.", _PAUSED), **problems(404, has_body=True)},
    openapi_extra=body(PauseBody, {"reason": {"reason": "the mail server moves"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def pause_schedule(request: Request, name: str, services: Services, identity: ScheduleOperator) -> Response:
    """Skip what comes due from now on; jobs that are there go on. A paused schedule keeps its first pause."""
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    reason = sent.parse(PauseBody).reason
    await claim_of(request, services, identity, sent)
    await services.schedules.pause(name, by=identity.name, reason=reason)
    return reply(await _shown(name, services, identity))


@router.post(
    "/v1/schedules/{name}/resume",
    operation_id="resumeSchedule",
    summary="Resume a schedule",
    response_model=None,
    responses={200: answer(Schedule, "The schedule, not paused.", _EXAMPLE), **problems(404, has_body=True)},
    openapi_extra=body(ReasonBody, {"reason": {"reason": "it has moved"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def resume_schedule(request: Request, name: str, services: Services, identity: ScheduleOperator) -> Response:
    """Let a schedule fire again from now on; nothing of the pause is caught up."""
    by = await _acting(request, services, identity)
    await services.schedules.resume(name, by=by.actor, reason=by.reason)
    return reply(await _shown(name, services, identity))


@router.post(
    "/v1/schedules/{name}/trigger",
    operation_id="triggerSchedule",
    summary="Fire a schedule now",
    status_code=201,
    response_model=None,
    responses={
        200: answer(Decided, "Its key led to a job that was there.", _DECIDED | {"outcome": "skipped"}),
        201: answer(Decided, "The job is enqueued.", _DECIDED, Location="The job."),
        **problems(404, 409, 429, has_body=True),
    },
    openapi_extra=body(ReasonBody, {"reason": {"reason": "it has moved"}}, is_required=False)
    | {"parameters": [IDEMPOTENCY_KEY]},
)
async def trigger_schedule(request: Request, name: str, services: Services, identity: ScheduleOperator) -> Response:
    """Enqueue the job of a schedule now, also while it is paused or a job of it runs; its next times stay."""
    by = await _acting(request, services, identity)
    decided = await services.schedules.fire(name, by=by, tenant=identity.tenant)
    headers = {"Location": f"{root_of(request)}/v1/jobs/{decided.job_id}"}
    return reply(occurrence_document(decided), status=201 if decided.why is None else 200, headers=headers)


async def _shown(name: str, services: HttpServices, identity: Identity) -> Document:
    with_payload = identity.may(Scope.PAYLOAD_READ)
    document = await services.schedules.find(name, with_payload=with_payload, tenant=identity.tenant)
    return await services.actors.told(identity.tenant, document)


async def _acting(request: Request, services: HttpServices, identity: Identity) -> Acting:
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    return await acting(request, services, identity, sent, sent.parse(ReasonBody).reason)

"""What a process says of itself: probes, metrics, version, and the description of this API."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from ..answers import Ready, Version
from ..caller import AnyCaller, Operator
from ..documents import answer, problems
from ..headers import METRICS_MEDIA_TYPE
from ..openapi import render_document
from ..probes import check_readiness
from ..replies import JSON_TYPE, reply
from ..services import Services

router = APIRouter(tags=["process"])

_WORD = {"content": {"text/plain": {"schema": {"type": "string"}, "example": "ok\n"}}}
_OPEN = {"security": list[object]()}


@router.get(
    "/livez",
    operation_id="getLivez",
    summary="Is the process alive?",
    response_class=PlainTextResponse,
    response_model=None,
    responses={200: {"description": "It is.", **_WORD}},
    openapi_extra=_OPEN,
)
async def livez() -> Response:
    """Answer; the database is not asked, because restarting this process would not mend it."""
    return PlainTextResponse("ok\n")


@router.get(
    "/startupz",
    operation_id="getStartupz",
    summary="Has the process started?",
    response_class=PlainTextResponse,
    response_model=None,
    responses={
        200: {"description": "It has.", **_WORD},
        503: {"description": "Not yet.", **_WORD},
    },
    openapi_extra=_OPEN,
)
async def startupz(services: Services) -> Response:
    """Say whether the store was opened with a current schema."""
    return PlainTextResponse("ok\n") if services.is_started() else PlainTextResponse("starting\n", 503)


@router.get(
    "/readyz",
    operation_id="getReadyz",
    summary="Should the process get traffic?",
    response_model=None,
    responses={
        200: answer(Ready, "It should.", {"status": "ready"}),
        503: answer(Ready, "It should not.", {"status": "not_ready", "reason": "draining"}),
    },
    openapi_extra=_OPEN,
)
async def readyz(services: Services) -> Response:
    """Say whether the store answers within a second and the process is to stay."""
    readiness = await check_readiness(
        ping=services.ping, is_started=services.is_started, is_draining=services.is_draining
    )
    return reply(readiness.document, status=readiness.status)


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Metrics in the text format of Prometheus",
    response_class=PlainTextResponse,
    response_model=None,
    responses={
        200: {"description": "The metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **problems(),
    },
)
async def metrics(services: Services, _identity: Operator) -> Response:
    """Give the metrics of this process; the admin listener serves the same without a key."""
    return Response(services.telemetry.metrics.render(), media_type=METRICS_MEDIA_TYPE)


@router.get(
    "/version",
    operation_id="getVersion",
    summary="What runs here",
    response_model=None,
    responses={200: answer(Version, "The versions.", {"version": "0.1.0", "code_version": "1.4.2"}), **problems()},
)
async def version(services: Services, _identity: AnyCaller) -> Response:
    """Give the release of Outlast and the version of the code it runs."""
    return reply({"version": services.version, "code_version": services.code_version})


@router.get(
    "/openapi.json",
    operation_id="getOpenapi",
    summary="This document",
    response_model=None,
    responses={
        200: {"description": "OpenAPI 3.1.", "content": {JSON_TYPE: {"schema": {"type": "object"}}}},
        **problems(),
    },
)
async def openapi(request: Request, _identity: AnyCaller) -> Response:
    """Describe every operation of this API."""
    state = request.app.state
    if not hasattr(state, "openapi_text"):
        # Half a second of work, done once, and off the loop that answers everybody else.
        state.openapi_text = await asyncio.to_thread(render_document, request.app)
    return Response(state.openapi_text, media_type=JSON_TYPE)
